/* Spans of words (`span.py`). */

#pragma once

#include "choice.h"

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
