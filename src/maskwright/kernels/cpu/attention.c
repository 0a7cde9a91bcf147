/* Attention over packed sequences in training, in fp32, for processors with AVX512. Called by `attention.py`.

   One thread computes a head of a sequence, in one order: a result depends neither on the number of threads nor on the
   rest of the batch. */

#include "attention.h"

typedef struct {
    const float *query, *key, *value; /* tokens x heads x size */
    float *context;                   /* the same, without gaps, like all gradients */
    Softmax *softmax;                 /* tokens x heads */
    const float *grad;                /* of the context; NULL for the forward pass */
    float *query_grad, *key_grad, *value_grad;
    const int32_t *cu_seqlens; /* boundaries of the sequences */
    const int64_t *slots;      /* by token, counted through all rows; NULL for tokens that fill the rows */
    const int64_t *random_rows, *random_columns; /* the numbers of the dropout table; NULL drops nothing */
    float *workspace; /* of each thread */
    /* No sequence is longer than a row. */
    int64_t query_stride, key_stride, value_stride, sequences, heads, size, row_length, keep_threshold;
    float scale;
} Call;

static void attend(const Call *a, int64_t sequence, int64_t head, float *workspace) {
    int64_t first = a->cu_seqlens[sequence], n = a->cu_seqlens[sequence + 1] - first, d = a->size, width = a->heads * d;
    int64_t slot = a->slots && n ? a->slots[first] : first, row = slot / a->row_length, column = slot % a->row_length;
    int64_t at = first * width + head * d;
    Values queries = {a->query + first * a->query_stride + head * d, a->query_stride};
    Values keys = {a->key + first * a->key_stride + head * d, a->key_stride};
    Values values = {a->value + first * a->value_stride + head * d, a->value_stride};
    Softmax *softmax = a->softmax + first * a->heads + head;
    Dropout dropout = {a->random_rows, a->random_columns, ((row * a->heads + head) * a->row_length + column) * a->row_length + column,
                       a->row_length, a->keep_threshold, a->scale};
    if (a->grad)
        attend_head_backward(queries, keys, values, (Values){a->grad + at, width}, n, d, &dropout, softmax, a->heads,
                             a->query_grad + at, a->key_grad + at, a->value_grad + at, width, workspace);
    else
        attend_head(queries, n, keys, values, n, d, NULL, &dropout, a->context + at, width, softmax, a->heads, workspace);
}

void attention(const Call *a, int threads) {
    int64_t numbers = (a->grad ? backward_workspace : attention_workspace)(a->size, a->row_length);
#pragma omp parallel for schedule(dynamic) collapse(2) num_threads(threads)
    for (int64_t sequence = 0; sequence < a->sequences; sequence++)
        for (int64_t head = 0; head < a->heads; head++)
            attend(a, sequence, head, a->workspace + omp_get_thread_num() * numbers);
}
