/* Work on flat batches: random numbers of tokens and what they decide, and runs copied from array to array. One thread,
   no memory of its own.

   B sequences lie one behind the other; sequence s has the tokens cu_seqlens[s] to cu_seqlens[s + 1]. */

#include <stdint.h>
#include <string.h>

#include "mixing.h"

/* The random number of every token. */
WIDEST void bits_everywhere(
    const uint64_t *keys, const int64_t *cu_seqlens, int64_t sequences, uint64_t *restrict bits
) {
    for (int64_t s = 0; s < sequences; s++) {
        uint64_t key = keys[s], *restrict to = bits + cu_seqlens[s];
        int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
        for (int64_t i = 0; i < length; i++) to[i] = bits_of(key, i);
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

/* Puts an id at those tokens of some units, which ascend, whose random number (or that of their unit's first token)
   lies below a bound. Which tokens have one from there to below another is written; how many is returned. */
int64_t put_below(
    const uint64_t *keys, const int64_t *cu_seqlens, const int64_t *starts, const int64_t *ends, int64_t units,
    int32_t by_unit, double bound, double next_bound, int32_t id, int32_t *ids, int64_t *others
) {
    int64_t s = 0, found = 0;
    for (int64_t i = 0; i < units; i++) {
        int64_t start = starts[i], end = ends[i];
        for (int64_t token = start; token < end; token++) {
            int64_t asked = by_unit ? start : token;
            while (asked >= cu_seqlens[s + 1]) s++;
            double number = uniform_of(keys[s], asked - cu_seqlens[s]);
            int32_t put = -(number < bound); /* all bits, so that no branch is taken that nobody can foresee */
            ids[token] = (id & put) | (ids[token] & ~put);
            others[found] = token;
            found += (number >= bound) & (number < next_bound);
        }
    }
    return found;
}

/* Copies runs of items from places in one array to places in another. */
void copy_runs(
    const char *from, const int64_t *from_starts, char *to, const int64_t *to_starts, const int64_t *lengths,
    int64_t runs, int64_t item
) {
    for (int64_t i = 0; i < runs; i++)
        memcpy(to + to_starts[i] * item, from + from_starts[i] * item, (size_t)(lengths[i] * item));
}

/* Copies runs of ids of two bytes to places in an array of wider ones. */
WIDEST void widen_runs(
    const uint16_t *from, const int64_t *from_starts, int32_t *to, const int64_t *to_starts, const int64_t *lengths,
    int64_t runs
) {
    for (int64_t i = 0; i < runs; i++) {
        const uint16_t *here = from + from_starts[i];
        int32_t *restrict there = to + to_starts[i];
        int64_t length = lengths[i];
        for (int64_t j = 0; j < length; j++) there[j] = here[j];
    }
}

/* Writes runs of packed bits, the lowest of a byte first, as bytes of 0 and 1. */
void unpack_runs(
    const uint8_t *from, const int64_t *from_starts, uint8_t *to, const int64_t *to_starts, const int64_t *lengths,
    int64_t runs
) {
    uint8_t unpacked[256][8]; /* of every byte */
    for (int byte = 0; byte < 256; byte++)
        for (int j = 0; j < 8; j++) unpacked[byte][j] = byte >> j & 1;
    for (int64_t i = 0; i < runs; i++) {
        uint8_t *there = to + to_starts[i];
        int64_t bit = from_starts[i], end = bit + lengths[i];
        for (; bit + 8 <= end; bit += 8, there += 8) {
            int eight = (from[bit >> 3] | from[(bit + 7) >> 3] << 8) >> (bit & 7) & 255;
            memcpy(there, unpacked[eight], 8);
        }
        for (; bit < end; bit++) *there++ = from[bit >> 3] >> (bit & 7) & 1;
    }
}

/* The numbers from each run's start on, one run after another. */
WIDEST void list_runs(const int64_t *starts, const int64_t *lengths, int64_t runs, int64_t *restrict numbers) {
    for (int64_t i = 0; i < runs; i++) {
        int64_t start = starts[i], length = lengths[i];
        for (int64_t j = 0; j < length; j++) numbers[j] = start + j;
        numbers += length;
    }
}
