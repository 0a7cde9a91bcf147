/* Attention of one head over one sequence, in fp32 (Vaswani et al. 2017, section 3.2).

   Keys and values are first copied into contiguous memory: rows at strides of powers of two would evict each other from
   a cache. The scores of eight queries stay in L1 from their product to their use: the score matrix is never written to
   memory.

   n tokens, m queries, d numbers of a head (a multiple of 16), "wide": n in whole registers. */

#pragma once

#include "registers.h"

#define UNROLL _Pragma("GCC unroll 16")
#define ROWS 8 /* tokens together: 8 x 3 of the 32 registers hold sums */

typedef struct {
    const float *first; /* of the first token and this head */
    int64_t stride;     /* numbers from token to token */
} Values;

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

/* --- products: to (ROWS x 16 C) = left (ROWS x k) right (k x 16 C), sums in registers. Functions of their own: inlined,
   they leave too few registers for the addresses of eight rows. The empty instruction makes the compiler load a column
   once, and not again for each product. */

#define TILE(NAME, C)                                                                                                  \
    static __attribute__((noinline)) void NAME(const float *left, int64_t down, const float *right, int64_t stride,    \
                                               int64_t k, float *to, int64_t to_stride) {                              \
        v16 sums[ROWS][C];                                                                                             \
        UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int c = 0; c < C; c++) sums[r][c] = all(0.0f);               \
        for (int64_t i = 0; i < k; i++, left++, right += stride) {                                                     \
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
            UNROLL for (int c = 0; c < C; c++) store(to + r * to_stride + LANES * c, sums[r][c]);                      \
    }
TILE(tile1, 1)
TILE(tile2, 2)
TILE(tile3, 3)

/* ROWS x width (whole registers). */
static inline void multiply(const float *left, int64_t down, const float *right, int64_t stride, int64_t k, float *to,
                            int64_t width) {
    int64_t at = 0;
    /* Four registers are better two and two than three and one. */
    for (; width - at >= 3 * LANES && width - at != 4 * LANES; at += 3 * LANES)
        tile3(left, down, right + at, stride, k, to + at, width);
    for (; width - at >= 2 * LANES; at += 2 * LANES) tile2(left, down, right + at, stride, k, to + at, width);
    if (at < width) tile1(left, down, right + at, stride, k, to + at, width);
}

/* --- attention */

/* Numbers of memory that a thread needs for sequences of n tokens. */
int64_t attention_workspace(int64_t d, int64_t n) {
    int64_t wide = whole_registers(n);
    return ROWS * d + 2 * d * wide + ROWS * wide;
}

/* exp(-64) is nothing beside 1; smaller values would give denormal numbers, which are slow on some processors. */
#define LEAST -64.0f

static void attend_head(Values queries, int64_t m, Values keys, Values values, int64_t n, int64_t d, float *context,
                        int64_t stride, float *workspace) {
    int64_t wide = whole_registers(n);
    float *q = workspace, *v = q + ROWS * d, *transposed = v + d * wide, *scores = transposed + d * wide;
    float alpha = 1.0f / sqrtf((float)d);
    copy_tokens(values, 0, n, wide, d, v);
    transpose(keys, n, d, transposed);
    for (int64_t first = 0; first < m; first += ROWS) {
        int64_t rows = m - first < ROWS ? m - first : ROWS;
        copy_tokens(queries, first, rows, ROWS, d, q);
        multiply(q, d, transposed, wide, d, scores, wide);
        float inverse_sums[ROWS] = {0};
        for (int64_t row = 0; row < rows; row++) {
            float *of = scores + row * wide;
            for (int64_t key = n; key < wide; key++) of[key] = -INFINITY;
            v16 most = load(of), sum = all(0.0f);
            for (int64_t key = LANES; key < wide; key += LANES) most = larger(most, load(of + key));
            v16 peak = all(highest(most));
            for (int64_t key = 0; key < wide; key += LANES) {
                v16 e = exponential(larger(all(LEAST), (load(of + key) - peak) * all(alpha)));
                sum += e;
                store(of + key, e);
            }
            inverse_sums[row] = 1.0f / total(sum);
        }
        multiply(scores, wide, v, d, n, q, d);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < d; i += LANES)
                store(context + (first + row) * stride + i, load(q + row * d + i) * all(inverse_sums[row]));
    }
}
