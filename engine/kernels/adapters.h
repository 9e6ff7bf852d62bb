// LoRA inside a whole step: the inputs are shrunk to h = scale * A x before a product, and B h joins the product's sums
// tile by tile. Factors are read once for each run of at most TILE_ROWS rows of a slot.
#pragma once

#include "step.h"

namespace motet {

constexpr int SHRUNK_ROWS = 4, SHRUNK_RANKS = 4;  // 16 sums at a time

constexpr int MOST_SITES = 3;  // of one product

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

// out[n][m] = x[n] . a[m], each over 16 lanes with one tree at the end. Meanwhile as much memory is fetched from `ahead`
// on, in order: DRAM likes one stream better than M.
template <int N, int M, class T, class F>
inline void shrink_tile(const T* x, const F* a, int64_t width, const char* ahead, float out[][SHRUNK_RANKS]) {
    vec sums[N][M] = {};
    for (int64_t i = 0; i < width; i += PER_VECTOR<T, F>) {
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            __builtin_prefetch(ahead);
            ahead += PER_VECTOR<T, F> * sizeof(F);
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) sums[n][m] = multiply_vectors(sums[n][m], x + n * width + i, a + m * width + i);
        }
    }
    for (int n = 0; n < N; n++)
        for (int m = 0; m < M; m++) out[n][m] = sum(sums[n][m]);
}

template <int M, class T, class F>
inline void shrink_rows_of(int rows, const T* x, const F* a, int64_t width, const char* ahead, float out[][SHRUNK_RANKS]) {
    switch (rows) {
        case 1: shrink_tile<1, M>(x, a, width, ahead, out); break;
        case 2: shrink_tile<2, M>(x, a, width, ahead, out); break;
        case 3: shrink_tile<3, M>(x, a, width, ahead, out); break;
        default: shrink_tile<4, M>(x, a, width, ahead, out);
    }
}

// Ranks from `rank` (SHRUNK_RANKS of them, or what is left) of one run and site. `ahead`: what is read next, or null.
template <class T, class F>
void shrink_ranks(const PackedFactor& f, const Run& run, const T* x, int64_t width, int64_t rank, const char* ahead,
                  lane_bits* h) {
    const F* a = reinterpret_cast<const F*>(f.a) + rank * width;
    if (!ahead) ahead = reinterpret_cast<const char*>(a);
    int ranks = f.rank - rank < SHRUNK_RANKS ? int(f.rank - rank) : SHRUNK_RANKS;
    for (int64_t row = 0; row < run.count; row += SHRUNK_ROWS) {
        int rows = run.count - row < SHRUNK_ROWS ? int(run.count - row) : SHRUNK_ROWS;
        float out[SHRUNK_ROWS][SHRUNK_RANKS] = {};
        const T* from = x + (run.place + row) * width;
        switch (ranks) {
            case 1: shrink_rows_of<1>(rows, from, a, width, ahead, out); break;
            case 2: shrink_rows_of<2>(rows, from, a, width, ahead, out); break;
            case 3: shrink_rows_of<3>(rows, from, a, width, ahead, out); break;
            default: shrink_rows_of<4>(rows, from, a, width, ahead, out);
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

// Walks over the units of work of a product's inputs: SHRUNK_RANKS ranks of one run and site.
struct ShrinkCursor {
    const Adapters& adapters;
    const FusedSites& sites;
    int64_t run = 0;
    int site = 0;
    int64_t rank = 0;

    bool ended() const { return run == adapters.step.num_runs; }
    const Run& current() const { return adapters.step.runs[run]; }
    const PackedFactor& factor() const { return adapters.factor(current(), sites.first + site); }
    int64_t units() const { return (factor().rank + SHRUNK_RANKS - 1) / SHRUNK_RANKS; }
    void next_site() {
        rank = 0;
        if (++site < sites.count) return;
        site = 0;
        run++;
    }
    void advance(int64_t count) {  // by so many units
        rank += count * SHRUNK_RANKS;
        while (!ended() && rank >= factor().rank) {
            int64_t left = (rank - units() * SHRUNK_RANKS);
            next_site();
            rank = left;
        }
    }
    const char* a(int64_t width) const { return factor().a + rank * width * (factor().is_bfloat16 ? 2 : 4); }
};

// h of every run for all sites of a product.
template <class Form>
void shrink(Team& team, const Adapters& adapters, const FusedSites& sites, const Inputs<Form>& x) {
    typedef typename Form::element T;
    int64_t total = 0;
    for (ShrinkCursor at{adapters, sites}; !at.ended(); at.next_site()) total += at.units();
    ShrinkCursor at{adapters, sites};
    int64_t unit, end;
    if (!team.claim(total, 1, total, &unit, &end)) return;
    at.advance(unit);
    for (bool more = true; more;) {
        const Run& run = at.current();
        const PackedFactor& f = at.factor();
        int64_t rank = at.rank;
        lane_bits* h = adapters.shrunk(run, at.site);
        int64_t left = unit;
        if (++unit == end) more = team.claim(total, 1, total, &unit, &end);  // so early that its factors can be fetched
        if (more) at.advance(unit - left);
        const char* ahead = more ? at.a(x.plain_width) : nullptr;
        if (f.is_bfloat16) shrink_ranks<T, bf16>(f, run, x.plain, x.plain_width, rank, ahead, h);
        else shrink_ranks<T, float>(f, run, x.plain, x.plain_width, rank, ahead, h);
    }
}

// What a group of rows takes from the adapters' B, for all sites of a product: looked up once for many blocks.
class Expansion {
  public:
    Expansion(const Adapters& adapters, const FusedSites& sites, int64_t first_run, int64_t end_run, int64_t first_place)
        : sites_(sites) {
        for (int s = 0; s < sites.count; s++)
            for (int64_t r = first_run; r < end_run; r++) {
                const Run& run = adapters.step.runs[r];
                const PackedFactor& f = adapters.factor(run, sites.first + s);
                if (!f.rank) continue;
                lines_[s] += steps_of_rank(f);
                parts_[s][counts_[s]++] = {f.b, adapters.shrunk(run, s), steps_of_rank(f), int(run.place - first_place),
                                           run.count, f.is_bfloat16 != 0};
            }
    }

    // How many pieces of a block are worth fetching one by one: too many lines at once keep the product from its own.
    int pieces(int64_t block) const {
        int s = sites_.site(block);
        int64_t found = lines_[s] / LINES_AT_ONCE;
        return int(found < 1 ? 1 : found < counts_[s] ? found : counts_[s]);
    }

    // Brings one piece of the factors of a block near, while the base's product of it runs.
    void fetch_piece(int64_t block, int piece, int pieces) const {
        int s = sites_.site(block);
        int64_t local = sites_.local(block);
        for (int p = counts_[s] * piece / pieces; p < counts_[s] * (piece + 1) / pieces; p++) {
            int64_t bytes = parts_[s][p].steps * STEP_BYTES;
            fetch(parts_[s][p].b + local * bytes, bytes);
        }
    }

    // Adds B h to the sums of BLOCKS blocks of one site, from `block` on; the next block's sums are `apart` vectors away.
    template <int BLOCKS> void add(int64_t block, vec* sums, int64_t apart) const {
        int s = sites_.site(block);
        int64_t local = sites_.local(block);
        for (int p = 0; p < counts_[s]; p++) {
            const Part& part = parts_[s][p];
            const char* b = part.b + local * part.steps * STEP_BYTES;
#ifdef __AVX512BF16__
            if (part.is_bfloat16) {
                add_part<Bfloat16Form, BLOCKS>(part, b, sums + part.row, apart);
                continue;
            }
#endif
            add_part<Float32Form, BLOCKS>(part, b, sums + part.row, apart);
        }
    }

  private:
    struct Part {  // of one run and site
        const char* b;
        const lane_bits* h;
        int64_t steps;
        int row, count;
        bool is_bfloat16;
    };

    template <class Form, int BLOCKS> static void add_part(const Part& part, const char* b, vec* sums, int64_t apart) {
        if (part.count > 1) {
            for (int n = 0; n < BLOCKS; n++)
                multiply<Form, 0>(part.count, sums + n * apart, b + n * part.steps * STEP_BYTES, part.h, part.count, part.steps);
            return;
        }
        vec held[BLOCKS];  // one row alone would wait for each of its sums: it takes some blocks at once
        for (int n = 0; n < BLOCKS; n++) held[n] = sums[n * apart];
        for (int64_t step = 0; step < part.steps; step++)
#pragma GCC unroll 8
            for (int n = 0; n < BLOCKS; n++)
                held[n] = Form::multiply(held[n], b + (n * part.steps + step) * STEP_BYTES, part.h[step]);
        for (int n = 0; n < BLOCKS; n++) sums[n * apart] = held[n];
    }

    static constexpr int64_t LINES_AT_ONCE = 16;
    const FusedSites& sites_;
    int64_t lines_[MOST_SITES] = {};  // of a block
    int counts_[MOST_SITES] = {};
    Part parts_[MOST_SITES][TILE_ROWS];
};

}  // namespace motet
