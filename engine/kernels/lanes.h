// Sixteen float lanes: loads, stores, sums and exp, for float32 and bfloat16.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace motet {

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
inline bool any_above(vec v, float x) {  // NaN is not above
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(x), _CMP_GT_OQ) != 0;
#else
    return highest(v) > x;
#endif
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

// 2^x for x <= 0, within 2e-7 of it. NaN stays NaN.
inline vec exp2_nonpositive(vec x) {
#ifdef __AVX512F__
    __m512 t = _mm512_max_ps(_mm512_set1_ps(-200.0f), (__m512)x);  // the second where one is NaN
    __m512 whole = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec f = (vec)_mm512_sub_ps(t, whole);
#else
    ivec tiny = (x < splat(-200.0f));
    vec t = tiny ? splat(-200.0f) : x;
    vec whole = __builtin_convertvector(__builtin_convertvector(t - 0.5f, ivec), vec);
    vec f = t - whole;
#endif
    vec p = splat(1.535336188e-4f);
    p = p * f + 1.339887440e-3f;
    p = p * f + 9.618437357e-3f;
    p = p * f + 5.550332470e-2f;
    p = p * f + 2.402264791e-1f;
    p = p * f + 6.931472028e-1f;
    p = p * f + 1.0f;
#ifdef __AVX512F__
    return (vec)_mm512_scalef_ps((__m512)p, whole);
#else
    ivec low = (whole < splat(-126.0f));
    vec bounded = low ? splat(-126.0f) : whole;
    vec result = p * (vec)((__builtin_convertvector(bounded, ivec) + 127) << 23);
    result = low ? vec{} : result;
    return (x != x) ? x : result;
#endif
}

}  // namespace motet
