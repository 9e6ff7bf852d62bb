// What is computed row by row: norms, silu, rotation, and keys and values into their cells.
#pragma once

#include "lanes.h"

namespace motet {

template <class T>
void add_norm_row(float* residual, const T* delta, const T* weight, T* out, int64_t width, float eps) {
    vec squares{};
    for (int64_t i = 0; i < width; i += LANES) {
        vec x = load_some(residual + i, width - i);
        if (delta) {
            x += load_some(delta + i, width - i);
            store_some(residual + i, x, width - i);
        }
        squares += x * x;
    }
    float scale = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
    for (int64_t i = 0; i < width; i += LANES)
        store_some(out + i, load_some(residual + i, width - i) * scale * load_some(weight + i, width - i), width - i);
}

template <class T>
void silu_row(const T* gate_up, T* out, int64_t width) {
    for (int64_t i = 0; i < width; i += LANES) {
        int64_t n = width - i;
        vec gate = load_some(gate_up + i, n), up = load_some(gate_up + width + i, n);
        vec magnitude = gate < vec{} ? gate : -gate;
        vec e = exp_nonpositive(magnitude);
        vec sigmoid = (gate < vec{} ? e : splat(1.0f)) / (e + 1.0f);
        store_some(out + i, gate * sigmoid * up, n);
    }
}

struct Shape {  // mirrored by engine/kernels/cpu.py
    int64_t num_heads, num_kv_heads, head_dim, padded_dim, block_size;
    float scale, norm_eps;
};

// Where position `p` of a sequence lies: the 16-position cell of its block, for one kv head.
inline int64_t cell_of(const Shape& s, const int32_t* table, int64_t position) {
    int64_t cells = s.block_size / LANES;
    return int64_t(table[position / s.block_size]) * cells + (position % s.block_size) / LANES;
}

template <class T>
void rotate_head(const T* in, const T* norm, const float* cos_sin, const Shape& s, float* out) {
    int64_t half = s.head_dim / 2;
    float scale = 1.0f;
    if (norm) {
        vec squares{};
        for (int64_t i = 0; i < s.head_dim; i += LANES) {
            vec x = load_some(in + i, s.head_dim - i);
            squares += x * x;
        }
        scale = 1.0f / std::sqrt(sum(squares) / float(s.head_dim) + s.norm_eps);
    }
    for (int64_t i = 0; i < half; i += LANES) {
        int64_t n = half - i;
        vec a = load_some(in + i, n), b = load_some(in + half + i, n);
        if (norm) {
            a = a * scale * load_some(norm + i, n);
            b = b * scale * load_some(norm + half + i, n);
        }
        vec c = load_some(cos_sin + i, n), d = load_some(cos_sin + half + i, n);
        store_some(out + i, a * c - b * d, n);
        store_some(out + half + i, b * c + a * d, n);
    }
}

template <class T>
void rotate_and_store(const Shape& s, int64_t token, const T* qkv, const T* q_norm, const T* k_norm,
                      const float* cos_sin, const int32_t* table, int64_t position, float* q_out, T* k_cache, T* v_cache) {
    int64_t width = (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
    const T* row = qkv + token * width;
    const float* angles = cos_sin + position * s.head_dim;
    for (int64_t h = 0; h < s.num_heads; h++)
        rotate_head(row + h * s.head_dim, q_norm, angles, s, q_out + (token * s.num_heads + h) * s.head_dim);
    int64_t cell = cell_of(s, table, position), lane = position % LANES;
    for (int64_t h = 0; h < s.num_kv_heads; h++) {
        float k[MAX_HEAD_DIM];
        rotate_head(row + (s.num_heads + h) * s.head_dim, k_norm, angles, s, k);
        T* k_cell = k_cache + (cell * s.num_kv_heads + h) * s.padded_dim * LANES;
        for (int64_t d = 0; d < s.head_dim; d++) from_float(k_cell + d * LANES + lane, k[d]);
        const T* v = row + (s.num_heads + s.num_kv_heads + h) * s.head_dim;
        T* v_cell = v_cache + ((cell * s.num_kv_heads + h) * LANES + lane) * s.padded_dim;
        std::memcpy(v_cell, v, s.head_dim * sizeof(T));
    }
}

}  // namespace motet
