/* Tokens of each sequence in a random order (`order.py`): their keys, the first of them, and one after another. */

#pragma once

#include "choice.h"

#define AT_ONCE 16 /* keys sorted together: about as many as a sequence of some dozens of tokens needs */
#define MOST_RANKED 64

/* The keys of `RandomOrder`: random bits above a token's offset in the batch; NOBODY where one is not wanted. */
INLINED uint64_t order_key(uint64_t bits, int64_t token, uint8_t wanted) {
    return (bits & ~OFFSET) | (uint64_t)token | ((uint64_t)wanted - 1);
}

WIDEST void order_keys(
    const uint64_t *keys, const int64_t *cu_seqlens, int64_t sequences, const uint8_t *wanted, uint64_t *restrict order
) {
    for (int64_t s = 0; s < sequences; s++) {
        int64_t end = cu_seqlens[s + 1], begin = cu_seqlens[s];
        uint64_t key = keys[s];
        for (int64_t i = begin; i < end; i++) order[i] = order_key(bits_of(key, i - begin), i, wanted[i]);
    }
}

/* The same where tokens have weights: first the number of which log1p is to be taken, a negative uniform one; then, in
   the place of each logarithm, the key, whose bits are those of a waiting time. */
WIDEST void waiting_numbers(
    const uint64_t *keys, const int64_t *cu_seqlens, int64_t sequences, double *restrict numbers
) {
    for (int64_t s = 0; s < sequences; s++) {
        int64_t end = cu_seqlens[s + 1], begin = cu_seqlens[s];
        uint64_t key = keys[s];
        for (int64_t i = begin; i < end; i++) numbers[i] = -uniform_of(key, i - begin);
    }
}

WIDEST void weighted_order_keys(
    double *restrict numbers, const double *weights, const int32_t *ids, int64_t tokens, const uint8_t *wanted
) {
    for (int64_t i = 0; i < tokens; i++) {
        union { float time; uint32_t bits; } waiting = {(float)(numbers[i] / -weights[ids[i]])};
        uint64_t key = order_key((uint64_t)waiting.bits << 33, i, wanted[i]);
        memcpy(numbers + i, &key, sizeof key);
    }
}

/* A bound that exactly `count` keys do not exceed, found by halving: no key is moved. 0 < count <= those in order. */
INLINED uint64_t bound_of(const uint64_t *keys, int64_t length, int64_t count) {
    uint64_t low = 0, high = NOBODY - 1; /* fewer than `count` lie below low, at least `count` at most at high */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int64_t reached = 0;
        for (int64_t i = 0; i < length; i++) reached += keys[i] <= middle;
        if (reached == count) return middle;
        if (reached < count) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The first tokens in order of each sequence, budgets[s] of them or all. */
WIDEST int64_t first_tokens(const Choice *c) {
    int64_t chosen = 0;
    for (int64_t s = 0; s < c->sequences; s++) {
        int64_t begin = c->cu_seqlens[s], length = c->cu_seqlens[s + 1] - begin, there = 0;
        const uint64_t *keys = c->keys + begin;
        for (int64_t i = 0; i < length; i++) there += keys[i] != NOBODY;
        int64_t count = c->budgets[s] < there ? c->budgets[s] : there;
        if (count <= 0) continue;
        uint64_t bound = bound_of(keys, length, count);
        int64_t end = chosen + count;
        for (int64_t i = 0; chosen < end; i++) {
            c->starts[chosen] = begin + i;
            chosen += keys[i] <= bound;
        }
    }
    return chosen;
}

/* --- one after another, a few at a time */

typedef struct {
    const uint64_t *keys;
    int64_t length;
    uint64_t step;  /* how far keys are looked at together */
    uint64_t below; /* those below have been sorted */
    int64_t sorted, next;
    int32_t done;
    uint64_t *room; /* (length,) */
} Order;

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts up to MOST_RANKED values by counting how many are smaller than each: no branch, and all at the same time. */
INLINED void sort(uint64_t *values, int64_t count) {
    if (count > MOST_RANKED) { /* keys that crowd by chance */
        qsort(values, (size_t)count, sizeof *values, by_size);
        return;
    }
    uint64_t given[MOST_RANKED], ranks[MOST_RANKED] = {0};
    int64_t padded = (count + 7) / 8 * 8;
    for (int64_t i = 0; i < padded; i++) given[i] = i < count ? values[i] : NOBODY;
    for (int64_t j = 0; j < count; j++) {
        uint64_t other = given[j];
        for (int64_t i = 0; i < padded; i++) ranks[i] += given[i] > other;
    }
    for (int64_t i = 0; i < count; i++) values[ranks[i]] = given[i];
}

static Order order_of(const uint64_t *keys, int64_t length, uint64_t *room) {
    uint64_t step = length > AT_ONCE ? NOBODY / (uint64_t)length * AT_ONCE : NOBODY;
    return (Order){.keys = keys, .length = length, .step = step, .room = room};
}

/* The next token's offset; -1 after the last. */
INLINED int64_t next_token(Order *o) {
    while (o->next == o->sorted) {
        if (o->done) return -1;
        uint64_t end = NOBODY - o->below > o->step ? o->below + o->step : NOBODY;
        int64_t found = 0;
        for (int64_t i = 0; i < o->length; i++) {
            o->room[found] = o->keys[i];
            found += o->keys[i] - o->below < end - o->below;
        }
        o->below = end;
        o->done = end == NOBODY;
        o->sorted = found;
        o->next = 0;
        sort(o->room, found);
    }
    return (int64_t)(o->room[o->next++] & OFFSET);
}
