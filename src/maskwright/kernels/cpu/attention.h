/* Attention of one head over one sequence, forward and backward, in fp32 (Vaswani et al. 2017, section 3.2).

   Keys and values are first copied into contiguous memory: rows at strides of powers of two would evict each other from
   a cache. The scores of eight queries stay in L1 from their product to their use: the score matrix is never written to
   memory. The backward pass computes them again from what the softmax of each query was.

   n tokens, m queries, d numbers of a head (a multiple of 16), "wide": n in whole registers. */

#pragma once

#include "registers.h"

#define UNROLL _Pragma("GCC unroll 16")
#define ROWS 8   /* tokens together: 8 x 3 of the 32 registers hold sums */
#define CHUNK 64 /* queries whose scores the backward pass holds at once */

typedef struct {
    const float *first; /* of the first token and this head */
    int64_t stride;     /* numbers from token to token */
} Values;

/* The softmax of a query: exp((score - highest) / sqrt(d)) times factor. */
typedef struct {
    float highest, factor;
} Softmax;

/* Which keys a query attends to: those at most `reach` tokens away. */
typedef struct {
    int64_t reach;
    const int64_t *positions; /* of the queries; NULL for 0, 1, ... */
    int64_t first;            /* the position of the first key */
} Window;

/* Which probabilities are dropped: `DropoutMask.bits` of dropout.py. */
typedef struct {
    const int64_t *rows, *columns; /* the numbers of the table; NULL drops nothing */
    int64_t position, stride;      /* of the first query and key in the mask; from query to query */
    int64_t least;                 /* the smallest bits that are kept */
    float scale;                   /* of the probabilities that are kept */
} Dropout;

/* --- copies */

static inline void copy_tokens(Values values, int64_t first, int64_t n, int64_t places, int64_t d, float *to) {
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < d; i += LANES)
            store(to + token * d + i, load(values.first + (first + token) * values.stride + i));
    for (int64_t i = n * d; i < places * d; i += LANES) store(to + i, all(0.0f));
}

/* Copy n tokens as the columns of a matrix (d x wide), with zeros behind them. */
static inline void transpose(Values values, int64_t n, int64_t d, float *to) {
    int64_t wide = whole_registers(n);
    for (int64_t token = 0; token < wide; token += LANES)
        for (int64_t i = 0; i < d; i += LANES) {
            __m512 a[LANES], b[LANES];
            UNROLL for (int r = 0; r < LANES; r++)
                a[r] = token + r >= n ? _mm512_setzero_ps()
                                      : (__m512)load(values.first + (token + r) * values.stride + i);
            /* Numbers, pairs, then quarters of registers change places. */
            UNROLL for (int r = 0; r < LANES; r += 2) {
                b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
                b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
            }
            UNROLL for (int r = 0; r < LANES; r += 4)
                UNROLL for (int s = 0; s < 2; s++) {
                    a[r + 2 * s] = (__m512)_mm512_unpacklo_pd((__m512d)b[r + s], (__m512d)b[r + s + 2]);
                    a[r + 2 * s + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[r + s], (__m512d)b[r + s + 2]);
                }
            UNROLL for (int r = 0; r < 4; r++) {
                b[r] = _mm512_shuffle_f32x4(a[r], a[r + 4], 0x88);
                b[r + 4] = _mm512_shuffle_f32x4(a[r], a[r + 4], 0xdd);
                b[r + 8] = _mm512_shuffle_f32x4(a[r + 8], a[r + 12], 0x88);
                b[r + 12] = _mm512_shuffle_f32x4(a[r + 8], a[r + 12], 0xdd);
            }
            UNROLL for (int r = 0; r < 8; r++) {
                __m512 low = b[r], high = b[r + 8];
                store(to + (i + r) * wide + token, (v16)_mm512_shuffle_f32x4(low, high, 0x88));
                store(to + (i + r + 8) * wide + token, (v16)_mm512_shuffle_f32x4(low, high, 0xdd));
            }
        }
}

/* --- products: to (ROWS x 16 C) = left (ROWS x k) right (k x 16 C), or added to what is there; sums in registers. A
   left factor is at left[row * down + i * across]. Functions of their own: inlined, they leave too few registers for the
   addresses of eight rows. The empty instruction makes the compiler load a column once, and not again for each product. */

#define TILE(NAME, C)                                                                                                  \
    static __attribute__((noinline)) void NAME(const float *left, int64_t down, int64_t across, const float *right,    \
                                               int64_t stride, int64_t k, float *to, int adds) {                       \
        v16 sums[ROWS][C];                                                                                             \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
            UNROLL for (int c = 0; c < C; c++) sums[r][c] = adds ? load(to + r * stride + LANES * c) : all(0.0f);      \
        for (int64_t i = 0; i < k; i++, left += across, right += stride) {                                             \
            v16 columns[C];                                                                                            \
            UNROLL for (int c = 0; c < C; c++) {                                                                       \
                columns[c] = load(right + LANES * c);                                                                  \
                __asm__("" : "+v"(columns[c]));                                                                        \
            }                                                                                                          \
            UNROLL for (int r = 0; r < ROWS; r++) {                                                                    \
                v16 one = all(left[r * down]);                                                                         \
                UNROLL for (int c = 0; c < C; c++) sums[r][c] += one * columns[c];                                     \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
            UNROLL for (int c = 0; c < C; c++) store(to + r * stride + LANES * c, sums[r][c]);                         \
    }
TILE(tile1, 1)
TILE(tile2, 2)
TILE(tile3, 3)

/* to (ROWS x width) = left (ROWS x k) right (k x width); width in whole registers, `stride` numbers from row to row of
   right and to. */
static inline void multiply(const float *left, int64_t down, int64_t across, const float *right, int64_t width,
                            int64_t stride, int64_t k, float *to, int adds) {
    int64_t at = 0;
    /* Four registers are better two and two than three and one. */
    for (; width - at >= 3 * LANES && width - at != 4 * LANES; at += 3 * LANES)
        tile3(left, down, across, right + at, stride, k, to + at, adds);
    for (; width - at >= 2 * LANES; at += 2 * LANES) tile2(left, down, across, right + at, stride, k, to + at, adds);
    if (at < width) tile1(left, down, across, right + at, stride, k, to + at, adds);
}

/* --- dropout */

#define VALUES 4     /* per random number */
#define COLUMNS 512  /* of the table */
#define MIX 0xBF58476D1CE4E5B9u

/* Write the random numbers of n keys of one query to `numbers`; return the first key's 16 bits. */
static const int16_t *bits_of(const Dropout *dropout, int64_t query, int64_t n, int64_t *numbers) {
    int64_t from = dropout->position + query * dropout->stride;
    int64_t first = from / VALUES, count = (from + n - 1) / VALUES - first + 1;
    for (int64_t done = 0; done < count;) {
        int64_t column = (first + done) % COLUMNS, part = COLUMNS - column; /* to the end of this row of the table */
        if (part > count - done) part = count - done;
        uint64_t row = (uint64_t)dropout->rows[(first + done) / COLUMNS];
        for (int64_t i = 0; i < part; i++) {
            int64_t mixed = (int64_t)(row * (uint64_t)dropout->columns[column + i]);
            mixed ^= mixed >> 32;
            numbers[done + i] = (int64_t)((uint64_t)mixed * MIX);
        }
        done += part;
    }
    return (const int16_t *)numbers + from % VALUES;
}

/* Which of sixteen keys are kept; undefined behind the last key. */
static inline __mmask16 kept(const int16_t *bits, const Dropout *dropout) {
    return _mm256_cmpge_epi16_mask(_mm256_loadu_si256((const __m256i *)bits), _mm256_set1_epi16((int16_t)dropout->least));
}

static inline v16 only(__mmask16 which, v16 values) { return (v16)_mm512_maskz_mov_ps(which, (__m512)values); }

/* --- attention */

/* Numbers of memory that a thread needs for sequences of n tokens. The last part holds random numbers: 8 bytes for four
   keys, and two more. */
int64_t attention_workspace(int64_t d, int64_t n) {
    int64_t wide = whole_registers(n);
    return ROWS * d + 2 * d * wide + ROWS * wide + wide;
}
int64_t backward_workspace(int64_t d, int64_t n) {
    int64_t wide = whole_registers(n);
    return ROWS * d + 7 * d * wide + 2 * CHUNK * wide + wide;
}

/* exp(-64) is nothing beside 1; smaller values would give denormal numbers, which are slow on some processors. */
#define LEAST -64.0f

static inline v16 exponential_of(v16 scores, float highest, float alpha) {
    return exponential(larger(all(LEAST), (scores - all(highest)) * all(alpha)));
}

/* The keys that a query of a window attends to: from `begin` to before `end`. */
typedef struct {
    int64_t begin, end;
} Span;

static inline Span span_of(const Window *window, int64_t query, int64_t n) {
    if (!window) return (Span){0, n};
    int64_t at = (window->positions ? window->positions[query] : query) - window->first;
    int64_t begin = at - window->reach, end = at + window->reach + 1;
    return (Span){begin < 0 ? 0 : begin, end > n ? n : end};
}

/* Which of sixteen keys, from `key` on, are in a span. */
static inline __mmask16 inside(Span span, int64_t key) {
    int64_t begin = span.begin - key, end = span.end - key;
    if (begin >= LANES || end <= 0) return 0;
    return (__mmask16)((end >= LANES ? 0xffff : (1u << end) - 1) & ~(begin <= 0 ? 0 : (1u << begin) - 1));
}

/* `softmax` has `heads` numbers from query to query; NULL where no backward pass follows. `window` is NULL for all
   keys. */
static void attend_head(Values queries, int64_t m, Values keys, Values values, int64_t n, int64_t d,
                        const Window *window, const Dropout *dropout, float *context, int64_t stride, Softmax *softmax,
                        int64_t heads, float *workspace) {
    int64_t wide = whole_registers(n);
    float *q = workspace, *v = q + ROWS * d, *transposed = v + d * wide, *scores = transposed + d * wide;
    int64_t *numbers = (int64_t *)(scores + ROWS * wide);
    float alpha = 1.0f / sqrtf((float)d);
    copy_tokens(values, 0, n, wide, d, v);
    transpose(keys, n, d, transposed);
    for (int64_t first = 0; first < m; first += ROWS) {
        int64_t rows = m - first < ROWS ? m - first : ROWS;
        Span spans[ROWS], all_keys = span_of(window, first, n);
        for (int64_t row = 0; row < rows; row++) {
            spans[row] = span_of(window, first + row, n);
            if (spans[row].begin < all_keys.begin) all_keys.begin = spans[row].begin;
            if (spans[row].end > all_keys.end) all_keys.end = spans[row].end;
        }
        int64_t begin = all_keys.begin / LANES * LANES, end = whole_registers(all_keys.end);
        copy_tokens(queries, first, rows, ROWS, d, q);
        multiply(q, d, 1, transposed + begin, end - begin, wide, d, scores + begin, 0);
        float factors[ROWS] = {0};
        for (int64_t row = 0; row < rows; row++) {
            float *of = scores + row * wide;
            for (int64_t key = begin; key < spans[row].begin; key++) of[key] = -INFINITY;
            for (int64_t key = spans[row].end; key < end; key++) of[key] = -INFINITY;
            v16 most = load(of + begin), sum = all(0.0f);
            for (int64_t key = begin + LANES; key < end; key += LANES) most = larger(most, load(of + key));
            float peak = highest(most);
            const int16_t *bits = dropout->rows ? bits_of(dropout, first + row, n, numbers) : NULL;
            for (int64_t key = begin; key < end; key += LANES) {
                v16 e = exponential_of(load(of + key), peak, alpha);
                if (window) e = only(inside(spans[row], key), e); /* nothing: whatever other queries are in the tile */
                sum += e;
                store(of + key, bits ? only(kept(bits + key, dropout), e) : e);
            }
            float factor = 1.0f / total(sum);
            factors[row] = factor * dropout->scale;
            if (softmax) softmax[(first + row) * heads] = (Softmax){peak, factor};
        }
        multiply(scores + begin, wide, 1, v + begin * d, d, d, all_keys.end - begin, q, 0);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < d; i += LANES)
                store(context + (first + row) * stride + i, load(q + row * d + i) * all(factors[row]));
    }
}

/* Compute the gradients of queries, keys and values from the context's; all results have `stride` numbers from token to
   token. */
static void attend_head_backward(Values queries, Values keys, Values values, Values grad, int64_t n, int64_t d,
                                 const Dropout *dropout, const Softmax *softmax, int64_t heads, float *query_grad,
                                 float *key_grad, float *value_grad, int64_t stride, float *workspace) {
    int64_t wide = whole_registers(n), size = d * wide;
    float alpha = 1.0f / sqrtf((float)d);
    float *q = workspace, *k = q + size, *g = k + size, *of_keys = g + size, *of_values = of_keys + size;
    float *keys_transposed = of_values + size, *values_transposed = keys_transposed + size;
    float *probabilities = values_transposed + size, *scores_grad = probabilities + CHUNK * wide;
    float *of_queries = scores_grad + CHUNK * wide;
    int64_t *numbers = (int64_t *)(of_queries + ROWS * d);
    copy_tokens(queries, 0, n, wide, d, q);
    copy_tokens(keys, 0, n, wide, d, k);
    copy_tokens(grad, 0, n, wide, d, g);
    transpose(keys, n, d, keys_transposed);
    transpose(values, n, d, values_transposed);
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        int64_t count = n - begin < CHUNK ? n - begin : CHUNK;
        for (int64_t first = 0; first < count; first += ROWS) {
            float *p = probabilities + first * wide, *s = scores_grad + first * wide;
            multiply(q + (begin + first) * d, d, 1, keys_transposed, wide, wide, d, p, 0);
            multiply(g + (begin + first) * d, d, 1, values_transposed, wide, wide, d, s, 0);
            for (int64_t row = 0; row < ROWS && first + row < count; row++, p += wide, s += wide) {
                int64_t query = begin + first + row;
                Softmax of = softmax[query * heads];
                const int16_t *bits = dropout->rows ? bits_of(dropout, query, n, numbers) : NULL;
                v16 sum = all(0.0f);
                for (int64_t key = 0; key < wide; key += LANES) {
                    __mmask16 real = key + LANES <= n ? 0xffff : (__mmask16)((1u << (n - key)) - 1);
                    __mmask16 stays = bits ? kept(bits + key, dropout) : 0xffff;
                    v16 probability = only(real, exponential_of(load(p + key), of.highest, alpha) * all(of.factor));
                    v16 its_grad = only(real & stays, load(s + key) * all(dropout->scale));
                    sum += probability * its_grad;
                    store(s + key, its_grad);
                    /* The sign marks dropped ones until the gradients of their scores are known. */
                    store(p + key, (v16)_mm512_mask_sub_ps((__m512)probability, (__mmask16)~stays, _mm512_setzero_ps(),
                                                           (__m512)probability));
                }
                v16 mean = all(total(sum));
                for (int64_t key = 0; key < wide; key += LANES) {
                    v16 probability = load(p + key);
                    store(s + key, (v16)_mm512_abs_ps((__m512)probability) * (load(s + key) - mean));
                    store(p + key, larger(all(0.0f), probability) * all(dropout->scale));
                }
            }
            multiply(scores_grad + first * wide, wide, 1, k, d, d, n, of_queries, 0);
            for (int64_t row = 0; row < ROWS && first + row < count; row++)
                for (int64_t i = 0; i < d; i += LANES)
                    store(query_grad + (begin + first + row) * stride + i, load(of_queries + row * d + i) * all(alpha));
        }
        for (int64_t key = 0; key < n; key += ROWS) {
            multiply(probabilities + key, 1, wide, g + begin * d, d, d, count, of_values + key * d, begin > 0);
            multiply(scores_grad + key, 1, wide, q + begin * d, d, d, count, of_keys + key * d, begin > 0);
        }
    }
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < d; i += LANES) {
            store(value_grad + token * stride + i, load(of_values + token * d + i));
            store(key_grad + token * stride + i, load(of_keys + token * d + i) * all(alpha));
        }
}
