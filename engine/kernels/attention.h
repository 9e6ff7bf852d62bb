// Causal attention over paged blocks, cell by cell of 16 positions, online softmax in a fixed order.
#pragma once

#include "rowwise.h"

namespace motet {

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

}  // namespace motet
