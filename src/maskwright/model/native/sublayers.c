/* What stands between the matrix products of a layer, forward and backward: bias and GELU; bias, dropout, residual and
   LayerNorm. Compiled and called by `sublayer_calls.py`, which says what the structures mean to Python.

   Each pass reads and writes what it needs once, and sums of columns (the slopes of biases and of LayerNorm's weights) are
   made on the way. They are added up in chunks of rows that do not depend on the number of threads, so no result does. */

#include <string.h>

#include "halves.h"
#include "passes.h"

enum { ERF, TANH };

typedef struct {
    const void *values, *slope; /* rows x width; the slope is of the result */
    const float *bias; /* added to each row of the values; NULL adds nothing */
    void *result; /* rows x width, or NULL: the backward pass makes it again where it was not kept */
    void *to_values; /* rows x width; may be the slope's memory */
    float *to_bias; /* NULL if it is not asked for */
    float *room; /* chunks x width */
    int64_t rows, width;
    int32_t kind, half; /* what comes and goes is bfloat16 */
} Gelu;

typedef struct {
    void *values; /* rows x width; in fp32 `sums` may be its memory */
    const float *bias, *residual; /* added to the values; the residual after dropout */
    const float *weight, *shift; /* LayerNorm's */
    float *sums, *result; /* rows x width: what is normed, and that */
    float *about; /* rows x 2: mean and 1 / deviation */
    const float *slope;
    float *to_residual; /* rows x width */
    void *to_values; /* rows x width, or NULL where they are the residual's: fp32 without dropout */
    float *to_weight, *to_shift, *to_bias; /* in one piece of 3 x width */
    float *room; /* chunks x 3 x width */
    Dropout dropout;
    int64_t rows, width;
    float epsilon;
    int32_t half;
} Norm;

typedef struct {
    const void *values; /* rows x width */
    float *sums, *room; /* width; chunks x width */
    int64_t rows, width;
    int32_t half;
} Sums;

int64_t chunks_of(int64_t rows) { return chunks_in(rows); }

static inline v16 size_of(v16 x) { return (v16)_mm512_abs_ps((__m512)x); }

/* The second where the sign of the first is minus, else the third. */
static inline v16 by_sign(v16 sign, v16 negative, v16 other) {
    return (v16)_mm512_mask_mov_ps((__m512)other, _mm512_movepi32_mask((__m512i)sign), (__m512)negative);
}

/* --- GELU (Hendrycks and Gimpel 2016): x times `share`, and its slope */

/* 1 / x for x >= 1, or with the 14 bits that are more than bfloat16's 8. */
static inline v16 inverse(v16 x, int half) {
    v16 guess = (v16)_mm512_rcp14_ps((__m512)x);
    if (half) return guess;
    return guess * (all(2.0f) - x * guess);
}

/* exp(x) for x <= 0; for bfloat16 to 3e-6 of its value. */
static inline v16 exponential_of(v16 x, int half) {
    if (!half) return exponential(x);
    v16 scaled = larger(all(-87.0f), x) * all(1.44269504f), n = (v16)_mm512_roundscale_ps((__m512)scaled, 0);
    v16 rest = scaled - n, p = all(9.570087634e-03f);
    p = p * rest + all(5.591785920e-02f);
    p = p * rest + all(2.402474518e-01f);
    p = p * rest + all(6.931218149e-01f);
    p = p * rest + all(9.999992613e-01f);
    return (v16)_mm512_scalef_ps((__m512)p, (__m512)n);
}

/* The share is the normal distribution's, half of erfc(-x / sqrt 2). With z = |x| / sqrt 2, exp(z^2) erfc(z) / 2 is a
   polynomial in 1 / (1 + .35 z), fitted to 1.5e-8 of its value on [0, 9.4] (asked up to 9), or for bfloat16 in 1 / (1 + .5 z), to
   1.7e-5; exp(-z^2) is the density's too, and nothing beyond. */
static inline __attribute__((always_inline)) v16 gelu_erf(v16 x, v16 *slope, int half) {
    v16 z = (v16)_mm512_min_ps((__m512)all(9.0f), (__m512)(size_of(x) * all(0.70710678f)));
    v16 e = exponential_of(-(z * z), half), t = inverse(z * all(half ? 0.5f : 0.35f) + all(1.0f), half), p;
    if (half) {
        p = all(-9.888531876e-02f);
        p = p * t + all(2.721529950e-01f);
        p = p * t + all(1.773570222e-02f);
        p = p * t + all(1.723014606e-01f);
        p = p * t + all(1.364364481e-01f);
        p = p * t + all(2.669783144e-04f);
    } else {
        p = all(3.363422250e-02f);
        p = p * t + all(-2.020462076e-01f);
        p = p * t + all(4.241921724e-01f);
        p = p * t + all(-3.754346222e-01f);
        p = p * t + all(3.403242692e-01f);
        p = p * t + all(-3.951508853e-02f);
        p = p * t + all(1.269585895e-01f);
        p = p * t + all(9.254067606e-02f);
        p = p * t + all(9.937502001e-02f);
        p = p * t + all(-2.903872559e-05f);
    }
    v16 tail = p * e, share = by_sign(x, tail, all(1.0f) - tail);
    *slope = share + x * e * all(0.39894228f);
    return x * share;
}

/* The share is s = sigmoid(z), z = 2 sqrt(2 / pi) (x + 0.044715 x^3): see activations.py. */
static inline __attribute__((always_inline)) v16 gelu_tanh(v16 x, v16 *slope, int half) {
    v16 linear = x * all(1.59576912f), z = linear * (x * x * all(0.044715f) + all(1.0f));
    v16 e = exponential_of(-size_of(z), half), whole = inverse(e + all(1.0f), half);
    v16 share = by_sign(z, e * whole, whole);
    *slope = share + e * whole * whole * (z * all(3.0f) - linear * all(2.0f));
    return x * share;
}

static inline __attribute__((always_inline)) v16 gelu(v16 x, v16 *slope, int kind, int half) {
    return kind == ERF ? gelu_erf(x, slope, half) : gelu_tanh(x, slope, half);
}

static inline __attribute__((always_inline)) void gelu_rows(const Gelu *a, int64_t begin, int64_t end, int backward,
                                                            float *sums, int kind, int half) {
    int64_t width = a->width;
    if (sums) memset(sums, 0, (size_t)width * sizeof(float));
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < width; i += LANES) {
            int64_t at = row * width + i;
            v16 slope, x = take(a->values, at, half);
            if (a->bias) x += load(a->bias + i);
            v16 result = gelu(x, &slope, kind, half);
            if (a->result) give(a->result, at, result, half);
            if (!backward) continue;
            slope *= take(a->slope, at, half);
            give(a->to_values, at, slope, half);
            if (sums) store(sums + i, load(sums + i) + slope);
        }
}

void gelu_pass(const Gelu *a, int backward, int threads) {
    int64_t chunks = chunks_of(a->rows);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t begin = chunk * CHUNK, end = begin + CHUNK < a->rows ? begin + CHUNK : a->rows;
        float *sums = backward && a->to_bias ? a->room + chunk * a->width : NULL;
        /* Copies of the code, each without questions inside. */
        if (a->half) {
            if (a->kind == ERF)
                backward ? gelu_rows(a, begin, end, 1, sums, ERF, 1) : gelu_rows(a, begin, end, 0, NULL, ERF, 1);
            else backward ? gelu_rows(a, begin, end, 1, sums, TANH, 1) : gelu_rows(a, begin, end, 0, NULL, TANH, 1);
        } else {
            if (a->kind == ERF)
                backward ? gelu_rows(a, begin, end, 1, sums, ERF, 0) : gelu_rows(a, begin, end, 0, NULL, ERF, 0);
            else backward ? gelu_rows(a, begin, end, 1, sums, TANH, 0) : gelu_rows(a, begin, end, 0, NULL, TANH, 0);
        }
    }
    if (backward && a->to_bias) add_up(a->room, chunks, a->width, a->to_bias);
}

/* --- dropout, residual and LayerNorm */

static inline __attribute__((always_inline)) void norm_row(const Norm *a, int64_t row, int drops, int half) {
    int64_t width = a->width, at = row * width;
    float *sums = a->sums + at, *result = a->result + at;
    v16 whole = all(0.0f), squares = all(0.0f);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 x = take(a->values, at + i, half) + load(a->bias + i);
        if (drops) x = dropped(&a->dropout, at + i, x);
        x += load(a->residual + at + i);
        whole += x;
        store(sums + i, x);
    }
    v16 mean = all(total(whole) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 x = load(sums + i) - mean;
        squares += x * x;
    }
    v16 rate = all(1.0f / sqrtf(total(squares) / (float)width + a->epsilon));
    for (int64_t i = 0; i < width; i += LANES)
        store(result + i, (load(sums + i) - mean) * rate * load(a->weight + i) + load(a->shift + i));
    a->about[2 * row] = mean[0];
    a->about[2 * row + 1] = rate[0];
}

static inline __attribute__((always_inline)) void norm_row_back(const Norm *a, int64_t row, float *to_weight, int drops,
                                                                int half) {
    int64_t width = a->width, at = row * width;
    float *to_shift = to_weight + width, *to_bias = to_shift + width;
    v16 mean = all(a->about[2 * row]), rate = all(a->about[2 * row + 1]), plain = all(0.0f), along = all(0.0f);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normed = (load(a->sums + at + i) - mean) * rate, slope = load(a->slope + at + i);
        store(to_weight + i, load(to_weight + i) + slope * normed);
        store(to_shift + i, load(to_shift + i) + slope);
        slope *= load(a->weight + i);
        plain += slope;
        along += slope * normed;
    }
    plain = all(total(plain) / (float)width);
    along = all(total(along) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normed = (load(a->sums + at + i) - mean) * rate, slope = load(a->slope + at + i) * load(a->weight + i);
        slope = (slope - plain - normed * along) * rate;
        store(a->to_residual + at + i, slope);
        if (drops) slope = dropped(&a->dropout, at + i, slope);
        if (a->to_values) give(a->to_values, at + i, slope, half);
        store(to_bias + i, load(to_bias + i) + slope);
    }
}

static inline __attribute__((always_inline)) void norm_rows(const Norm *a, int64_t begin, int64_t end, int backward,
                                                            float *sums, int drops, int half) {
    if (backward) memset(sums, 0, (size_t)(3 * a->width) * sizeof(float));
    for (int64_t row = begin; row < end; row++)
        if (backward) norm_row_back(a, row, sums, drops, half);
        else norm_row(a, row, drops, half);
}

void norm_pass(const Norm *a, int backward, int threads) {
    int64_t chunks = chunks_of(a->rows), width = a->width;
    int drops = a->dropout.rows != NULL;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t begin = chunk * CHUNK, end = begin + CHUNK < a->rows ? begin + CHUNK : a->rows;
        float *sums = backward ? a->room + chunk * 3 * width : NULL;
        if (a->half) {
            if (drops) norm_rows(a, begin, end, backward, sums, 1, 1);
            else norm_rows(a, begin, end, backward, sums, 0, 1);
        } else {
            if (drops) norm_rows(a, begin, end, backward, sums, 1, 0);
            else norm_rows(a, begin, end, backward, sums, 0, 0);
        }
    }
    if (backward) add_up(a->room, chunks, 3 * width, a->to_weight);
}

/* --- sums of columns */

void sum_columns(const Sums *a, int threads) {
    int64_t chunks = chunks_of(a->rows), width = a->width;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t begin = chunk * CHUNK, end = begin + CHUNK < a->rows ? begin + CHUNK : a->rows;
        float *sums = a->room + chunk * width;
        memset(sums, 0, (size_t)width * sizeof(float));
        for (int64_t row = begin; row < end; row++)
            for (int64_t i = 0, at = row * width; i < width; i += LANES) {
                v16 values = a->half ? take(a->values, at + i, 1) : take(a->values, at + i, 0);
                store(sums + i, load(sums + i) + values);
            }
    }
    add_up(a->room, chunks, width, a->sums);
}
