/* Embeddings in training, forward and backward: rows of three tables looked up, added, normed, dropped in one pass; and
   back, with the tables' slopes. Compiled and called by `embeddings.py`, which says what the structure means to Python.

   No result depends on the number of threads: sums over all tokens are added up in chunks of them, and each row of a
   table's slopes is added up by one thread, in the order of the tokens. */

#include <string.h>

#include "passes.h"

#define ROWS 64 /* of a table's slopes that a thread fills at a time */

typedef struct {
    const float *words, *positions, *segments; /* tables, forward; the last has num_segments rows, perhaps none */
    const int64_t *word_ids, *position_ids, *segment_ids; /* one a token; the last NULL where row 0 is for all */
    const float *weight, *shift; /* LayerNorm's */
    float *sums, *result; /* tokens x width: what is normed, and that */
    float *about; /* tokens x 2: mean and 1 / deviation */
    const float *slope; /* tokens x width, of the result */
    float *to_sums; /* tokens x width */
    float *to_words, *to_positions; /* like the tables, at multiples of 64 bytes; NULL where they are not asked for */
    float *to_others; /* (2 + num_segments) x width: LayerNorm's weight and shift, the table of segments */
    float *room; /* chunks x (2 + num_segments) x width */
    int32_t *first, *next; /* lists of tokens: one entry for each row of the longer table; one a token */
    Dropout dropout;
    int64_t tokens, width, num_words, num_positions, num_segments, position_offset;
    float epsilon;
} Embed;

int64_t chunks_of(int64_t tokens) { return chunks_in(tokens); }

/* Of an id and what its table's rows are shifted by; sums of unsigned numbers may be too large for the type. */
static inline int lies_in(int64_t id, int64_t offset, int64_t size) {
    return (uint64_t)id + (uint64_t)offset < (uint64_t)size;
}

/* The first token with an id that its table does not have; the number of tokens if there is none. */
int64_t first_outside(const Embed *a) {
    for (int64_t token = 0; token < a->tokens; token++) {
        int inside = lies_in(a->word_ids[token], 0, a->num_words);
        inside &= lies_in(a->position_ids[token], a->position_offset, a->num_positions);
        if (a->segment_ids) inside &= lies_in(a->segment_ids[token], 0, a->num_segments);
        if (!inside) return token;
    }
    return a->tokens;
}

static inline int64_t segment_of(const Embed *a, int64_t token) { return a->segment_ids ? a->segment_ids[token] : 0; }

static inline const float *word_of(const Embed *a, int64_t token) {
    return a->words + a->word_ids[token < a->tokens ? token : a->tokens - 1] * a->width;
}

static inline __attribute__((always_inline)) void embed_row(const Embed *a, int64_t token, int has_segments,
                                                            int drops) {
    int64_t width = a->width, at = token * width;
    /* Rows of words lie anywhere in a table that no near cache holds: one is sent for two tokens before. */
    const float *word = word_of(a, token), *ahead = word_of(a, token + 2);
    const float *position = a->positions + (a->position_ids[token] + a->position_offset) * width;
    const float *segment = has_segments ? a->segments + segment_of(a, token) * width : NULL;
    float *sums = a->sums + at, *result = a->result + at;
    v16 whole = all(0.0f), squares = all(0.0f);
    for (int64_t i = 0; i < width; i += LANES) {
        _mm_prefetch((const char *)(ahead + i), _MM_HINT_T0);
        v16 sum = load(word + i) + load(position + i);
        if (has_segments) sum += load(segment + i);
        whole += sum;
        store(sums + i, sum);
    }
    v16 mean = all(total(whole) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 apart = load(sums + i) - mean;
        squares += apart * apart;
    }
    v16 rate = all(1.0f / sqrtf(total(squares) / (float)width + a->epsilon));
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normed = (load(sums + i) - mean) * rate * load(a->weight + i) + load(a->shift + i);
        if (drops) normed = dropped(&a->dropout, at + i, normed);
        store(result + i, normed);
    }
    a->about[2 * token] = mean[0];
    a->about[2 * token + 1] = rate[0];
}

static inline __attribute__((always_inline)) void embed_row_back(const Embed *a, int64_t token, float *to_weight,
                                                                 int has_segments, int drops) {
    int64_t width = a->width, at = token * width;
    float *to_shift = to_weight + width, *to_segment = to_shift + width, *to_sums = a->to_sums + at;
    if (has_segments) to_segment += segment_of(a, token) * width;
    v16 mean = all(a->about[2 * token]), rate = all(a->about[2 * token + 1]), plain = all(0.0f), along = all(0.0f);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normed = (load(a->sums + at + i) - mean) * rate, slope = load(a->slope + at + i);
        if (drops) slope = dropped(&a->dropout, at + i, slope);
        store(to_weight + i, load(to_weight + i) + slope * normed);
        store(to_shift + i, load(to_shift + i) + slope);
        slope *= load(a->weight + i);
        plain += slope;
        along += slope * normed;
        store(to_sums + i, slope);
    }
    plain = all(total(plain) / (float)width);
    along = all(total(along) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normed = (load(a->sums + at + i) - mean) * rate, slope = load(to_sums + i);
        slope = (slope - plain - normed * along) * rate;
        store(to_sums + i, slope);
        if (has_segments) store(to_segment + i, load(to_segment + i) + slope);
    }
}

static inline __attribute__((always_inline)) void embed_rows(const Embed *a, int64_t begin, int64_t end, int backward,
                                                             float *sums, int has_segments, int drops) {
    if (backward) memset(sums, 0, (size_t)((2 + a->num_segments) * a->width) * sizeof(float));
    for (int64_t token = begin; token < end; token++)
        if (backward) embed_row_back(a, token, sums, has_segments, drops);
        else embed_row(a, token, has_segments, drops);
}

static void embed_pass(const Embed *a, int backward, int threads) {
    int64_t chunks = chunks_in(a->tokens), wide = (2 + a->num_segments) * a->width;
    int drops = a->dropout.rows != NULL;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t begin = chunk * CHUNK, end = begin + CHUNK < a->tokens ? begin + CHUNK : a->tokens;
        float *sums = backward ? a->room + chunk * wide : NULL;
        /* Copies of the code, each without questions inside. */
        if (a->num_segments) {
            if (drops) embed_rows(a, begin, end, backward, sums, 1, 1);
            else embed_rows(a, begin, end, backward, sums, 1, 0);
        } else {
            if (drops) embed_rows(a, begin, end, backward, sums, 0, 1);
            else embed_rows(a, begin, end, backward, sums, 0, 0);
        }
    }
    if (backward) add_up(a->room, chunks, wide, a->to_others);
}

/* Past the caches, where rows have nothing to be read for: who reads a table next comes after all of it is written. */
static inline void stream(float *to, int64_t i, v16 values) { _mm512_stream_ps(to + i, (__m512)values); }

/* Give a row of a table's slopes those of the tokens that looked it up, added up in their order; 0 if there is none. */
static inline void fill_row(const Embed *a, float *to, int64_t token) {
    int64_t width = a->width;
    if (token < 0) {
        for (int64_t i = 0; i < width; i += LANES) stream(to, i, all(0.0f));
        return;
    }
    const float *slope = a->to_sums + token * width;
    token = a->next[token];
    if (token < 0) {
        for (int64_t i = 0; i < width; i += LANES) stream(to, i, load(slope + i));
        return;
    }
    memcpy(to, slope, (size_t)width * sizeof(float));
    for (; token >= 0; token = a->next[token]) {
        slope = a->to_sums + token * width;
        for (int64_t i = 0; i < width; i += LANES) store(to + i, load(to + i) + load(slope + i));
    }
}

static void fill_table(const Embed *a, const int64_t *ids, int64_t offset, int64_t rows, float *table, int threads) {
    memset(a->first, 0xff, (size_t)rows * sizeof(int32_t)); /* -1: no token */
    for (int64_t token = a->tokens - 1; token >= 0; token--) {
        int32_t *first = a->first + ids[token] + offset;
        a->next[token] = *first;
        *first = (int32_t)token;
    }
    /* In turns: frequent words have neighbouring ids. */
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t begin = 0; begin < rows; begin += ROWS) {
        int64_t end = begin + ROWS < rows ? begin + ROWS : rows;
        for (int64_t row = begin; row < end; row++) fill_row(a, table + row * a->width, a->first[row]);
        _mm_sfence();
    }
}

void embed(const Embed *a, int threads) { embed_pass(a, 0, threads); }

void embed_back(const Embed *a, int threads) {
    embed_pass(a, 1, threads);
    if (a->to_words) fill_table(a, a->word_ids, 0, a->num_words, a->to_words, threads);
    if (a->to_positions) {
        fill_table(a, a->position_ids, a->position_offset, a->num_positions, a->to_positions, threads);
    }
}
