// A whole forward step of the Llama family by one team of threads (docs/decisions/0010).
#pragma once

#include <initializer_list>

#include "adapters.h"
#include "paged.h"

namespace motet {

struct Scratch {  // hands out parts of Step.scratch, each aligned to a cache line; with no base it only counts
    char* base;
    int64_t used = 0;
    template <class T> T* take(int64_t count) {
        T* found = base ? reinterpret_cast<T*>(base + used) : nullptr;
        used += round_up(count * int64_t(sizeof(T)), 64);
        return found;
    }
};

template <class Form> struct Buffers {  // what a step keeps between its parts
    typedef typename Form::element T;
    Inputs<Form> hidden, attended, inner;
    float* qkv;
    int64_t qkv_width;
    T* q;
    int32_t* place_of;
    int64_t* first_run;  // [groups + 1]
    lane_bits* h;
    float* residual;     // [places, hidden in whole blocks]
    int64_t residual_width;

    Buffers(const Model& m, int64_t rows, int64_t max_rank, Scratch* s) {
        Places places(rows);
        auto inputs = [&](int64_t width) {
            int64_t steps = steps_of<Form>(width), plain = plain_width(width);
            return Inputs<Form>{s->take<lane_bits>(places.groups * places.stride * steps),
                                max_rank ? s->take<T>(rows * plain) : nullptr, steps, plain, places.stride};
        };
        hidden = inputs(m.hidden);
        attended = inputs(m.num_heads * m.head_dim);
        inner = inputs(m.inner);
        qkv_width = LANES * (blocks_of(m.num_heads * m.head_dim) + 2 * blocks_of(m.num_kv_heads * m.head_dim));
        qkv = s->take<float>(rows * qkv_width);
        q = s->take<T>(rows * m.num_heads * m.head_dim);
        place_of = s->take<int32_t>(rows);
        first_run = s->take<int64_t>(places.groups + 1);
        h = s->take<lane_bits>(3 * rows * max_rank);
        residual_width = round_up(m.hidden, LANES);
        residual = s->take<float>(rows * residual_width);
    }
};

// How much scratch a step of so many rows needs; float32 takes the most.
inline int64_t step_scratch(const Model& m, int64_t rows, int64_t max_rank) {
    Scratch counted{nullptr};
    Buffers<Float32Form>(m, rows, max_rank, &counted);
    return counted.used;
}

constexpr int UNITS_AT_ONCE = 4;  // of a product with adapters: B is read in longer pieces, by independent sums

// One group of rows times units first .. first + N - 1 of a product.
template <class Form, int UNIT, int N, class Done>
inline void product_tile(const Packed& w, const Places& places, const Inputs<Form>& x, int64_t g, int64_t first,
                         const Expansion* expansion, Done& done) {
    int count = places.count(g);
    const lane_bits* rows = x.groups + g * places.stride * x.steps;
    vec sums[N][UNIT][TILE_ROWS];
    for (int n = 0; n < N; n++)
        for (int b = 0; b < UNIT; b++) {
            int64_t block = (first + n) * UNIT + b;
            vec start = w.bias ? load(w.bias + block * LANES) : vec{};
            for (int i = 0; i < count; i++) sums[n][b][i] = start;
            int pieces = expansion ? expansion->pieces(block) : 1;
            for (int p = 0; p < pieces; p++) {
                if (expansion) expansion->fetch_piece(block, p, pieces);
                int64_t from = w.steps * p / pieces, to = w.steps * (p + 1) / pieces;
                motet::multiply<Form>(count, sums[n][b], w.weight + (block * w.steps + from) * STEP_BYTES,
                                      rows + from * places.stride, places.stride, to - from);
            }
        }
    if (expansion)
        for (int b = 0; b < UNIT; b++) expansion->add<N>(first * UNIT + b, sums[0][b], UNIT * TILE_ROWS);
    for (int n = 0; n < N; n++) done(first + n, g * places.stride, count, sums[n]);
}

// Calls `done(unit, place, count, sums)` for tiles of UNIT neighbouring blocks; sums[block][TILE_ROWS].
template <int UNIT, class Form, class Done>
void product(Team& team, const Packed& w, const Places& places, const Inputs<Form>& x, const Adapters* adapters,
             const FusedSites& sites, const int64_t* first_run, Done done) {
    int64_t units = w.blocks / UNIT;
    int64_t ranges = (4 * team.threads() + units - 1) / units;  // few blocks and many threads: rows are shared out too
    if (ranges > places.groups) ranges = places.groups;
    int64_t panel = PANEL_BYTES / (w.steps * STEP_BYTES * UNIT);
    if (places.groups == 1) panel = units;
    if (panel < 1) panel = 1;
    int64_t low, high;
    while (team.claim(units * ranges, 1, panel, &low, &high))
        while (low < high) {
            int64_t range = low / units, first = low % units;
            int64_t end = high - range * units < units ? high - range * units : units;
            for (int64_t g = places.groups * range / ranges; g < places.groups * (range + 1) / ranges; g++) {
                if (!adapters || first_run[g] == first_run[g + 1]) {
                    for (int64_t u = first; u < end; u++) product_tile<Form, UNIT, 1>(w, places, x, g, u, nullptr, done);
                    continue;
                }
                Expansion expansion(*adapters, sites, first_run[g], first_run[g + 1], g * places.stride);
                for (int64_t u = first; u < end;) {
                    if (u + UNITS_AT_ONCE <= end && sites.site(u * UNIT) == sites.site((u + UNITS_AT_ONCE - 1) * UNIT)) {
                        product_tile<Form, UNIT, UNITS_AT_ONCE>(w, places, x, g, u, &expansion, done);
                        u += UNITS_AT_ONCE;
                    } else {
                        product_tile<Form, UNIT, 1>(w, places, x, g, u++, &expansion, done);
                    }
                }
            }
            low = range * units + end;
        }
}

template <class Form>
void norm_row(const float* row, const float* weight, int64_t width, float eps, int64_t place, const Inputs<Form>& out) {
    vec squares{};
    for (int64_t i = 0; i < width; i += LANES) {
        vec x = load_some(row + i, width - i);
        squares += x * x;
    }
    float scale = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
    for (int64_t i = 0; i < width; i += LANES)
        out.put(place, i, load_some(row + i, width - i) * scale * load(weight + i));
}

inline vec silu(vec gate, vec up) {
    vec magnitude = gate < vec{} ? gate : -gate;
    vec e = exp_nonpositive(magnitude);
    vec sigmoid = (gate < vec{} ? e : splat(1.0f)) / (e + 1.0f);
    return gate * sigmoid * up;
}

template <class Form, class E> class Forward {
    typedef typename Form::element T;

  public:
    Forward(const Model& m, const Step& s, Team& team)
        : m_(m), s_(s), team_(team), places_(s.num_tokens), scratch_{s.scratch},
          b_(m, s.num_tokens, s.num_runs ? s.max_rank : 0, &scratch_) {
        int64_t q = blocks_of(m.num_heads * m.head_dim), kv = blocks_of(m.num_kv_heads * m.head_dim);
        qkv_ = {3, 0, {0, q, q + kv, q + 2 * kv}, false};
        o_ = {1, 3, {0}, false};
        gate_up_ = {2, 4, {0}, true};
        down_ = {1, 6, {0}, false};
    }

    // Everything is done by all threads of the team together.
    void run(int thread) {
        thread_ = thread;
        begin();
        for (int64_t l = 0; l < m_.num_layers; l++) layer(m_.layers[l], l);
        each_place([&](int64_t place) {
            std::memcpy(s_.residual + s_.order[place] * m_.hidden, residual(place), m_.hidden * sizeof(float));
        });
    }

  private:
    float* residual(int64_t place) const { return b_.residual + place * b_.residual_width; }

    template <class Work> void each_place(Work work) {
        int64_t low, high;
        while (team_.claim(s_.num_tokens, 1, s_.num_tokens, &low, &high))
            for (int64_t place = low; place < high; place++) work(place);
        team_.meet();
    }

    void begin() {
        if (thread_ == 0) {
            int64_t run = 0;
            for (int64_t g = 0; g <= places_.groups; g++) {
                while (run < s_.num_runs && s_.runs[run].place < g * places_.stride) run++;
                b_.first_run[g] = run;
            }
        }
        int64_t tail = m_.num_heads * m_.head_dim;  // attention writes whole heads, which may end within a vector
        each_place([&](int64_t place) {
            b_.place_of[s_.order[place]] = int32_t(place);
            if (tail % LANES) b_.attended.put(place, tail / LANES * LANES, vec{});
            int64_t token = s_.tokens[s_.order[place]];
            for (int64_t i = 0; i < m_.hidden; i += LANES) {
                vec x = m_.embedding ? load_some((const T*)m_.embedding + token * m_.hidden + i, m_.hidden - i)
                                     : unpack<Form>(m_.head.weight, m_.hidden, token, i);
                store(residual(place) + i, x);
            }
            if (b_.hidden.plain) zero_plain_tails(place);
        });
    }

    void zero_plain_tails(int64_t place) {
        for (const Inputs<Form>* x : {&b_.hidden, &b_.attended, &b_.inner})
            std::memset(x->plain + (place + 1) * x->plain_width - 2 * LANES, 0, 2 * LANES * sizeof(T));
    }

    void layer(const Layer& l, int64_t index) {
        each_place([&](int64_t p) { norm_row(residual(p), l.attention_norm, m_.hidden, m_.norm_eps, p, b_.hidden); });
        multiply<1>(l.qkv, b_.hidden, index, 0, qkv_, [&](int64_t block, int64_t place, int count, vec (*sums)[TILE_ROWS]) {
            for (int i = 0; i < count; i++)
                store(b_.qkv + s_.order[place + i] * b_.qkv_width + block * LANES, sums[0][i]);
        });
        rotate(l);
        attend(l);
        multiply<1>(l.o, b_.attended, index, 1, o_, add_to_residual());
        each_place([&](int64_t p) { norm_row(residual(p), l.mlp_norm, m_.hidden, m_.norm_eps, p, b_.hidden); });
        multiply<2>(l.gate_up, b_.hidden, index, 2, gate_up_,
                 [&](int64_t block, int64_t place, int count, vec (*sums)[TILE_ROWS]) {
                     for (int i = 0; i < count; i++)
                         b_.inner.put(place + i, block * LANES, silu(sums[0][i], sums[1][i]));
                 });
        multiply<1>(l.down, b_.inner, index, 3, down_, add_to_residual());
    }

    auto add_to_residual() {
        return [this](int64_t block, int64_t place, int count, vec (*sums)[TILE_ROWS]) {
            for (int i = 0; i < count; i++) {
                float* to = residual(place + i) + block * LANES;
                store(to, load(to) + sums[0][i]);
            }
        };
    }

    template <int UNIT, class Done>
    void multiply(const Packed& w, const Inputs<Form>& x, int64_t layer, int which, const FusedSites& sites, Done done) {
        if (s_.num_runs && s_.touched[layer * 4 + which]) {
            Adapters adapters{s_, layer, m_.num_layers, s_.max_rank, b_.h};
            shrink(team_, adapters, sites, x);
            team_.meet();
            product<UNIT>(team_, w, places_, x, &adapters, sites, b_.first_run, done);
        } else {
            product<UNIT>(team_, w, places_, x, nullptr, sites, b_.first_run, done);
        }
        team_.meet();
    }

    void rotate(const Layer& l) {
        int64_t low, high;
        while (team_.claim(s_.num_chunks, 1, s_.num_chunks, &low, &high))
            for (int64_t c = low; c < high; c++)
                for (int64_t t = 0; t < s_.chunks[c].num_tokens; t++) {
                    int64_t token = s_.chunks[c].first_token + t;
                    rotate_token<Form, E>(m_, l, b_.qkv + token * b_.qkv_width, s_.tables + s_.chunks[c].table_start,
                                          s_.chunks[c].position + t, b_.q + token * m_.num_heads * m_.head_dim);
                }
        team_.meet();
    }

    void attend(const Layer& l) {
        int64_t low, high, total = s_.num_chunks * m_.num_kv_heads;
        while (team_.claim(total, 1, 1, &low, &high)) {
            const Chunk& chunk = s_.chunks[low / m_.num_kv_heads];
            attend_chunk<Form, E>(m_, l, chunk, low % m_.num_kv_heads, s_.tables + chunk.table_start, b_.q, b_.place_of,
                                  b_.attended);
        }
        team_.meet();
    }

    const Model& m_;
    const Step& s_;
    Team& team_;
    const Places places_;
    Scratch scratch_;
    const Buffers<Form> b_;
    FusedSites qkv_, o_, gate_up_, down_;
    int thread_ = 0;
};

template <class Form, class E> void forward(const Model& m, const Step& s, int num_threads) {
    Team team;
#pragma omp parallel num_threads(num_threads)
    {
        team.join();
        Forward<Form, E>(m, s, team).run(omp_get_thread_num());
    }
}

// logits [rows, vocab] of rows of the residual stream. `scratch`: of the inputs of the head alone.
template <class Form>
void head(const Model& m, const float* residual, int64_t rows, float* logits, char* scratch, int num_threads) {
    Team team;
    Places places(rows);
    int64_t steps = steps_of<Form>(m.hidden);
    Inputs<Form> x{reinterpret_cast<lane_bits*>(scratch), nullptr, steps, 0, places.stride};
#pragma omp parallel num_threads(num_threads)
    {
        team.join();
        int64_t low, high;
        while (team.claim(rows, 1, rows, &low, &high))
            for (int64_t r = low; r < high; r++) norm_row(residual + r * m.hidden, m.final_norm, m.hidden, m.norm_eps, r, x);
        team.meet();
        FusedSites none{};
        product<1>(team, m.head, places, x, nullptr, none, nullptr,
                [&](int64_t block, int64_t place, int count, vec (*sums)[TILE_ROWS]) {
                    for (int i = 0; i < count; i++)
                        store_some(logits + (place + i) * m.vocab + block * LANES, sums[0][i], m.vocab - block * LANES);
                });
    }
}

}  // namespace motet
