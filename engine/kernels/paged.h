// Causal attention over paged blocks as products with packed blocks, for the whole-step path.
//
// A cell holds 16 positions of one kv head as two linear layers in blocks (gemm.h): the keys with 16 outputs (the
// positions) and head_dim inputs, the values with head_dim outputs and 16 inputs. The softmax runs over tiles of 64
// positions at absolute positions, so a query's bits depend on its own position alone.
#pragma once

#include <type_traits>

#include "rowwise.h"
#include "step.h"

namespace motet {

constexpr int TILE_CELLS = 4;

struct float8 { uint8_t bits; };  // e4m3fn: no infinities, 448 the largest

inline void from_float(float8* p, float x) {  // to nearest even, saturating; what is not finite becomes NaN
    uint32_t u;
    std::memcpy(&u, &x, 4);
    uint8_t sign = uint8_t((u >> 24) & 0x80);
    u &= 0x7fffffffu;
    if (u >= 0x7f800000u) { p->bits = sign | 0x7f; return; }
    if (u > 0x43e00000u) u = 0x43e00000u;  // 448
    if (u < 0x3c800000u) {  // below 2^-6 steps are of 2^-9
        float tiny;
        std::memcpy(&tiny, &u, 4);
        p->bits = sign | uint8_t(std::nearbyint(tiny * 512.0f));
        return;
    }
    u += 0x7ffffu + ((u >> 20) & 1u);
    p->bits = sign | uint8_t((u >> 20) - (120u << 3));
}
inline vec load(const float8* p) {
    typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
    uvec u = __builtin_convertvector(*reinterpret_cast<const bytes*>(p), uvec);
    uvec magnitude = u & 0x7fu;
    vec value = (vec)(magnitude << 20) * 0x1p120f;
    ivec nan = (magnitude == 0x7fu);
    value = nan ? splat(NAN) : value;
    return (vec)((uvec)value | ((u & 0x80u) << 24));
}

template <class Form, class E> struct Cells {
    static constexpr int64_t PER = Form::PER_STEP;
    const Model& model;
    int64_t padded_dim, size;  // elements of a cell

    explicit Cells(const Model& m) : model(m), padded_dim(round_up(m.head_dim, LANES)), size(padded_dim * LANES) {}

    int64_t of(const int32_t* table, int64_t position, int64_t kv_head) const {
        int64_t cells = model.block_size / LANES;
        int64_t cell = int64_t(table[position / model.block_size]) * cells + position % model.block_size / LANES;
        return (cell * model.num_kv_heads + kv_head) * size;
    }
    void put(E* keys, E* values, int64_t lane, const float* key, const float* value, float key_scale,
             float value_scale) const {
        for (int64_t d = 0; d < model.head_dim; d++) {
            from_float(keys + (d / PER * LANES + lane) * PER + d % PER, key_scale == 1.0f ? key[d] : key[d] / key_scale);
            from_float(values + ((d / LANES * STEPS_A_BLOCK<Form> + lane / PER) * LANES + d % LANES) * PER + lane % PER,
                       value_scale == 1.0f ? value[d] : value[d] / value_scale);
        }
    }
};

// The cell as the products take it: itself, or widened into `space`.
template <class Form> inline const char* as_blocks(const typename Form::element* cell, int64_t, typename Form::element*) {
    return reinterpret_cast<const char*>(cell);
}
template <class Form> inline const char* as_blocks(const float8* cell, int64_t size, typename Form::element* space) {
    for (int64_t i = 0; i < size; i += LANES) store(space + i, load(cell + i));
    return reinterpret_cast<const char*>(space);
}

// Norms (where the model does) and rotates q and k of one token; q goes to `q_out`, k and v to their cells.
template <class Form, class E>
void rotate_token(const Model& m, const Layer& layer, const float* qkv, const int32_t* table, int64_t position,
                  typename Form::element* q_out) {
    Shape shape{m.num_heads, m.num_kv_heads, m.head_dim, 0, m.block_size, m.attention_scale, m.norm_eps};
    const float* angles = m.cos_sin + position * m.head_dim;
    float turned[MAX_HEAD_DIM];
    for (int64_t h = 0; h < m.num_heads; h++) {
        rotate_head(qkv + h * m.head_dim, layer.query_norm, angles, shape, turned);
        for (int64_t d = 0; d < m.head_dim; d += LANES)
            store_some(q_out + h * m.head_dim + d, load_some(turned + d, m.head_dim - d), m.head_dim - d);
    }
    const float* k = qkv + round_up(m.num_heads * m.head_dim, LANES);
    const float* v = k + round_up(m.num_kv_heads * m.head_dim, LANES);
    Cells<Form, E> cells(m);
    for (int64_t h = 0; h < m.num_kv_heads; h++) {
        rotate_head(k + h * m.head_dim, layer.key_norm, angles, shape, turned);
        int64_t at = cells.of(table, position, h);
        cells.put((E*)layer.keys + at, (E*)layer.values + at, position % LANES, turned, v + h * m.head_dim,
                  layer.key_scale, layer.value_scale);
    }
}

// Rows of queries and of their weights lie one after the other, so that a row's 16 numbers are stored as they come.
constexpr int64_t ROW_STEPS = MAX_HEAD_DIM + LANES;
constexpr int64_t TILE_POSITIONS = TILE_CELLS * LANES;

// sums[b][r] += row r times block b: `count` steps of B blocks at once, since few rows alone would wait for their sums.
template <class Form, int R, int B, int64_t ROW>
inline void multiply_blocks(vec (*sums)[TILE_ROWS], const char* const* blocks, const lane_bits* rows, int64_t count) {
    vec held[B][R];
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) held[b][r] = sums[b][r];
    for (int64_t s = 0; s < count; s++) {
#pragma GCC unroll 4
        for (int b = 0; b < B; b++) {
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                held[b][r] = Form::multiply(held[b][r], blocks[b] + s * STEP_BYTES, rows[r * ROW + s]);
        }
    }
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) sums[b][r] = held[b][r];
}

// scores[cell][query] of `cells` cells of keys.
template <class Form, int R, int AT_ONCE>
void score(vec (*scores)[TILE_ROWS], const char* const* keys, int cells, const lane_bits* q, int64_t steps) {
    for (int c = 0; c < cells; c++)
        for (int r = 0; r < R; r++) scores[c][r] = vec{};
    int c = 0;
    for (; c + AT_ONCE <= cells; c += AT_ONCE)
        multiply_blocks<Form, R, AT_ONCE, ROW_STEPS>(scores + c, keys + c, q, steps);
    for (; c < cells; c++) multiply_blocks<Form, R, 1, ROW_STEPS>(scores + c, keys + c, q, steps);
}

// sums[block of head_dim][query] += the weights times `cells` cells of values, the last up to `last_steps`; B blocks at once.
template <class Form, int R, int B>
inline void weigh_blocks(vec (*sums)[TILE_ROWS], const char* const* values, int64_t offset, int cells, const lane_bits* weights,
                         int64_t last_steps) {
    constexpr int64_t steps = STEPS_A_BLOCK<Form>;
    vec held[B][R];
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) held[b][r] = sums[b][r];
    for (int c = 0; c < cells; c++) {
        const char* cell = values[c] + offset;
        int64_t count = c + 1 < cells ? steps : last_steps;
        for (int64_t s = 0; s < count; s++, weights++, cell += STEP_BYTES) {
#pragma GCC unroll 4
            for (int b = 0; b < B; b++) {
#pragma GCC unroll 16
                for (int r = 0; r < R; r++)
                    held[b][r] = Form::multiply(held[b][r], cell + b * steps * STEP_BYTES, weights[r * TILE_POSITIONS]);
            }
        }
    }
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) sums[b][r] = held[b][r];
}

template <class Form, int R, int AT_ONCE>
void weigh(vec (*sums)[TILE_ROWS], const char* const* values, int cells, const lane_bits* weights, int64_t last_steps,
           int64_t dim_blocks) {
    constexpr int64_t block_bytes = STEPS_A_BLOCK<Form> * STEP_BYTES;
    int64_t d = 0;
    for (; d + AT_ONCE <= dim_blocks; d += AT_ONCE)
        weigh_blocks<Form, R, AT_ONCE>(sums + d, values, d * block_bytes, cells, weights, last_steps);
    for (; d < dim_blocks; d++) weigh_blocks<Form, R, 1>(sums + d, values, d * block_bytes, cells, weights, last_steps);
}

// At most TILE_ROWS queries of one kv head whose softmax advances together.
template <class Form> struct Queries {
    int count;
    int64_t last;  // the highest position
    int64_t positions[TILE_ROWS];
    float top[TILE_ROWS];  // powers of two
    vec total[TILE_ROWS];  // by lane
    lane_bits q[ROW_STEPS * TILE_ROWS];
    vec sums[MAX_HEAD_DIM / LANES][TILE_ROWS];

    void take(int i, int64_t position, const typename Form::element* from, int64_t head_dim) {
        positions[i] = last = position;
        top[i] = -INFINITY;
        total[i] = vec{};
        for (int64_t b = 0; b < blocks_of(head_dim); b++) {
            sums[b][i] = vec{};
            Form::cut(load_some(from + b * LANES, head_dim - b * LANES), q + i * ROW_STEPS + b * STEPS_A_BLOCK<Form>);
        }
    }

    // Takes in positions start .. start + 63, as far as they go. `keys`, `values`: the tile's cells, as blocks.
    // `scale`: of the scores, in powers of two.
    void visit(int64_t head_dim, int64_t start, const char* const* keys, const char* const* values, float scale) {
        switch (count) {
#define MOTET_QUERIES(N, AT_ONCE) \
    case N: visit_all<N, AT_ONCE>(head_dim, start, keys, values, scale); break;
            MOTET_QUERIES(1, 4) MOTET_QUERIES(2, 4) MOTET_QUERIES(3, 4) MOTET_QUERIES(4, 4) MOTET_QUERIES(5, 2)
            MOTET_QUERIES(6, 2) MOTET_QUERIES(7, 2) MOTET_QUERIES(8, 2) MOTET_QUERIES(9, 1) MOTET_QUERIES(10, 1)
            MOTET_QUERIES(11, 1) MOTET_QUERIES(12, 1) MOTET_QUERIES(13, 1) MOTET_QUERIES(14, 1) MOTET_QUERIES(15, 1)
            MOTET_QUERIES(16, 1)
#undef MOTET_QUERIES
            default: __builtin_unreachable();
        }
    }

  private:
    template <int N, int AT_ONCE>
    void visit_all(int64_t head_dim, int64_t start, const char* const* keys, const char* const* values, float scale) {
        constexpr int64_t PER_STEP = Form::PER_STEP;
        int64_t dim_blocks = blocks_of(head_dim), left = last - start + 1;
        int cells = int(left < TILE_POSITIONS ? blocks_of(left) : TILE_CELLS);
        vec scores[TILE_CELLS][TILE_ROWS];
        score<Form, N, AT_ONCE>(scores, keys, cells, q, dim_blocks * STEPS_A_BLOCK<Form>);
        lane_bits weights[TILE_POSITIONS * TILE_ROWS] __attribute__((aligned(64)));
        for (int i = 0; i < N; i++) soften(dim_blocks, i, start, cells, scores, scale, weights + i * TILE_POSITIONS);
        int64_t in_last = left - (cells - 1) * LANES < LANES ? left - (cells - 1) * LANES : LANES;
        weigh<Form, N, AT_ONCE>(sums, values, cells, weights, in_last / PER_STEP, dim_blocks);
        if (in_last % PER_STEP) {  // the odd half of this step is not written yet: it may hold anything
            int64_t at = in_last / PER_STEP;
            for (int64_t d = 0; d < dim_blocks; d++) {
                uint32_t step[LANES];
                std::memcpy(step, values[cells - 1] + (d * STEPS_A_BLOCK<Form> + at) * STEP_BYTES, sizeof step);
                for (uint32_t& pair : step) pair &= 0xffffu;
                const char* block = (const char*)step;
                multiply_blocks<Form, N, 1, TILE_POSITIONS>(sums + d, &block, weights + (cells - 1) * STEPS_A_BLOCK<Form> + at, 1);
            }
        }
    }

    void soften(int64_t dim_blocks, int i, int64_t start, int cells, vec (*scores)[TILE_ROWS], float scale, lane_bits* weights) {
        const ivec lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        vec score[TILE_CELLS], best = splat(-INFINITY);
        for (int c = 0; c < cells; c++) {
            int64_t seen = positions[i] - start - c * LANES;
            score[c] = scores[c][i];
            if (seen < LANES - 1) score[c] = lanes <= (ivec{} + int32_t(seen)) ? score[c] : splat(-INFINITY);
            best = best > score[c] ? best : score[c];  // a NaN is lost here, but not in its weight below
        }
        float peak = top[i];
        if (any_above(best * scale, peak)) {  // seldom, once some tiles were seen
            float found = highest(best) * scale;
            peak = found > peak ? found : peak;
        }
        if (peak == -INFINITY) {  // nothing is seen in this tile, or nothing that is a number
            bool any = positions[i] >= start;
            for (int c = 0; c < cells; c++) Form::cut(any ? splat(NAN) : vec{}, weights + c * STEPS_A_BLOCK<Form>);
            if (any) total[i] = splat(NAN);
            return;
        }
        if (peak != top[i]) {
            float shrink = std::exp2(top[i] - peak);
            total[i] *= shrink;
            for (int64_t b = 0; b < dim_blocks; b++) sums[b][i] *= shrink;
            top[i] = peak;
        }
        for (int c = 0; c < cells; c++) {
            vec p = exp2_nonpositive(score[c] * scale - peak);
            total[i] += p;
            Form::cut(p, weights + c * STEPS_A_BLOCK<Form>);
        }
    }
};

// All queries of one chunk and kv head (at most MAX_GROUPED). Their results go to the inputs of the next product.
template <class Form, class E>
void attend_chunk(const Model& m, const Layer& layer, const Chunk& chunk, int64_t kv_head, const int32_t* table,
                  const typename Form::element* q, const int32_t* place_of, const Inputs<Form>& out) {
    typedef typename Form::element T;
    Queries<Form> parts[MAX_GROUPED / TILE_ROWS];
    int64_t group = m.num_heads / m.num_kv_heads, count = chunk.num_tokens * group;
    int num_parts = int((count + TILE_ROWS - 1) / TILE_ROWS);
    int64_t share = (count + num_parts - 1) / num_parts;
    for (int p = 0; p < num_parts; p++) {
        Queries<Form>& part = parts[p];
        part.count = int(count - p * share < share ? count - p * share : share);
        for (int i = 0; i < part.count; i++) {
            int64_t token = chunk.first_token + (p * share + i) / group, head = kv_head * group + (p * share + i) % group;
            part.take(i, chunk.position + (p * share + i) / group, q + (token * m.num_heads + head) * m.head_dim, m.head_dim);
        }
    }
    Cells<Form, E> cells(m);
    int64_t last = chunk.position + chunk.num_tokens - 1;
    float scale = m.attention_scale * layer.key_scale * 1.44269504f;
    constexpr bool widened = !std::is_same<T, E>::value;
    T space[widened ? 2 * TILE_CELLS * MAX_HEAD_DIM * LANES : 1] __attribute__((aligned(64)));
    for (int64_t start = 0; start <= last; start += TILE_POSITIONS) {
        const char *keys[TILE_CELLS], *values[TILE_CELLS];
        for (int c = 0; c < TILE_CELLS && start + c * LANES <= last; c++) {
            int64_t at = cells.of(table, start + c * LANES, kv_head);
            keys[c] = as_blocks<Form>((const E*)layer.keys + at, cells.size, space + (widened ? 2 * c * cells.size : 0));
            values[c] =
                as_blocks<Form>((const E*)layer.values + at, cells.size, space + (widened ? (2 * c + 1) * cells.size : 0));
        }
        for (int64_t next = start + TILE_POSITIONS; next <= last && next < start + 2 * TILE_POSITIONS; next += LANES) {
            int64_t at = cells.of(table, next, kv_head);
            fetch((const E*)layer.keys + at, cells.size * sizeof(E));
            fetch((const E*)layer.values + at, cells.size * sizeof(E));
        }
        for (int p = 0; p < num_parts; p++)
            if (start <= parts[p].last) parts[p].visit(m.head_dim, start, keys, values, scale);
    }
    for (int p = 0; p < num_parts; p++)
        for (int i = 0; i < parts[p].count; i++) {
            int64_t token = chunk.first_token + (p * share + i) / group, head = kv_head * group + (p * share + i) % group;
            float weight = layer.value_scale / sum(parts[p].total[i]);
            for (int64_t d = 0; d < m.head_dim; d += LANES)
                out.put(place_of[token], head * m.head_dim + d, parts[p].sums[d / LANES][i] * weight,
                        m.head_dim - d);
        }
}

}  // namespace motet
