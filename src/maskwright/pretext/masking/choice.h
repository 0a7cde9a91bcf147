/* What units are chosen from, and how (`choosing.py`), and what all ways of choosing share. */

#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mixing.h"

#define NOBODY UINT64_MAX
#define OFFSET ((1ull << 36) - 1) /* the bits of a key that say which token it is */

typedef struct {
    const int64_t *cu_seqlens;
    int64_t sequences;
    const uint8_t *begins;   /* (T,), 1 where a unit or word begins */
    const uint8_t *maskable; /* (T,), 1 where a token may be chosen */
    const uint8_t *special;  /* (T,) */
    const uint64_t *keys;    /* (T,), see above */
    const int64_t *budgets;  /* (B,) */
    const uint64_t *length_keys; /* (B,), random numbers for lengths */
    const uint64_t *place_keys;  /* (B,), random numbers for places */
    const double *bounds;    /* (num_bounds,): a number that reaches n of them stands for a length of n + 1 */
    int64_t num_bounds;
    int32_t counts_words;    /* whether budgets count words instead of tokens */
    int32_t cuts;            /* whether a unit is cut where the budget ends */
    int64_t *starts, *ends;  /* (as many as can be chosen,), written */
} Choice;

static int64_t longest_of(const Choice *c) {
    int64_t longest = 1;
    for (int64_t s = 0; s < c->sequences; s++) {
        int64_t length = c->cu_seqlens[s + 1] - c->cu_seqlens[s];
        if (length > longest) longest = length;
    }
    return longest;
}

static int64_t drawn_length(const Choice *c, uint64_t key, int64_t counter) {
    double number = uniform_of(key, counter);
    int64_t length = 1;
    for (int64_t i = 0; i < c->num_bounds; i++) length += number >= c->bounds[i];
    return length;
}
