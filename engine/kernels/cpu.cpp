// The CPU kernels of one replica: plain C, called through ctypes with the addresses of contiguous tensors.
//
// Every result is computed in an order of sums that depends on its own row alone (docs/decisions/0004): lanes are
// 16 wide whatever the machine, sums run over tiles at absolute positions, and grouping rows only shares loads.
// A "dtype" argument is 0 for float32 and 1 for bfloat16.

#include <omp.h>

#include "attention.h"
#include "lora.h"
#include "rowwise.h"

using namespace motet;

// ----------------------------------------------------------------------------------------------- the C interface

struct Chunk { int32_t first_token, num_tokens, position, table_start; };  // consecutive tokens of one sequence

extern "C" {

// residual += delta (if any); out = residual / rms(residual) * weight. residual is float32 [rows, width].
void motet_add_norm(int dtype, float* residual, const void* delta, const void* weight, void* out, int64_t rows,
                    int64_t width, float eps, int num_threads) {
#pragma omp parallel for num_threads(num_threads) if (rows * width >= MANY)
    for (int64_t r = 0; r < rows; r++) {
        if (dtype)
            add_norm_row(residual + r * width, delta ? (const bf16*)delta + r * width : nullptr, (const bf16*)weight,
                         (bf16*)out + r * width, width, eps);
        else
            add_norm_row(residual + r * width, delta ? (const float*)delta + r * width : nullptr, (const float*)weight,
                         (float*)out + r * width, width, eps);
    }
}

// out[r] = silu(gate) * up, of gate_up [rows, 2 * width].
void motet_silu_mul(int dtype, const void* gate_up, void* out, int64_t rows, int64_t width, int num_threads) {
#pragma omp parallel for num_threads(num_threads) if (rows * width >= MANY)
    for (int64_t r = 0; r < rows; r++) {
        if (dtype) silu_row((const bf16*)gate_up + r * 2 * width, (bf16*)out + r * width, width);
        else silu_row((const float*)gate_up + r * 2 * width, (float*)out + r * width, width);
    }
}

// Norms (where given) and rotates q and k of qkv [tokens, (heads + 2 kv) * dim]; q goes to q_out (float32), k and v to
// the cache cells of each token's position.
void motet_rotate_and_store(int dtype, const Shape* shape, const Chunk* chunks, int64_t num_chunks, const int32_t* tables,
                            const void* qkv, const void* q_norm, const void* k_norm, const float* cos_sin, float* q_out,
                            void* k_cache, void* v_cache, int num_threads) {
    int64_t tokens = num_chunks ? chunks[num_chunks - 1].first_token + chunks[num_chunks - 1].num_tokens : 0;
#pragma omp parallel for num_threads(num_threads) if (tokens * shape->num_heads * shape->head_dim >= MANY)
    for (int64_t c = 0; c < num_chunks; c++)
        for (int64_t t = 0; t < chunks[c].num_tokens; t++) {
            const int32_t* table = tables + chunks[c].table_start;
            int64_t token = chunks[c].first_token + t, position = chunks[c].position + t;
            if (dtype)
                rotate_and_store(*shape, token, (const bf16*)qkv, (const bf16*)q_norm, (const bf16*)k_norm, cos_sin, table,
                                 position, q_out, (bf16*)k_cache, (bf16*)v_cache);
            else
                rotate_and_store(*shape, token, (const float*)qkv, (const float*)q_norm, (const float*)k_norm, cos_sin,
                                 table, position, q_out, (float*)k_cache, (float*)v_cache);
        }
}

// Causal attention of every chunk over the cache; out [tokens, heads * dim]. A chunk times its head group is at most
// motet_max_grouped() queries.
void motet_attend(int dtype, const Shape* shape, const Chunk* chunks, int64_t num_chunks, const int32_t* tables,
                  const float* q, const void* k_cache, const void* v_cache, void* out, int num_threads) {
    int64_t tasks = num_chunks * shape->num_kv_heads, work = 0;
    for (int64_t c = 0; c < num_chunks; c++)
        work += int64_t(chunks[c].num_tokens) * (chunks[c].position + chunks[c].num_tokens) * shape->num_heads;
#pragma omp parallel for num_threads(num_threads) schedule(dynamic, 1) if (work * 4 >= MANY)
    for (int64_t i = 0; i < tasks; i++) {
        const Chunk& c = chunks[i / shape->num_kv_heads];
        int64_t head = i % shape->num_kv_heads;
        const int32_t* table = tables + c.table_start;
        if (dtype)
            attend(*shape, c.first_token, c.num_tokens, c.position, head, table, q, (const bf16*)k_cache,
                   (const bf16*)v_cache, (bf16*)out);
        else
            attend(*shape, c.first_token, c.num_tokens, c.position, head, table, q, (const float*)k_cache,
                   (const float*)v_cache, (float*)out);
    }
}

// y[row, column : column + out] += scale * B(A x[row]) for every site and every row of the segments.
void motet_lora(int dtype, const LoraRows* rows, const Site* sites, int64_t num_sites, const void* x, void* y,
                int64_t y_stride, int num_threads) {
    if (dtype) lora_sites(*rows, sites, num_sites, (const bf16*)x, (bf16*)y, y_stride, num_threads);
    else lora_sites(*rows, sites, num_sites, (const float*)x, (float*)y, y_stride, num_threads);
}

int motet_max_grouped(void) { return MAX_GROUPED; }
int motet_max_head_dim(void) { return MAX_HEAD_DIM; }
}
