// The CPU kernels of one replica: plain C, called through ctypes with the addresses of contiguous tensors.
//
// Every result is computed in an order of sums that depends on its own row alone (docs/decisions/0004): lanes are
// 16 wide whatever the machine, sums run over tiles at absolute positions, and grouping rows only shares loads.
// A "dtype" argument is 0 for float32 and 1 for bfloat16.

#include <cmath>
#include <cstdint>
#include <cstring>

#include <omp.h>

namespace {

constexpr int LANES = 16;
constexpr int GROUP = 6;          // rows that share one pass over K, V or a LoRA factor
constexpr int MAX_GROUPED = 64;   // queries of one attention task
constexpr int MAX_HEAD_DIM = 512;
constexpr int64_t MANY = 1 << 15;  // less work than this is done before a second thread has woken up

typedef float vec __attribute__((vector_size(64), aligned(64)));
typedef float loose_vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), aligned(64)));
typedef uint16_t half_vec __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t uvec __attribute__((vector_size(64), aligned(64)));

struct bf16 { uint16_t bits; };

inline vec splat(float x) { return vec{} + x; }
inline vec load(const float* p) { return *reinterpret_cast<const loose_vec*>(p); }
inline vec load(const bf16* p) {
    uvec wide = __builtin_convertvector(*reinterpret_cast<const half_vec*>(p), uvec) << 16;
    return (vec)wide;  // same bits
}
inline void store(float* p, vec v) { *reinterpret_cast<loose_vec*>(p) = v; }
inline void store(bf16* p, vec v) {  // to nearest even; a NaN stays one
    uvec u = (uvec)v;
    uvec rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    ivec is_nan = (v != v);
    uvec bits = is_nan ? (u >> 16) | 0x40u : rounded;
    *reinterpret_cast<half_vec*>(p) = __builtin_convertvector(bits, half_vec);
}
inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
    uint32_t wide = uint32_t(x.bits) << 16;
    float f;
    std::memcpy(&f, &wide, 4);
    return f;
}
inline void from_float(float* p, float x) { *p = x; }
inline void from_float(bf16* p, float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    p->bits = (x != x) ? uint16_t((u >> 16) | 0x40u) : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
template <class T> inline vec load_some(const T* p, int64_t n) {  // missing lanes are zero
    if (n >= LANES) return load(p);
    T whole[LANES] = {};
    std::memcpy(whole, p, n * sizeof(T));
    return load(whole);
}
template <class T> inline void store_some(T* p, vec v, int64_t n) {
    if (n >= LANES) { store(p, v); return; }
    T whole[LANES];
    store(whole, v);
    std::memcpy(p, whole, n * sizeof(T));
}
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec4 __attribute__((vector_size(16)));
template <class Op> inline float fold(vec v, Op op) {  // a fixed tree
    vec8 halves[2];
    std::memcpy(halves, &v, sizeof v);
    vec8 half = op(halves[0], halves[1]);
    vec4 quarters[2];
    std::memcpy(quarters, &half, sizeof half);
    vec4 q = op(quarters[0], quarters[1]);
    return op(op(q[0], q[2]), op(q[1], q[3]));
}
inline float sum(vec v) {
    return fold(v, [](auto a, auto b) { return a + b; });
}
inline float highest(vec v) {
    return fold(v, [](auto a, auto b) { return a > b ? a : b; });
}
inline vec exp_nonpositive(vec x) {  // Cephes' polynomial; below -87 it is 0. NaN stays NaN.
    ivec tiny = (x < splat(-87.0f));
    vec clipped = tiny ? splat(-87.0f) : x;
    vec scaled = clipped * 1.44269504f;
    ivec n = __builtin_convertvector(scaled - 0.5f, ivec);
    vec whole = __builtin_convertvector(n, vec);
    vec r = clipped - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    ivec exponent = (n + 127) << 23;
    vec result = p * (vec)exponent;
    result = tiny ? vec{} : result;
    return (x != x) ? x : result;
}

// ---------------------------------------------------------------------------------------------- row-wise pieces

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

// ---------------------------------------------------------------------------------------------------- attention

struct Query {
    const float* q;   // [head_dim]
    int64_t position;
    float top;
    vec total;        // by lane
    float* sum;       // [padded_dim], aligned
    float p[LANES] __attribute__((aligned(64)));
};

template <int N, class T>
void score_cell(Query* queries, const T* k, int64_t head_dim, float scale, int64_t cell_start) {
    vec acc[N] = {}, odd[N] = {};  // two chains, since one would wait for its own sums
    for (int64_t d = 0; d < head_dim; d += 2) {
        vec key = load(k + d * LANES), next = load(k + (d + 1) * LANES);
        for (int i = 0; i < N; i++) {
            acc[i] += key * queries[i].q[d];
            odd[i] += next * queries[i].q[d + 1];
        }
    }
    const ivec lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < N; i++) {
        Query& query = queries[i];
        int32_t last = int32_t(query.position - cell_start);
        ivec seen = lanes <= (ivec{} + last);
        vec score = seen ? (acc[i] + odd[i]) * scale : splat(-INFINITY);
        float top = highest(score);
        top = top > query.top ? top : query.top;
        vec p = exp_nonpositive(score - top);
        p = seen ? p : vec{};
        if (top != query.top) {
            float shrink = std::exp(query.top - top);
            query.total *= shrink;
            for (int64_t d = 0; d < head_dim; d += LANES)
                *reinterpret_cast<vec*>(query.sum + d) = *reinterpret_cast<vec*>(query.sum + d) * shrink;
            query.top = top;
        }
        query.total += p;
        store(query.p, p);
    }
}

template <int N, class T>
void weigh_cell(Query* queries, const T* v, int64_t padded_dim, int64_t num_keys) {
    for (int64_t d = 0; d < padded_dim; d += LANES) {
        vec acc[N];
        for (int i = 0; i < N; i++) acc[i] = *reinterpret_cast<vec*>(queries[i].sum + d);
        for (int64_t j = 0; j < num_keys; j++) {
            vec value = load(v + j * padded_dim + d);
            for (int i = 0; i < N; i++) acc[i] += value * queries[i].p[j];
        }
        for (int i = 0; i < N; i++) *reinterpret_cast<vec*>(queries[i].sum + d) = acc[i];
    }
}

template <int N, class T>
void visit_cell(Query* queries, const T* k, const T* v, const Shape& s, int64_t start, int64_t num_keys) {
    score_cell<N>(queries, k, s.head_dim, s.scale, start);
    weigh_cell<N>(queries, v, s.padded_dim, num_keys);
}

// `count` consecutive queries that have all reached position `start`, at most GROUP.
template <class T>
void visit(int count, Query* queries, const T* k, const T* v, const Shape& s, int64_t start, int64_t num_keys) {
    switch (count) {
        case 1: visit_cell<1>(queries, k, v, s, start, num_keys); break;
        case 2: visit_cell<2>(queries, k, v, s, start, num_keys); break;
        case 3: visit_cell<3>(queries, k, v, s, start, num_keys); break;
        case 4: visit_cell<4>(queries, k, v, s, start, num_keys); break;
        case 5: visit_cell<5>(queries, k, v, s, start, num_keys); break;
        default: visit_cell<6>(queries, k, v, s, start, num_keys);
    }
}

template <class T>
void attend(const Shape& s, int64_t first_token, int64_t num_tokens, int64_t position, int64_t kv_head,
            const int32_t* table, const float* q, const T* k_cache, const T* v_cache, T* out) {
    int64_t group = s.num_heads / s.num_kv_heads;
    float sums[MAX_GROUPED * MAX_HEAD_DIM] __attribute__((aligned(64)));
    Query queries[MAX_GROUPED];
    int count = int(num_tokens * group);
    for (int i = 0; i < count; i++) {
        int64_t token = first_token + i / group, head = kv_head * group + i % group;
        queries[i].q = q + (token * s.num_heads + head) * s.head_dim;
        queries[i].position = position + i / group;
        queries[i].top = -INFINITY;
        queries[i].total = vec{};
        queries[i].sum = sums + i * s.padded_dim;
        std::memset(queries[i].sum, 0, s.padded_dim * sizeof(float));
    }
    int64_t last = position + num_tokens - 1;
    for (int64_t start = 0; start <= last; start += LANES) {
        int64_t at = cell_of(s, table, start) * s.num_kv_heads + kv_head;
        const T *k = k_cache + at * s.padded_dim * LANES, *v = v_cache + at * s.padded_dim * LANES;
        int first = start > position ? int((start - position) * group) : 0;  // earlier queries end before this cell
        int64_t num_keys = last - start + 1 < LANES ? last - start + 1 : LANES;
        for (int i = first; i < count; i += GROUP)
            visit(count - i < GROUP ? count - i : GROUP, queries + i, k, v, s, start, num_keys);
    }
    for (int i = 0; i < count; i++) {
        T* to = out + ((first_token + i / group) * s.num_heads + kv_head * group + i % group) * s.head_dim;
        float share = 1.0f / sum(queries[i].total);
        for (int64_t d = 0; d < s.head_dim; d += LANES)
            store_some(to + d, *reinterpret_cast<vec*>(queries[i].sum + d) * share, s.head_dim - d);
    }
}

// --------------------------------------------------------------------------------------------------------- LoRA

struct Factor {  // one (slot, layer, site); mirrored by engine/kernels/cpu.py. rank 0 = none
    const void* a;  // [rank, in]
    const void* b;  // B transposed: [rank, out]
    int32_t rank;
    int32_t dtype;
    float scale;
    int32_t reserved;
};

struct Segment { int32_t slot, start, count; };  // rows[start : start + count] share a slot

template <int N, class F, class T>
void shrink_rows(const F* a, const T* x, const int32_t* rows, int64_t in, int64_t low, int64_t high, float* h,
                 int64_t h_stride) {
    for (int64_t r = low; r < high; r++) {
        vec acc[N] = {};
        const F* factor = a + r * in;
        int64_t i = 0;
        for (; i + LANES <= in; i += LANES) {
            vec f = load(factor + i);
            for (int t = 0; t < N; t++) acc[t] += f * load(x + rows[t] * in + i);
        }
        if (i < in) {
            vec f = load_some(factor + i, in - i);
            for (int t = 0; t < N; t++) acc[t] += f * load_some(x + rows[t] * in + i, in - i);
        }
        for (int t = 0; t < N; t++) h[t * h_stride + r] = sum(acc[t]);
    }
}

template <int N, class F, class T>
void expand_rows(const F* b, const float* h, int64_t h_stride, int64_t rank, float scale, T* y, const int32_t* rows,
                 int64_t y_stride, int64_t out, int64_t low, int64_t high) {
    for (int64_t o = low; o < high; o += LANES) {
        int64_t n = high - o;
        vec acc[N] = {};
        if (n >= LANES) {
            for (int64_t r = 0; r < rank; r++) {
                vec f = load(b + r * out + o);
                for (int t = 0; t < N; t++) acc[t] += f * h[t * h_stride + r];
            }
        } else {
            for (int64_t r = 0; r < rank; r++) {
                vec f = load_some(b + r * out + o, n);
                for (int t = 0; t < N; t++) acc[t] += f * h[t * h_stride + r];
            }
        }
        for (int t = 0; t < N; t++) {
            T* to = y + rows[t] * y_stride + o;
            store_some(to, load_some(to, n) + acc[t] * scale, n);
        }
    }
}

#define BY_COUNT(count, function, ...)                  \
    switch (count) {                                    \
        case 1: function<1>(__VA_ARGS__); break;        \
        case 2: function<2>(__VA_ARGS__); break;        \
        case 3: function<3>(__VA_ARGS__); break;        \
        case 4: function<4>(__VA_ARGS__); break;        \
        case 5: function<5>(__VA_ARGS__); break;        \
        default: function<6>(__VA_ARGS__);              \
    }

struct LoraRows {  // the rows of a step that have an adapter; mirrored by engine/kernels/cpu.py
    const int32_t* rows;
    const Segment* segments;
    int64_t num_segments, num_rows;
    float* h;  // scratch [sites, num_rows, h_stride]
    int64_t h_stride;
};

struct Site {  // one linear site of one layer; mirrored by engine/kernels/cpu.py
    const Factor* factors;  // of slot 0
    int64_t slot_stride, in, out, column;  // column: where its outputs start in a fused y
};

template <class F, class T>
void shrink_segment(const LoraRows& l, const Site& s, const Segment& seg, const Factor& f, const T* x, float* h,
                    int64_t low, int64_t high) {
    for (int32_t t = 0; t < seg.count; t += GROUP) {
        int count = seg.count - t < GROUP ? seg.count - t : GROUP;
        BY_COUNT(count, shrink_rows, (const F*)f.a, x, l.rows + seg.start + t, s.in, low, high,
                 h + (seg.start + t) * l.h_stride, l.h_stride)
    }
}

template <class F, class T>
void expand_segment(const LoraRows& l, const Site& s, const Segment& seg, const Factor& f, const float* h, T* y,
                    int64_t y_stride, int64_t low, int64_t high) {
    for (int32_t t = 0; t < seg.count; t += GROUP) {
        int count = seg.count - t < GROUP ? seg.count - t : GROUP;
        BY_COUNT(count, expand_rows, (const F*)f.b, h + (seg.start + t) * l.h_stride, l.h_stride, f.rank, f.scale,
                 y + s.column, l.rows + seg.start + t, y_stride, s.out, low, high)
    }
}

// Parts are cut at multiples of 16 so that a lane's column never depends on the number of threads.
inline int64_t cut(int64_t whole, int64_t part, int64_t parts, int64_t unit) {
    int64_t units = (whole + unit - 1) / unit, at = units * part / parts * unit;
    return at < whole ? at : whole;
}

template <class T>
void lora_sites(const LoraRows& l, const Site* sites, int64_t num_sites, const T* x, T* y, int64_t y_stride,
                int num_threads) {
#pragma omp parallel num_threads(num_threads)
    {
        int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
        for (int64_t i = 0; i < num_sites; i++)
            for (int64_t g = 0; g < l.num_segments; g++) {
                const Segment& seg = l.segments[g];
                const Factor& f = sites[i].factors[seg.slot * sites[i].slot_stride];
                float* h = l.h + i * l.num_rows * l.h_stride;
                int64_t low = cut(f.rank, part, parts, 1), high = cut(f.rank, part + 1, parts, 1);
                if (f.dtype) shrink_segment<bf16>(l, sites[i], seg, f, x, h, low, high);
                else shrink_segment<float>(l, sites[i], seg, f, x, h, low, high);
            }
#pragma omp barrier
        for (int64_t i = 0; i < num_sites; i++)
            for (int64_t g = 0; g < l.num_segments; g++) {
                const Segment& seg = l.segments[g];
                const Factor& f = sites[i].factors[seg.slot * sites[i].slot_stride];
                if (!f.rank) continue;
                const float* h = l.h + i * l.num_rows * l.h_stride;
                int64_t low = cut(sites[i].out, part, parts, LANES), high = cut(sites[i].out, part + 1, parts, LANES);
                if (f.dtype) expand_segment<bf16>(l, sites[i], seg, f, h, y, y_stride, low, high);
                else expand_segment<float>(l, sites[i], seg, f, h, y, y_stride, low, high);
            }
    }
}

}  // namespace

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
