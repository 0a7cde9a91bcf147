/* Values of one head as they come and go, fp32 or bfloat16 with any distance between tokens, and laid for products.

   Laying them side by side, in fp32 or as pairs of bfloat16, is n numbers for every n^2, and spares the products both the
   conversion and the strides of powers of two that throw each other out of a cache. */

#pragma once

#include "registers.h"

#define UNROLL _Pragma("GCC unroll 16")

/* How values lie in memory. PAIRS is bfloat16 too, for heads of a multiple of 32 numbers and processors that have the
   instruction vdpbf16ps: where both factors come in as bfloat16 (queries by keys, slopes by values), pairs of them are
   multiplied at once. A product of two is exact in fp32, and the instruction adds one after the other (Intel's manual;
   AMD's Zen 4 was asked): the sums are those of BF16 to the bit, but that numbers below 1e-38 are zero to it.
   Probabilities and the slopes of scores stay fp32, and so do the products they are in. */
typedef enum { FP32, BF16, PAIRS } Kind;

static inline int64_t bytes_of(Kind kind) { return kind == FP32 ? 4 : 2; }

typedef struct {
    const void *first; /* of the run's first token and this head */
    int64_t stride; /* numbers from token to token */
} Values;

typedef struct {
    void *first;
    int64_t stride;
} Results;

static inline __attribute__((always_inline)) v16 take(Values values, int64_t token, int64_t i, Kind kind) {
    if (kind == FP32) return load((const float *)values.first + token * values.stride + i);
    __m256i bits = _mm256_loadu_si256((const __m256i *)((const uint16_t *)values.first + token * values.stride + i));
    return (v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}

static inline __attribute__((always_inline)) void give(Results to, int64_t token, int64_t i, v16 values, Kind kind) {
    if (kind == FP32) {
        store((float *)to.first + token * to.stride + i, values);
        return;
    }
    /* To the nearest, ties to even; what is no number stays none. */
    __m512i bits = (__m512i)values;
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 none = _mm512_cmp_ps_mask((__m512)values, (__m512)values, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, none, _mm512_set1_epi32(0x7fc00000));
    _mm256_storeu_si256((__m256i *)((uint16_t *)to.first + token * to.stride + i),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

static inline Values from(Values values, int64_t token, Kind kind) {
    return (Values){(const char *)values.first + token * values.stride * bytes_of(kind), values.stride};
}

/* Lay n tokens side by side, and zeros in the places behind them. */
static inline __attribute__((always_inline)) void lay(Values values, int64_t n, int64_t places, int64_t d, float *to,
                                                      Kind kind) {
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < d; i += LANES) store(to + token * d + i, take(values, token, i, kind));
    for (int64_t i = n * d; i < places * d; i += LANES) store(to + i, all(0.0f));
}

/* Sixteen pairs of bfloat16, from pair i on. The instruction adds the product of the upper halves first, so the first
   of a pair goes there. */
static inline __attribute__((always_inline)) v16 take_pairs(Values values, int64_t token, int64_t i) {
    const uint16_t *at = (const uint16_t *)values.first + token * values.stride + 2 * i;
    return (v16)_mm512_rol_epi32(_mm512_loadu_si512(at), 16);
}

/* Lay n tokens side by side as factors of products along d, and zeros in the places behind them: d numbers of each, or
   d / 2 pairs. */
static inline __attribute__((always_inline)) void lay_factors(Values values, int64_t n, int64_t places, int64_t d,
                                                              float *to, Kind kind) {
    if (kind != PAIRS) {
        lay(values, n, places, d, to, kind);
        return;
    }
    int64_t count = d / 2;
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < count; i += LANES) store(to + token * count + i, take_pairs(values, token, i));
    for (int64_t i = n * count; i < places * count; i += LANES) store(to + i, all(0.0f));
}

/* Lay n tokens as columns of a matrix (d x wide, or d / 2 x wide pairs), and zeros behind them. */
static inline __attribute__((always_inline)) void turn(Values values, int64_t n, int64_t d, float *to, Kind kind) {
    int64_t wide = whole_registers(n), count = kind == PAIRS ? d / 2 : d;
    for (int64_t token = 0; token < wide; token += LANES)
        for (int64_t i = 0; i < count; i += LANES) {
            __m512 a[LANES], b[LANES];
            UNROLL for (int r = 0; r < LANES; r++)
                a[r] = token + r >= n  ? _mm512_setzero_ps()
                       : kind == PAIRS ? (__m512)take_pairs(values, token + r, i)
                                       : (__m512)take(values, token + r, i, kind);
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
