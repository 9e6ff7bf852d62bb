// Products of a few rows with packed weights, one block of 16 outputs at a time.
//
// Weights lie in blocks, [outputs / 16][steps][16 lanes]; a step is one float32 input or two bfloat16 inputs, so it has
// 4 bytes a lane and 64 in all. Rows lie in groups, [steps][rows of the group], 4 bytes a step and row.
// Every output is one chain of sums over the steps in order, however many rows share the block: its bits depend on its
// own row alone (docs/decisions/0004, 0010).
#pragma once

#include "lanes.h"
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace motet {

constexpr int TILE_ROWS = 16;           // 16 sums and one weight: a chain of 16 hides the latency of each
constexpr int64_t STEP_BYTES = 64;
constexpr int64_t AHEAD_BYTES = 4096;   // how far weights are fetched before they are used
constexpr int64_t PANEL_BYTES = 1 << 18;  // weights that stay in the second-level cache while all rows pass
typedef uint32_t lane_bits;             // one row's part of a step: a float, or two bfloat16

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
inline int64_t plain_width(int64_t inputs) { return round_up(inputs, 2 * LANES); }  // of inputs row by row
inline int64_t blocks_of(int64_t outputs) { return (outputs + LANES - 1) / LANES; }

struct Float32Form {
    typedef float element;
    static constexpr int64_t PER_STEP = 1;
    static inline vec multiply(vec sum, const char* weight, lane_bits row) {
        float x;
        std::memcpy(&x, &row, 4);
        return sum + *reinterpret_cast<const loose_vec*>(weight) * x;
    }
    static inline void cut(vec v, lane_bits* steps) { std::memcpy(steps, &v, sizeof v); }  // 16 elements as steps
};

#ifdef __AVX512BF16__
struct Bfloat16Form {
    typedef bf16 element;
    static constexpr int64_t PER_STEP = 2;
    static inline vec multiply(vec sum, const char* weight, lane_bits row) {
        __m512i pairs = _mm512_loadu_si512(weight);
        return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pairs, (__m512bh)_mm512_set1_epi32(int(row)));
    }
    static inline void cut(vec v, lane_bits* steps) {
        __m256bh halves = _mm512_cvtneps_pbh((__m512)v);
        std::memcpy(steps, &halves, sizeof halves);
    }
};
#endif

// Brings memory into the second-level cache.
inline void fetch(const void* from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char*)from + i, 0, 2);
}

template <class Form> constexpr int64_t STEPS_A_BLOCK = LANES / Form::PER_STEP;
// Inputs are padded with zeros to whole vectors.
template <class Form> inline int64_t steps_of(int64_t inputs) { return round_up(inputs, LANES) / Form::PER_STEP; }

// sums[row] += row times block. `stride`: rows of the group, of which R are multiplied.
template <class Form, int R, int64_t AHEAD>
inline void multiply_rows(vec* sums, const char* block, const lane_bits* rows, int64_t stride, int64_t steps) {
    vec held[R];
    for (int r = 0; r < R; r++) held[r] = sums[r];
    for (int64_t s = 0; s < steps; s++) {
        if (AHEAD) __builtin_prefetch(block + AHEAD);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) held[r] = Form::multiply(held[r], block, rows[r]);
        block += STEP_BYTES;
        rows += stride;
    }
    for (int r = 0; r < R; r++) sums[r] = held[r];
}

// The same for `count` rows, 1 to TILE_ROWS.
template <class Form, int64_t AHEAD = AHEAD_BYTES>
__attribute__((noinline)) void multiply(int count, vec* sums, const char* block, const lane_bits* rows, int64_t stride,
                                        int64_t steps) {
#define MOTET_ROWS(N) \
    case N: multiply_rows<Form, N, AHEAD>(sums, block, rows, stride, steps); break;
    switch (count) {
        MOTET_ROWS(1) MOTET_ROWS(2) MOTET_ROWS(3) MOTET_ROWS(4) MOTET_ROWS(5) MOTET_ROWS(6) MOTET_ROWS(7) MOTET_ROWS(8)
        MOTET_ROWS(9) MOTET_ROWS(10) MOTET_ROWS(11) MOTET_ROWS(12) MOTET_ROWS(13) MOTET_ROWS(14) MOTET_ROWS(15)
        MOTET_ROWS(16)
        default: __builtin_unreachable();
    }
#undef MOTET_ROWS
}

// Puts 16 elements (from `element`, a multiple of PER_STEP) of row `r` into its group; `n` of them at most.
template <class Form>
inline void put(lane_bits* group, int64_t stride, int64_t r, int64_t element, vec v, int64_t n = LANES) {
    lane_bits steps[LANES];
    Form::cut(v, steps);
    lane_bits* to = group + element / Form::PER_STEP * stride + r;
    int64_t count = n >= LANES ? STEPS_A_BLOCK<Form> : n / Form::PER_STEP;
    for (int64_t i = 0; i < count; i++) to[i * stride] = steps[i];
}

// ------------------------------------------------------------------------------------------------------- packing

// Block `block` of `weight` [outputs, inputs].
template <class T, int PER_STEP>
void pack_block(const T* weight, int64_t outputs, int64_t inputs, int64_t block, char* packed) {
    T* to = reinterpret_cast<T*>(packed);
    std::memset(packed, 0, round_up(inputs, LANES) * LANES * sizeof(T));
    for (int64_t lane = 0; lane < LANES && block * LANES + lane < outputs; lane++) {
        const T* from = weight + (block * LANES + lane) * inputs;
        for (int64_t i = 0; i < inputs; i++) to[(i / PER_STEP * LANES + lane) * PER_STEP + i % PER_STEP] = from[i];
    }
}

// A [rank, in] with rows of plain_width(in); B transposed [rank, out] in blocks of exactly `rank` inputs, to whole steps.
template <class T, int PER_STEP>
void pack_factor(const T* a, const T* b, int64_t rank, int64_t in, int64_t out, T* packed_a, T* packed_b) {
    int64_t width = plain_width(in), steps = (rank + PER_STEP - 1) / PER_STEP;
    for (int64_t r = 0; r < rank; r++) {
        std::memcpy(packed_a + r * width, a + r * in, in * sizeof(T));
        std::memset(packed_a + r * width + in, 0, (width - in) * sizeof(T));
    }
    std::memset(packed_b, 0, blocks_of(out) * steps * STEP_BYTES);
    for (int64_t block = 0; block < blocks_of(out); block++)
        for (int64_t r = 0; r < rank; r++) {
            const T* from = b + r * out + block * LANES;
            T* to = packed_b + (block * steps + r / PER_STEP) * LANES * PER_STEP + r % PER_STEP;
            int64_t lanes = out - block * LANES < LANES ? out - block * LANES : LANES;
            for (int64_t lane = 0; lane < lanes; lane++) to[lane * PER_STEP] = from[lane];
        }
}

// The 16 inputs from `input` of one output, out of its block.
template <class Form> inline vec unpack(const char* packed, int64_t inputs, int64_t output, int64_t input) {
    typedef typename Form::element T;
    const T* block = reinterpret_cast<const T*>(packed + output / LANES * steps_of<Form>(inputs) * STEP_BYTES);
    float found[LANES];
    for (int64_t i = 0; i < LANES; i++) {
        int64_t at = input + i;
        found[i] = to_float(block[(at / Form::PER_STEP * LANES + output % LANES) * Form::PER_STEP + at % Form::PER_STEP]);
    }
    return load(found);
}

}  // namespace motet
