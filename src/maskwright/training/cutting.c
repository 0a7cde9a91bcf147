/* Sequences put into rows, and a step's stream of tokens cut into micro-batches: what of each token its encoder
   computes on. One thread.

   T tokens, B sequences one behind the other; micro-batch p has the sequences bounds[p] to bounds[p + 1]. In what is
   written by token it begins at begins[p] and reaches to begins[p + 1]: what its tokens leave is filler. */

#include <stdint.h>
#include <stdlib.h>

#include "mixing.h"

typedef struct {
    const int64_t *cu_seqlens; /* (B + 1,) */
    const int64_t *slots;      /* (B,), slot of each sequence's first token, counted in its micro-batch */
    const int64_t *bounds, *begins; /* (parts + 1,) */
    int64_t parts;
    const int32_t *ids;          /* (T,) */
    const int8_t *segment_ids;   /* (T,) */
    int64_t pad;
    int64_t *to_ids, *to_positions, *to_segments, *to_sequences; /* (begins[parts],), written */
    int64_t *to_slots;           /* (T,), written */
} Cut;

/* A sequence's tokens in what is written; the arrays are told not to meet, so that loops write many at a time. */
INLINED void cut_sequence(const Cut *c, int64_t from, int64_t length, int64_t to, int64_t number, int64_t slot) {
    const int32_t *ids = c->ids + from;
    const int8_t *segment_ids = c->segment_ids + from;
    int64_t *restrict to_ids = c->to_ids + to, *restrict to_positions = c->to_positions + to;
    int64_t *restrict to_segments = c->to_segments + to, *restrict to_sequences = c->to_sequences + to;
    int64_t *restrict to_slots = c->to_slots + from;
    for (int64_t i = 0; i < length; i++) to_ids[i] = ids[i];
    for (int64_t i = 0; i < length; i++) to_positions[i] = i;
    for (int64_t i = 0; i < length; i++) to_segments[i] = segment_ids[i];
    for (int64_t i = 0; i < length; i++) to_sequences[i] = number;
    for (int64_t i = 0; i < length; i++) to_slots[i] = slot + i;
}

WIDEST void cut_stream(const Cut *c) {
    for (int64_t p = 0; p < c->parts; p++) {
        int64_t to = c->begins[p];
        for (int64_t s = c->bounds[p]; s < c->bounds[p + 1]; s++) {
            int64_t from = c->cu_seqlens[s], length = c->cu_seqlens[s + 1] - from;
            cut_sequence(c, from, length, to, s - c->bounds[p], c->slots[s]);
            to += length;
        }
        for (; to < c->begins[p + 1]; to++) {
            c->to_ids[to] = c->pad;
            c->to_positions[to] = c->to_segments[to] = 0;
            c->to_sequences[to] = -1;
        }
    }
}

/* Puts sequences into rows, the longest first, each into the fullest row that has room, the last put back of several
   (`packing.pack`). Written by where they lie: which sequence, its row, its first slot. Returns the rows used; -1 where
   memory is short. 1 <= lengths <= row_length. */
int64_t pack_rows(
    const int64_t *lengths, int64_t sequences, int64_t row_length, int64_t *order, int64_t *rows, int64_t *offsets
) {
    int64_t words = row_length / 64 + 1, used = 0, place = 0;
    int64_t *begins = calloc((size_t)(row_length + 2), sizeof *begins);
    int64_t *last = malloc((size_t)(row_length + 1) * sizeof *last);   /* the last row put back, by its room */
    uint64_t *is_there = calloc((size_t)words, sizeof *is_there);      /* a bit for each room that some row has */
    int64_t *room = malloc((size_t)(5 * sequences + 1) * sizeof *room);
    if (!begins || !last || !is_there || !room) used = -1;
    int64_t *sorted = room, *before = room + sequences, *row_of = before + sequences, *slot_of = row_of + sequences;
    int64_t *firsts = slot_of + sequences; /* by row: how many sequences, then where they begin */
    if (used == 0) {
        /* By length, the longest first, equal ones as they came. */
        for (int64_t i = 0; i < sequences; i++) begins[row_length - lengths[i] + 1]++;
        for (int64_t i = 0; i <= row_length; i++) begins[i + 1] += begins[i];
        for (int64_t i = 0; i < sequences; i++) sorted[begins[row_length - lengths[i]]++] = i;
        for (int64_t i = 0; i < sequences; i++) {
            int64_t length = lengths[sorted[i]], word = length / 64, left = row_length, row;
            uint64_t bits = is_there[word] & ~0ull << length % 64;
            while (!bits && ++word < words) bits = is_there[word];
            if (bits) {
                left = word * 64 + __builtin_ctzll(bits);
                row = last[left];
                last[left] = before[row];
                if (last[left] < 0) is_there[word] &= ~(1ull << left % 64);
            } else {
                row = used++;
                firsts[row] = 0;
            }
            row_of[i] = row;
            slot_of[i] = row_length - left;
            firsts[row]++;
            left -= length;
            before[row] = is_there[left / 64] >> left % 64 & 1 ? last[left] : -1;
            last[left] = row;
            if (left) is_there[left / 64] |= 1ull << left % 64;
        }
        for (int64_t row = 0; row < used; row++) {
            int64_t count = firsts[row];
            firsts[row] = place;
            place += count;
        }
        /* Within a row sequences lie as they came. */
        for (int64_t i = 0; i < sequences; i++) {
            int64_t to = firsts[row_of[i]]++;
            order[to] = sorted[i];
            rows[to] = row_of[i];
            offsets[to] = slot_of[i];
        }
    }
    free(begins);
    free(last);
    free(is_there);
    free(room);
    return used;
}
