// LoRA of many adapters over the rows of one step.
#pragma once

#include <omp.h>

#include "lanes.h"

namespace motet {

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

}  // namespace motet
