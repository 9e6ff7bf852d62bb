// LoRA inside a whole step: the inputs are shrunk to h = scale * A x before a product, and B h joins the product's sums
// tile by tile. Factors are read once for each run of at most TILE_ROWS rows of a slot.
#pragma once

#include "step.h"

namespace motet {

constexpr int SHRUNK_ROWS = 4, SHRUNK_RANKS = 4;  // 16 sums at a time

// The sites of one product: which are they, and which one does a block of outputs belong to?
struct FusedSites {
    int count, first;     // of a layer's SITES
    int64_t starts[4];    // qkv: the first block of each site, and the end
    bool alternate;       // gate_up
    int site(int64_t block) const {
        if (alternate) return int(block & 1);
        int s = 0;
        while (s + 1 < count && block >= starts[s + 1]) s++;
        return s;
    }
    int64_t local(int64_t block) const { return alternate ? block >> 1 : block - starts[site(block)]; }
};

struct Adapters {
    const Step& step;
    int64_t layer, num_layers, max_steps;  // max_steps: of the ranks
    lane_bits* h;  // [3 sites][places][max_steps], of each run [steps of its rank][count]

    const PackedFactor& factor(const Run& run, int site) const {
        return step.factors[(run.slot * num_layers + layer) * SITES + site];
    }
    lane_bits* shrunk(const Run& run, int site) const { return h + (site * step.num_tokens + run.place) * max_steps; }
};

inline int64_t steps_of_rank(const PackedFactor& f) { return f.is_bfloat16 ? (f.rank + 1) / 2 : f.rank; }

template <class T, class F> inline vec multiply_vectors(vec sum, const T* x, const F* a) { return sum + load(x) * load(a); }
template <class T, class F> constexpr int64_t PER_VECTOR = LANES;
#ifdef __AVX512BF16__
template <> inline vec multiply_vectors(vec sum, const bf16* x, const bf16* a) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_loadu_si512(x), (__m512bh)_mm512_loadu_si512(a));
}
template <> constexpr int64_t PER_VECTOR<bf16, bf16> = 2 * LANES;
#endif

// out[n][m] = x[n] . a[m], each over 16 lanes with one tree at the end.
template <int N, int M, class T, class F>
inline void shrink_tile(const T* x, const F* a, int64_t width, float out[][SHRUNK_RANKS]) {
    vec sums[N][M] = {};
    if (N == 1) {  // bound by memory, which likes one stream better than four
        for (int m = 0; m < M; m++)
            for (int64_t i = 0; i < width; i += PER_VECTOR<T, F>) {
                __builtin_prefetch((const char*)(a + m * width + i) + AHEAD_BYTES);
                sums[0][m] = multiply_vectors(sums[0][m], x + i, a + m * width + i);
            }
    }
    for (int64_t i = N == 1 ? width : 0; i < width; i += PER_VECTOR<T, F>) {
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            __builtin_prefetch((const char*)(a + m * width + i) + AHEAD_BYTES);
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) sums[n][m] = multiply_vectors(sums[n][m], x + n * width + i, a + m * width + i);
        }
    }
    for (int n = 0; n < N; n++)
        for (int m = 0; m < M; m++) out[n][m] = sum(sums[n][m]);
}

template <int M, class T, class F>
inline void shrink_rows_of(int rows, const T* x, const F* a, int64_t width, float out[][SHRUNK_RANKS]) {
    switch (rows) {
        case 1: shrink_tile<1, M>(x, a, width, out); break;
        case 2: shrink_tile<2, M>(x, a, width, out); break;
        case 3: shrink_tile<3, M>(x, a, width, out); break;
        default: shrink_tile<4, M>(x, a, width, out);
    }
}

// Ranks from `rank` (SHRUNK_RANKS of them, or what is left) of one run and site.
template <class T, class F>
void shrink_ranks(const PackedFactor& f, const Run& run, const T* x, int64_t width, int64_t rank, lane_bits* h) {
    const F* a = reinterpret_cast<const F*>(f.a) + rank * width;
    int ranks = f.rank - rank < SHRUNK_RANKS ? int(f.rank - rank) : SHRUNK_RANKS;
    for (int64_t row = 0; row < run.count; row += SHRUNK_ROWS) {
        int rows = run.count - row < SHRUNK_ROWS ? int(run.count - row) : SHRUNK_ROWS;
        float out[SHRUNK_ROWS][SHRUNK_RANKS] = {};
        const T* from = x + (run.place + row) * width;
        switch (ranks) {
            case 1: shrink_rows_of<1>(rows, from, a, width, out); break;
            case 2: shrink_rows_of<2>(rows, from, a, width, out); break;
            case 3: shrink_rows_of<3>(rows, from, a, width, out); break;
            default: shrink_rows_of<4>(rows, from, a, width, out);
        }
        for (int n = 0; n < rows; n++) {
            if (!f.is_bfloat16) {
                for (int m = 0; m < ranks; m++) {
                    float value = out[n][m] * f.scale;
                    std::memcpy(h + (rank + m) * run.count + row + n, &value, sizeof value);
                }
                continue;
            }
            for (int m = 0; m < ranks; m += 2) {  // ranks beyond are zero in `out`
                bf16 pair[2];
                from_float(pair, out[n][m] * f.scale);
                from_float(pair + 1, out[n][m + 1] * f.scale);
                std::memcpy(h + (rank + m) / 2 * run.count + row + n, pair, sizeof pair);
            }
        }
    }
}

// The first lines of what comes after a site's last ranks; within a site the next ranks follow in memory.
inline void fetch_next(const Adapters& adapters, const FusedSites& sites, int64_t run, int site, bool last) {
    if (!last) return;
    if (++site == sites.count) {
        site = 0;
        if (++run == adapters.step.num_runs) return;
    }
    const PackedFactor& f = adapters.factor(adapters.step.runs[run], sites.first + site);
    if (f.rank) fetch(f.a, AHEAD_BYTES);
}

// h of every run for all sites of a product. Units of work are SHRUNK_RANKS ranks of one run and site.
template <class Form>
void shrink(Team& team, const Adapters& adapters, const FusedSites& sites, const Inputs<Form>& x) {
    typedef typename Form::element T;
    const Step& step = adapters.step;
    auto units = [&](int64_t run, int site) {
        return (adapters.factor(step.runs[run], sites.first + site).rank + SHRUNK_RANKS - 1) / SHRUNK_RANKS;
    };
    int64_t total = 0;
    for (int64_t r = 0; r < step.num_runs; r++)
        for (int s = 0; s < sites.count; s++) total += units(r, s);
    int64_t low, high;
    while (team.claim(total, 1, total, &low, &high)) {
        int64_t at = 0;
        for (int64_t r = 0; r < step.num_runs && at < high; r++)
            for (int s = 0; s < sites.count; s++) {
                const Run& run = step.runs[r];
                const PackedFactor& f = adapters.factor(run, sites.first + s);
                int64_t end = at + units(r, s);
                for (int64_t u = low > at ? low : at; u < end && u < high; u++) {
                    int64_t rank = (u - at) * SHRUNK_RANKS;
                    lane_bits* h = adapters.shrunk(run, s);
                    fetch_next(adapters, sites, r, s, end == u + 1);
                    if (f.is_bfloat16) shrink_ranks<T, bf16>(f, run, x.plain, x.plain_width, rank, h);
                    else shrink_ranks<T, float>(f, run, x.plain, x.plain_width, rank, h);
                }
                at = end;
            }
    }
}

// Brings the runs' factors of one block near, while the base's product of it runs.
inline void fetch_expansion(const Adapters& adapters, const FusedSites& sites, int64_t first_run, int64_t end_run, int64_t block) {
    int site = sites.site(block);
    for (int64_t r = first_run; r < end_run; r++) {
        const PackedFactor& f = adapters.factor(adapters.step.runs[r], sites.first + site);
        int64_t bytes = steps_of_rank(f) * STEP_BYTES;
        if (f.rank) fetch(f.b + sites.local(block) * bytes, bytes);
    }
}

// Adds B h of the runs in rows first .. first + count - 1 to the sums of one block of outputs.
inline void expand(const Adapters& adapters, const FusedSites& sites, int64_t first_run, int64_t end_run, int64_t first_place,
                   int64_t block, vec* sums) {
    int site = sites.site(block);
    int64_t local = sites.local(block);
    for (int64_t r = first_run; r < end_run; r++) {
        const Run& run = adapters.step.runs[r];
        const PackedFactor& f = adapters.factor(run, sites.first + site);
        if (!f.rank) continue;
        int64_t steps = steps_of_rank(f);
        const char* b = f.b + local * steps * STEP_BYTES;
        vec* rows = sums + (run.place - first_place);
        const lane_bits* h = adapters.shrunk(run, site);
#ifdef __AVX512BF16__
        if (f.is_bfloat16) {
            multiply<Bfloat16Form, 0>(run.count, rows, b, h, run.count, steps);
            continue;
        }
#endif
        multiply<Float32Form, 0>(run.count, rows, b, h, run.count, steps);
    }
}

}  // namespace motet
