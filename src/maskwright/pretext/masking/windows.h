/* Windows of words (`ngram.py`, `windows.py`): in random order, or from left to right. */

#pragma once

#include "units.h"

/* Whether no run of words goes on from one that begins at `token` to one that begins at its end. */
static int is_last(const Choice *c, int64_t token, int64_t end, int64_t stop) {
    return end == stop || c->special[token] || c->special[end] || !c->maskable[end];
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
