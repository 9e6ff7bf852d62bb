// The CPU kernels of one replica: plain C, called through ctypes with the addresses of contiguous tensors.
//
// Every result is computed in an order of sums that depends on its own row alone (docs/decisions/0004): lanes are
// 16 wide whatever the machine, sums run over tiles at absolute positions, and grouping rows only shares loads.
// A "dtype" argument is 0 for float32 and 1 for bfloat16.

#include <omp.h>

#include "attention.h"
#include "forward.h"
#include "lora.h"
#include "rowwise.h"

using namespace motet;

// ----------------------------------------------------------------------------------------------- the C interface

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

// ------------------------------------------------------------------------- whole steps (engine/kernels/native.py)

// Bit `dtype` is set where whole steps in that dtype are as fast as this processor is.
int motet_step_dtypes(void) {
    int found = 0;
#ifdef __AVX512F__
    found |= 1;
#endif
#ifdef __AVX512BF16__
    found |= 2;
#endif
    return found;
}

int64_t motet_packed_bytes(int dtype, int64_t outputs, int64_t inputs) {
    return blocks_of(outputs) * round_up(inputs, LANES) * LANES * (dtype ? 2 : 4);
}

// `weight` [outputs, inputs] into every `every`th block of `packed`, from its start.
void motet_pack(int dtype, const void* weight, int64_t outputs, int64_t inputs, char* packed, int64_t every, int num_threads) {
    int64_t size = round_up(inputs, LANES) * LANES * (dtype ? 2 : 4);
#pragma omp parallel for num_threads(num_threads)
    for (int64_t block = 0; block < blocks_of(outputs); block++) {
        if (dtype) pack_block<bf16, 2>((const bf16*)weight, outputs, inputs, block, packed + block * every * size);
        else pack_block<float, 1>((const float*)weight, outputs, inputs, block, packed + block * every * size);
    }
}

// A [rank, in] into rows of whole vectors; B transposed [rank, out] into blocks. Both dtypes alike.
void motet_pack_factor(int dtype, const void* a, const void* b, int64_t rank, int64_t in, int64_t out, void* packed_a,
                       void* packed_b) {
    if (dtype) pack_factor<bf16, 2>((const bf16*)a, (const bf16*)b, rank, in, out, (bf16*)packed_a, (bf16*)packed_b);
    else pack_factor<float, 1>((const float*)a, (const float*)b, rank, in, out, (float*)packed_a, (float*)packed_b);
}

// Bytes that a step of so many rows needs; max_rank 0: the base alone.
int64_t motet_step_scratch(const Model* model, int64_t rows, int64_t max_rank) {
    return step_scratch(*model, rows, max_rank);
}

// `cache_dtype`: 2 for float8 e4m3fn, otherwise the cache is in `dtype`.
void motet_step(int dtype, int cache_dtype, const Model* model, const Step* step, int num_threads) {
    bool narrow = cache_dtype == 2;
#ifdef __AVX512BF16__
    if (dtype && narrow) forward<Bfloat16Form, float8>(*model, *step, num_threads);
    else if (dtype) forward<Bfloat16Form, bf16>(*model, *step, num_threads);
#endif
    if (!dtype && narrow) forward<Float32Form, float8>(*model, *step, num_threads);
    else if (!dtype) forward<Float32Form, float>(*model, *step, num_threads);
}

// logits [rows, vocab] of `residual` [rows, hidden]. `scratch`: motet_step_scratch of as many rows is enough.
void motet_head(int dtype, const Model* model, const float* residual, int64_t rows, float* logits, char* scratch,
                int num_threads) {
#ifdef __AVX512BF16__
    if (dtype) head<Bfloat16Form>(*model, residual, rows, logits, scratch, num_threads);
#endif
    if (!dtype) head<Float32Form>(*model, residual, rows, logits, scratch, num_threads);
}

// The numbers of a float8 cache, for their test: `codes` of `numbers`, and the numbers of these codes again.
void motet_float8(const float* numbers, uint8_t* codes, float* again, int64_t count) {
    for (int64_t i = 0; i < count; i++) from_float(reinterpret_cast<float8*>(codes) + i, numbers[i]);
    for (int64_t i = 0; i + LANES <= count; i += LANES) store(again + i, load(reinterpret_cast<float8*>(codes) + i));
}

int motet_max_grouped(void) { return MAX_GROUPED; }
int motet_max_head_dim(void) { return MAX_HEAD_DIM; }
}
