/* Units chosen within each sequence of a flat batch, one sequence after another, by the plain loops that the maskings
   describe. One thread. Each function has its twin in NumPy (`choosing.py` says which).

   B sequences lie one behind the other; sequence s has the tokens cu_seqlens[s] to cu_seqlens[s + 1]. A key orders a
   token among those of its sequence, the smallest first; keys differ, and NOBODY is that of a token in no order. What
   is chosen is written in ascending order, and how many units there are is returned; -1 where memory is short. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mixing.h"

#define NOBODY UINT64_MAX
#define OFFSET ((1ull << 36) - 1) /* the bits of a key that say which token it is */
#define AT_ONCE 16 /* keys sorted together: about as many as a sequence of some dozens of tokens needs */
#define MOST_RANKED 64

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

/* --- tokens of a sequence in order, a few at a time */

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

/* --- what all loops below share */

/* One past the last token of the unit that begins at a token; units end where sequences do. */
static int64_t end_of(const uint8_t *begins, int64_t token, int64_t stop) {
    do token++;
    while (token < stop && !begins[token]);
    return token;
}

/* Whether no run of words goes on from one that begins at `token` to one that begins at its end. */
static int is_last(const Choice *c, int64_t token, int64_t end, int64_t stop) {
    return end == stop || c->special[token] || c->special[end] || !c->maskable[end];
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

/* Windows of words in order, each shortened until it fits the budget, and taken if it meets no other. */
WIDEST int64_t windows_in_order(const Choice *c) {
    int64_t longest = longest_of(c), chosen = 0;
    uint64_t *room = malloc((size_t)longest * sizeof *room);
    Units units = room_for_units(longest);
    uint8_t *covered = malloc((size_t)longest);
    if (!room || !units.begun || !units.sizes || !covered) chosen = -1;
    for (int64_t s = 0; chosen >= 0 && s < c->sequences; s++) {
        int64_t begin = c->cu_seqlens[s], stop = c->cu_seqlens[s + 1], left = c->budgets[s], token;
        Order order = order_of(c->keys + begin, stop - begin, room);
        memset(covered, 0, (size_t)(stop - begin));
        while (left > 0 && (token = next_token(&order)) >= 0) {
            if (covered[token - begin]) continue;
            int64_t cost = 0, end = token, meets = 0;
            for (int64_t wanted = drawn_length(c, c->length_keys[s], token - begin); wanted; wanted--) {
                int64_t word = end, after = end_of(c->begins, word, stop);
                int64_t price = c->counts_words ? 1 : after - word;
                if (cost + price > left) break;
                cost += price;
                end = after;
                meets |= covered[word - begin];
                if (is_last(c, word, after, stop)) break;
            }
            if (!cost || meets) continue;
            memset(covered + (token - begin), 1, (size_t)(end - token));
            add_unit(&units, token - begin, end - token);
            left -= cost;
        }
        chosen = write_units(c, chosen, &units, begin, stop);
    }
    free(room);
    free(units.begun);
    free(units.sizes);
    free(covered);
    return chosen;
}

/* Windows of words from left to right, whose lengths use up the budget of words. */
WIDEST int64_t windows_from_left_to_right(const Choice *c) {
    int64_t longest = longest_of(c), chosen = 0;
    uint64_t *keys = malloc((size_t)longest * sizeof *keys);
    int64_t *words = malloc((size_t)longest * sizeof *words), *lengths = malloc((size_t)longest * sizeof *lengths);
    if (!keys || !words || !lengths) chosen = -1;
    for (int64_t s = 0; chosen >= 0 && s < c->sequences; s++) {
        int64_t begin = c->cu_seqlens[s], stop = c->cu_seqlens[s + 1], num_words = 0;
        for (int64_t token = begin; token < stop; token++) {
            words[num_words] = token;
            keys[num_words] = c->keys[token];
            num_words += c->begins[token] & c->maskable[token];
        }
        int64_t wanted = c->budgets[s] < num_words ? c->budgets[s] : num_words, windows = 0;
        for (int64_t before = 0; before < wanted; before += lengths[windows++]) {
            int64_t length = drawn_length(c, c->length_keys[s], windows);
            lengths[windows] = length < wanted - before ? length : wanted - before;
        }
        /* m windows of k words stand among N - k others: m of N - k + m places, moved on by what stands before them. */
        int64_t places = num_words - wanted + windows, moved = 0;
        uint64_t bound = windows ? bound_of(keys, places, windows) : 0;
        for (int64_t place = 0, window = 0; window < windows; place++) {
            if (keys[place] > bound) continue;
            int64_t first = place + moved, last = first + lengths[window] - 1;
            moved += lengths[window++] - 1;
            for (int64_t head = first, word = first; word <= last; word++) {
                int64_t end = end_of(c->begins, words[word], stop);
                if (word < last && !is_last(c, words[word], end, stop)) continue;
                c->starts[chosen] = words[head];
                c->ends[chosen++] = end;
                head = word + 1;
            }
        }
    }
    free(keys);
    free(words);
    free(lengths);
    return chosen;
}

/* --- spans */

typedef struct {
    int64_t start, size; /* tokens */
    int64_t masked;      /* how many of its first tokens */
    int64_t is_wall;
} Word;

/* Whether some word that is not masked has no more tokens than are left. */
static int fits_somewhere(const Word *words, int64_t count, int64_t left) {
    for (int64_t i = 0; i < count; i++)
        if (!words[i].is_wall && !words[i].masked && words[i].size <= left) return 1;
    return 0;
}

/* Spans of words, again and again from an anchor that is drawn among all tokens, until the budget is met. */
int64_t spans(const Choice *c) {
    int64_t longest = longest_of(c), chosen = 0;
    Word *words = malloc((size_t)(longest + 1) * sizeof *words);      /* and one behind the last */
    int64_t *anchors = malloc((size_t)longest * sizeof *anchors); /* the word of each token that may be drawn */
    if (!words || !anchors) chosen = -1;
    for (int64_t s = 0; chosen >= 0 && s < c->sequences; s++) {
        int64_t begin = c->cu_seqlens[s], stop = c->cu_seqlens[s + 1], num_words = 0, candidates = 0;
        for (int64_t token = begin; token < stop; token++) {
            /* A token that begins no word is written over by the next: no branch is taken that nobody can foresee. */
            words[num_words] = (Word){.start = token, .is_wall = !c->maskable[token]};
            num_words += c->begins[token] | (token == begin);
            anchors[candidates] = num_words - 1;
            candidates += c->maskable[token];
        }
        words[num_words].start = stop;
        for (int64_t i = 0; i < num_words; i++) words[i].size = words[i + 1].start - words[i].start;
        int64_t left = c->budgets[s] < candidates ? c->budgets[s] : candidates;
        int goes_on = left > 0 && (c->cuts || fits_somewhere(words, num_words, left));
        for (int64_t round = 0; goes_on; round++) {
            int64_t word = anchors[(int64_t)(uniform_of(c->place_keys[s], round) * (double)candidates)];
            if (words[word].masked) continue;
            int64_t before = left;
            for (int64_t wanted = drawn_length(c, c->length_keys[s], round); wanted && left; wanted--, word++) {
                if (word == num_words || words[word].is_wall) break;
                if (words[word].masked) continue;
                if (words[word].size > left && !c->cuts) break;
                words[word].masked = words[word].size < left ? words[word].size : left;
                left -= words[word].masked;
            }
            goes_on = left > 0 && (c->cuts || left == before || fits_somewhere(words, num_words, left));
        }
        int64_t first = chosen;
        for (int64_t i = 0; i < num_words; i++) {
            if (!words[i].masked) continue;
            if (chosen > first && c->ends[chosen - 1] == words[i].start) chosen--; /* spans that touch are one unit */
            else c->starts[chosen] = words[i].start;
            c->ends[chosen++] = words[i].start + words[i].masked;
        }
    }
    free(words);
    free(anchors);
    return chosen;
}

/* One past the last token of the units that begin at some tokens, which ascend. (T,) begins, (count,) the others. */
void ends_of_units(const uint8_t *begins, int64_t tokens, const int64_t *starts, int64_t count, int64_t *ends) {
    for (int64_t i = 0; i < count; i++) ends[i] = end_of(begins, starts[i], tokens);
}
