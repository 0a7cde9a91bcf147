/* What passes over rows of tokens share: sums of columns, the same for any number of threads, and masks of dropout. */

#pragma once

#include "registers.h"
#include "words.h"

#define CHUNK 64 /* rows whose columns are summed together */

static inline int64_t chunks_in(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }

/* Add up `count` rows of sums, the first to the last. */
static inline void add_up(const float *from, int64_t count, int64_t width, float *to) {
    for (int64_t i = 0; i < width; i += LANES) {
        v16 sum = all(0.0f);
        for (int64_t row = 0; row < count; row++) sum += load(from + row * width + i);
        store(to + i, sum);
    }
}

/* --- dropout. What is dropped becomes 0, be it infinite or no number: as in attention, a step is refused for what is
   kept. */

typedef struct {
    const int64_t *rows, *columns; /* of the table of random words; NULL drops nothing */
    int64_t least; /* bits that are not dropped */
    float scale;
} Dropout;

/* Which of sixteen values, from a position that is a multiple of sixteen, are kept. */
static inline __mmask16 stay(const Dropout *dropout, int64_t position) {
    int64_t word = position / POSITIONS;
    __m256i columns = _mm256_loadu_si256((const __m256i *)(dropout->columns + word % COLUMNS));
    __m256i mixed = _mm256_mullo_epi64(_mm256_set1_epi64x(dropout->rows[word / COLUMNS]), columns);
    mixed = _mm256_xor_si256(mixed, _mm256_srai_epi64(mixed, 32));
    mixed = _mm256_mullo_epi64(mixed, _mm256_set1_epi64x((int64_t)MIXES));
    return _mm256_cmpge_epi16_mask(mixed, _mm256_set1_epi16((int16_t)dropout->least));
}

/* Sixteen values from such a position, scaled, or 0 where they are dropped. */
static inline v16 dropped(const Dropout *dropout, int64_t position, v16 values) {
    return (v16)_mm512_maskz_mov_ps(stay(dropout, position), (__m512)(values * all(dropout->scale)));
}
