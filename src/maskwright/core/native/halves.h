/* Sixteen numbers at a time that lie in memory as fp32 or as bfloat16. */

#pragma once

#include "registers.h"

static inline __attribute__((always_inline)) v16 take(const void *from, int64_t at, int half) {
    if (!half) return load((const float *)from + at);
    __m256i bits = _mm256_loadu_si256((const __m256i *)((const uint16_t *)from + at));
    return (v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}

static inline __attribute__((always_inline)) void give(void *to, int64_t at, v16 values, int half) {
    if (!half) {
        store((float *)to + at, values);
        return;
    }
    /* To the nearest, ties to even. By name, since what includes this also runs where the instruction is not known. */
    __m256i bits;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(values));
    _mm256_storeu_si256((__m256i *)((uint16_t *)to + at), bits);
}
