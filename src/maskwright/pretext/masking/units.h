/* Whole units (`units.py`): in order until a budget is full, or each by chance (`levels.py`). */

#pragma once

#include "order.h"

/* One past the last token of the unit that begins at a token; units end where sequences do. */
static int64_t end_of(const uint8_t *begins, int64_t token, int64_t stop) {
    do token++;
    while (token < stop && !begins[token]);
    return token;
}

/* The units of a sequence as they are chosen: a bit for each token at which one begins, and how many it has. */
typedef struct {
    uint64_t *begun; /* (longest / 64 + 1,), all 0 between sequences */
    int64_t *sizes;  /* (longest,) */
} Units;

static Units room_for_units(int64_t longest) {
    size_t tokens = (size_t)longest;
    return (Units){.begun = calloc(tokens / 64 + 1, sizeof(uint64_t)), .sizes = malloc(tokens * sizeof(int64_t))};
}

static void add_unit(Units *u, int64_t offset, int64_t size) {
    u->begun[offset / 64] |= 1ull << offset % 64;
    u->sizes[offset] = size;
}

/* Writes the units of a sequence that begins at a token, and forgets them. */
static int64_t write_units(const Choice *c, int64_t chosen, Units *u, int64_t begin, int64_t stop) {
    for (int64_t word = 0; word * 64 < stop - begin; word++) {
        for (uint64_t bits = u->begun[word]; bits; bits &= bits - 1) {
            int64_t offset = word * 64 + __builtin_ctzll(bits);
            c->starts[chosen] = begin + offset;
            c->ends[chosen++] = begin + offset + u->sizes[offset];
        }
        u->begun[word] = 0;
    }
    return chosen;
}

/* Whole units in order, each that still fits its sequence's budget of tokens. */
WIDEST int64_t units_until_full(const Choice *c) {
    int64_t longest = longest_of(c), chosen = 0;
    uint64_t *room = malloc((size_t)longest * sizeof *room);
    Units units = room_for_units(longest);
    if (!room || !units.begun || !units.sizes) chosen = -1;
    for (int64_t s = 0; chosen >= 0 && s < c->sequences; s++) {
        int64_t begin = c->cu_seqlens[s], stop = c->cu_seqlens[s + 1], left = c->budgets[s], token;
        Order order = order_of(c->keys + begin, stop - begin, room);
        while (left > 0 && (token = next_token(&order)) >= 0) {
            int64_t size = end_of(c->begins, token, stop) - token;
            if (size > left) continue;
            add_unit(&units, token - begin, size);
            left -= size;
        }
        chosen = write_units(c, chosen, &units, begin, stop);
    }
    free(room);
    free(units.begun);
    free(units.sizes);
    return chosen;
}

/* Each unit by itself, those whose number in [0, 1) lies below bounds[0]; where none does, that with the smallest. */
WIDEST int64_t units_by_chance(const Choice *c) {
    int64_t longest = longest_of(c), chosen = 0;
    double bound = c->bounds[0] * 0x1p53; /* as in `uniform_of` */
    uint64_t *numbers = malloc((size_t)longest * sizeof *numbers); /* NOBODY where no unit begins that may be chosen */
    if (!numbers) chosen = -1;
    for (int64_t s = 0; chosen >= 0 && s < c->sequences; s++) {
        int64_t begin = c->cu_seqlens[s], stop = c->cu_seqlens[s + 1], length = stop - begin, first = chosen;
        const uint8_t *begins = c->begins + begin, *maskable = c->maskable + begin;
        uint64_t key = c->place_keys[s];
        for (int64_t i = 0; i < length; i++)
            numbers[i] = bits_of(key, i) | ((uint64_t)(begins[i] & maskable[i]) - 1);
        for (int64_t i = 0; i < length; i++) {
            c->starts[chosen] = begin + i;
            chosen += (double)(int64_t)(numbers[i] >> 11) < bound;
        }
        if (chosen == first && length > 0) {
            int64_t least = 0;
            for (int64_t i = 1; i < length; i++)
                if (numbers[i] < numbers[least]) least = i;
            c->starts[chosen] = begin + least;
            chosen += numbers[least] != NOBODY;
        }
        for (int64_t i = first; i < chosen; i++) c->ends[i] = end_of(c->begins, c->starts[i], stop);
    }
    free(numbers);
    return chosen;
}

/* One past the last token of the units that begin at some tokens, which ascend. (T,) begins, (count,) the others. */
void ends_of_units(const uint8_t *begins, int64_t tokens, const int64_t *starts, int64_t count, int64_t *ends) {
    for (int64_t i = 0; i < count; i++) ends[i] = end_of(begins, starts[i], tokens);
}
