/* Products of small matrices whose sums stay in registers. */

#pragma once

#include "layout.h"

#define ROWS 8 /* tokens together: 8 x 3 of the 32 registers hold sums */

/* Products: to (ROWS x 16 C) = left (ROWS x k) right (k x 16 C), or added to what is there. Sums stay in registers.
   k counts numbers, or pairs of bfloat16 where `pairs` is set. */

/* By name, since what includes this also runs where the instruction is not known. */
static inline __attribute__((always_inline)) v16 with_product(v16 sum, v16 one, v16 other, int pairs) {
    if (!pairs) return sum + one * other;
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(one), "v"(other));
    return sum;
}

/* Functions by themselves: inlined, they leave too few registers for the addresses of eight rows. The empty instruction
   has the compiler load a column once, and not again for each product. */
#define TILE(NAME, C, PAIRED)                                                                                          \
    static __attribute__((noinline)) void NAME(const float *left, int64_t down, int64_t across, const float *right,    \
                                               int64_t stride, int64_t k, float *to, int64_t to_stride, int adds) {    \
        v16 sums[ROWS][C];                                                                                             \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
            UNROLL for (int c = 0; c < C; c++) sums[r][c] = adds ? load(to + r * to_stride + LANES * c) : all(0.0f);   \
        for (int64_t i = 0; i < k; i++, left += across, right += stride) {                                             \
            v16 columns[C];                                                                                            \
            UNROLL for (int c = 0; c < C; c++) {                                                                       \
                columns[c] = load(right + LANES * c);                                                                  \
                __asm__("" : "+v"(columns[c]));                                                                        \
            }                                                                                                          \
            UNROLL for (int r = 0; r < ROWS; r++) {                                                                    \
                v16 one = all(left[r * down]);                                                                         \
                UNROLL for (int c = 0; c < C; c++) sums[r][c] = with_product(sums[r][c], one, columns[c], PAIRED);     \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
            UNROLL for (int c = 0; c < C; c++) store(to + r * to_stride + LANES * c, sums[r][c]);                      \
    }
TILE(tile1, 1, 0)
TILE(tile2, 2, 0)
TILE(tile3, 3, 0)
TILE(paired1, 1, 1)
TILE(paired2, 2, 1)
TILE(paired3, 3, 1)

/* ROWS x width (whole registers). */
static inline __attribute__((always_inline)) void multiply(const float *left, int64_t down, int64_t across,
                                                           const float *right, int64_t stride, int64_t k, float *to,
                                                           int64_t to_stride, int64_t width, int adds, int pairs) {
    int64_t at = 0;
    /* Four registers are better two and two than three and one. */
    for (; width - at >= 3 * LANES && width - at != 4 * LANES; at += 3 * LANES)
        (pairs ? paired3 : tile3)(left, down, across, right + at, stride, k, to + at, to_stride, adds);
    for (; width - at >= 2 * LANES; at += 2 * LANES)
        (pairs ? paired2 : tile2)(left, down, across, right + at, stride, k, to + at, to_stride, adds);
    if (at < width) (pairs ? paired1 : tile1)(left, down, across, right + at, stride, k, to + at, to_stride, adds);
}
