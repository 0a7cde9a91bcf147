/* Work on flat batches: random numbers of tokens, and runs copied from array to array. One thread, no memory of its own.

   B sequences lie one behind the other; sequence s has the tokens cu_seqlens[s] to cu_seqlens[s + 1]. */

#include <stdint.h>
#include <string.h>

#include "mixing.h"

/* The random number of every token. */
WIDEST void bits_everywhere(const uint64_t *keys, const int64_t *cu_seqlens, int64_t sequences, uint64_t *bits) {
    for (int64_t s = 0; s < sequences; s++) {
        uint64_t *to = bits + cu_seqlens[s];
        int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
        for (int64_t i = 0; i < length; i++) to[i] = bits_of(keys[s], i);
    }
}

/* The random numbers of some tokens, which ascend. */
void bits_of_tokens(
    const uint64_t *keys, const int64_t *cu_seqlens, const int64_t *tokens, int64_t count, uint64_t *bits
) {
    int64_t s = 0;
    for (int64_t i = 0; i < count; i++) {
        while (tokens[i] >= cu_seqlens[s + 1]) s++;
        bits[i] = bits_of(keys[s], tokens[i] - cu_seqlens[s]);
    }
}

/* Copies runs of items from places in one array to places in another. */
void copy_runs(
    const char *from, const int64_t *from_starts, char *to, const int64_t *to_starts, const int64_t *lengths,
    int64_t runs, int64_t item
) {
    for (int64_t i = 0; i < runs; i++)
        memcpy(to + to_starts[i] * item, from + from_starts[i] * item, (size_t)(lengths[i] * item));
}

/* Copies runs of ids, of two or four bytes, to places in an array of wider ones. */
void widen_runs(
    const void *from, int64_t item, const int64_t *from_starts, int32_t *to, const int64_t *to_starts,
    const int64_t *lengths, int64_t runs
) {
    for (int64_t i = 0; i < runs; i++) {
        int32_t *there = to + to_starts[i];
        const uint16_t *here = (const uint16_t *)from + from_starts[i];
        if (item == sizeof(*there)) memcpy(there, (const int32_t *)from + from_starts[i], (size_t)(lengths[i] * item));
        else for (int64_t j = 0; j < lengths[i]; j++) there[j] = here[j];
    }
}

/* Writes runs of packed bits, the lowest of a byte first, as bytes of 0 and 1. */
void unpack_runs(
    const uint8_t *from, const int64_t *from_starts, uint8_t *to, const int64_t *to_starts, const int64_t *lengths,
    int64_t runs
) {
    for (int64_t i = 0; i < runs; i++)
        for (int64_t j = 0; j < lengths[i]; j++) {
            int64_t bit = from_starts[i] + j;
            to[to_starts[i] + j] = from[bit >> 3] >> (bit & 7) & 1;
        }
}

/* The numbers from each run's start on, one run after another. */
void list_runs(const int64_t *starts, const int64_t *lengths, int64_t runs, int64_t *numbers) {
    for (int64_t i = 0; i < runs; i++)
        for (int64_t j = 0; j < lengths[i]; j++) *numbers++ = starts[i] + j;
}
