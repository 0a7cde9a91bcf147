/* Sixteen fp32 numbers at a time, for processors with AVX512. */

#pragma once

#if !defined(__GNUC__) || defined(__clang__)
#error "needs GNU C: other compilers bring an OpenMP of their own, a second team of threads beside PyTorch's"
#endif

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));

static inline v16 load(const float *from) { return *(const v16 *)from; }
static inline void store(float *to, v16 values) { *(v16 *)to = values; }
static inline v16 all(float value) { return (v16)_mm512_set1_ps(value); }
/* The second where one of them is NaN. */
static inline v16 larger(v16 a, v16 b) { return (v16)_mm512_max_ps((__m512)a, (__m512)b); }
static inline float total(v16 values) { return _mm512_reduce_add_ps((__m512)values); }
static inline float highest(v16 values) { return _mm512_reduce_max_ps((__m512)values); }
static inline int64_t whole_registers(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* exp(x) for x <= 0: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes, expf). Below -87 it is 1e-38. */
static inline v16 exponential(v16 x) {
    x = larger(all(-87.0f), x);
    v16 n = (v16)_mm512_roundscale_ps((__m512)(x * all(1.44269504f)), 0);
    v16 rest = x - n * all(0.693359375f) + n * all(2.12194440e-4f);
    v16 p = all(1.9875691500e-4f);
    p = p * rest + all(1.3981999507e-3f);
    p = p * rest + all(8.3334519073e-3f);
    p = p * rest + all(4.1665795894e-2f);
    p = p * rest + all(1.6666665459e-1f);
    p = p * rest + all(5.0000001201e-1f);
    p = p * rest * rest + rest + all(1.0f);
    return (v16)_mm512_scalef_ps((__m512)p, (__m512)n);
}
