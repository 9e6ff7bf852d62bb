// What a whole forward step reads and writes. The structs are mirrored by engine/kernels/native.py.
#pragma once

#include <cstdint>

#include "gemm.h"
#include "team.h"

namespace motet {

struct Packed {  // a linear layer's weights in blocks (gemm.h); bias [16 * blocks] or none
    const char* weight;
    const float* bias;
    int64_t steps, blocks;
};

struct Layer {
    const float *attention_norm, *mlp_norm, *query_norm, *key_norm;  // the last two: Qwen3's, or none
    Packed qkv, o, gate_up, down;  // qkv: each of q, k, v begins a block; gate_up: a block of each in turn
    void *keys, *values;           // the cache, in cells (paged.h)
    float key_scale, value_scale;
};

struct Model {
    int64_t hidden, inner, vocab, num_heads, num_kv_heads, head_dim, block_size, num_layers;
    float attention_scale, norm_eps;
    const void* embedding;  // [vocab, hidden], or none: the head's blocks are it
    const float* cos_sin;   // [positions, head_dim]
    const float* final_norm;
    Packed head;
    const Layer* layers;
};

struct Chunk { int32_t first_token, num_tokens, position, table_start; };  // consecutive tokens of one sequence

struct Run { int32_t slot, place, count; };  // places of one group of rows that share an adapter slot

struct PackedFactor {  // one (slot, layer, site). rank 0 = none
    const char* a;     // [rank, plain_width of the inputs]
    const char* b;     // blocks of B as a linear layer of `rank` inputs
    int32_t rank, is_bfloat16;
    float scale;
    int32_t reserved;
};

struct Step {
    const int32_t* tokens;
    int64_t num_tokens;
    const Chunk* chunks;
    int64_t num_chunks;
    const int32_t* tables;
    const int32_t* order;  // [num_tokens]: the token at each place of the products; rows of a slot side by side
    const Run* runs;       // places with an adapter; none in a step of the base alone
    int64_t num_runs, max_rank;   // max_rank: of the factors of any run
    const PackedFactor* factors;  // [slots, layers, SITES]
    const uint8_t* touched;       // [layers, 4]: whether any run has a factor in qkv, o, gate_up, down
    float* residual;              // out: [num_tokens, hidden]
    char* scratch;                // scratch_bytes(), aligned to 64
};

constexpr int SITES = 7;  // q, k, v, o, gate, up, down

// Rows of a step, spread evenly over groups of at most TILE_ROWS, which the products take whole.
struct Places {
    int64_t num_rows, groups, stride;
    explicit Places(int64_t rows)
        : num_rows(rows), groups((rows + TILE_ROWS - 1) / TILE_ROWS), stride(groups ? (rows + groups - 1) / groups : 0) {}
    int count(int64_t group) const {
        int64_t left = num_rows - group * stride;
        return int(left < stride ? (left > 0 ? left : 0) : stride);
    }
};

// The inputs of a product: in groups of rows, and row by row where adapters read them too.
template <class Form> struct Inputs {
    lane_bits* groups;
    typename Form::element* plain;  // [rows, plain_width], or none
    int64_t steps, plain_width, stride;

    // Elements from `element` (16, or the `n` that are left) of the row at `place`.
    void put(int64_t place, int64_t element, vec v, int64_t n = LANES) const {
        motet::put<Form>(groups + place / stride * steps * stride, stride, place % stride, element, v, n);
        if (plain) store_some(plain + place * plain_width + element, v, n);
    }
};

}  // namespace motet
