/* Attention over a flat stream of tokens, forward and backward. Compiled and called by `attention.py`, which says what
   the structure means to Python.

   Each head of each run is computed by one thread in one order: a result depends neither on how many threads there are
   nor on what else is in the batch. */

#include <string.h>

#include "attention.h"

typedef struct {
    const void *queries, *keys, *values; /* a head's numbers lie side by side */
    void *mixed; /* queries x width */
    Softmax *softmax; /* tokens x heads; NULL where no backward pass follows */
    const void *slope; /* tokens x width; for the backward pass only, as the next three */
    void *to_queries, *to_keys, *to_values; /* tokens x width */
    const int64_t *query_offsets, *offsets; /* where each run's queries, and its keys, begin; the last is an end */
    const int64_t *slots; /* where each run begins, counted through all rows */
    const uint8_t *real; /* by run; what is not real is filler, and becomes zero */
    const int64_t *rows, *columns; /* of the table of random words; NULL drops nothing */
    float *room; /* of each thread */
    int64_t query_stride, key_stride, value_stride, runs, longest, heads, size, row_length, least;
    float scale;
    int32_t half; /* values in and out are bfloat16 */
    int32_t multiplies; /* pairs of them, where size is a multiple of 32: the processor has vdpbf16ps */
} Attention;

static inline Values values_at(const void *first, int64_t stride, int64_t token, int64_t i, Kind kind) {
    int64_t at = (token * stride + i) * bytes_of(kind);
    return (Values){(const char *)first + at, stride};
}

static inline Results results_at(void *first, int64_t stride, int64_t token, int64_t i, Kind kind) {
    int64_t at = (token * stride + i) * bytes_of(kind);
    return (Results){(char *)first + at, stride};
}

static void clear(Results to, int64_t n, int64_t d, Kind kind) {
    for (int64_t token = 0; token < n; token++)
        memset((char *)to.first + token * to.stride * bytes_of(kind), 0, (size_t)(d * bytes_of(kind)));
}

static inline __attribute__((always_inline)) void one_head(const Attention *a, int64_t run, int64_t head, int backward,
                                                           float *room, Kind kind) {
    int64_t first = a->offsets[run], n = a->offsets[run + 1] - first, d = a->size, width = a->heads * d, i = head * d;
    int64_t first_query = a->query_offsets[run], m = a->query_offsets[run + 1] - first_query;
    int64_t row = a->slots[run] / a->row_length, column = a->slots[run] % a->row_length;
    Values queries = values_at(a->queries, a->query_stride, first_query, i, kind);
    Values keys = values_at(a->keys, a->key_stride, first, i, kind);
    Values values = values_at(a->values, a->value_stride, first, i, kind);
    Drops drops = {a->rows, a->columns, ((row * a->heads + head) * a->row_length + column) * a->row_length + column,
                   a->row_length, a->least, a->scale};
    Softmax *softmax = a->softmax ? a->softmax + first * a->heads + head : NULL;
    if (!backward) {
        Results mixed = results_at(a->mixed, width, first_query, i, kind);
        if (!m) return;
        if (a->real[run]) attend(queries, m, keys, values, n, d, &drops, mixed, softmax, a->heads, room, kind);
        else clear(mixed, m, d, kind);
        return;
    }
    Results to_queries = results_at(a->to_queries, width, first, i, kind);
    Results to_keys = results_at(a->to_keys, width, first, i, kind);
    Results to_values = results_at(a->to_values, width, first, i, kind);
    if (a->real[run]) {
        attend_back(queries, keys, values, values_at(a->slope, width, first, i, kind), n, d, &drops, softmax, a->heads,
                    to_queries, to_keys, to_values, room, kind);
        return;
    }
    clear(to_queries, n, d, kind);
    clear(to_keys, n, d, kind);
    clear(to_values, n, d, kind);
}

/* Forward, or backward for queries that are all tokens. */
void attention(const Attention *a, int backward, int threads) {
    int64_t per_thread = numbers_needed(a->size, a->longest, backward);
    int pairs = a->half && a->multiplies && a->size % (2 * LANES) == 0;
#pragma omp parallel for schedule(dynamic) collapse(2) num_threads(threads)
    for (int64_t run = 0; run < a->runs; run++)
        for (int64_t head = 0; head < a->heads; head++) {
            float *own = a->room + omp_get_thread_num() * per_thread;
            /* Six copies of the code, each without questions inside. */
            if (pairs) backward ? one_head(a, run, head, 1, own, PAIRS) : one_head(a, run, head, 0, own, PAIRS);
            else if (a->half) backward ? one_head(a, run, head, 1, own, BF16) : one_head(a, run, head, 0, own, BF16);
            else backward ? one_head(a, run, head, 1, own, FP32) : one_head(a, run, head, 0, own, FP32);
        }
}
