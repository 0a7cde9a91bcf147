/* Attention of one head over one run of tokens, forward and backward, with sums in fp32 (Vaswani et al. 2017, 3.2).

   Scores of eight queries lie in the nearest cache from their product to their use: no square of them is ever written
   to memory. The backward pass makes them again from what the softmax of each query was (`Softmax`).

   Values are laid side by side first (`layout.h`), and multiplied tile by tile (`tiles.h`).

   n tokens, m queries (n, or those that are read), d numbers of a head (a multiple of 16), "wide": n in whole
   registers. */

#include "layout.h"
#include "tiles.h"
#include "words.h"

#define CHUNK 64 /* queries whose scores the backward pass has at once */

/* The softmax of one query is exp((score - highest) / root of d) times share. */
typedef struct {
    float highest, share;
} Softmax;

/* Which probabilities are dropped: see `random_bits` in dropout.py. */
typedef struct {
    const int64_t *rows, *columns; /* the numbers of the table of words; NULL drops nothing */
    int64_t position; /* of the run's first query and first key in the table */
    int64_t from_query_to_query; /* positions */
    int64_t least; /* 16 bits that are less are dropped */
    float scale; /* of the others */
} Drops;

/* Numbers of memory that a thread needs for runs of n tokens. The last part is for random words, of two numbers and for
   four keys each. */
int64_t numbers_needed(int64_t d, int64_t n, int backward) {
    int64_t wide = whole_registers(n);
    return backward ? 7 * d * wide + 2 * CHUNK * wide + wide : ROWS * d + 2 * d * wide + ROWS * wide + wide;
}

/* --- dropout */

/* The random bits of n keys for one query; the first of them is returned, in `words`. */
static const int16_t *bits_of(const Drops *drops, int64_t query, int64_t n, int64_t *words) {
    int64_t from = drops->position + query * drops->from_query_to_query;
    int64_t first = from / POSITIONS, count = (from + n - 1) / POSITIONS - first + 1;
    for (int64_t word = 0; word < count;) {
        /* As far as this row of the table goes. */
        int64_t column = (first + word) % COLUMNS, left = COLUMNS - column;
        if (left > count - word) left = count - word;
        uint64_t row = (uint64_t)drops->rows[(first + word) / COLUMNS];
        for (int64_t i = 0; i < left; i++) {
            int64_t mixed = (int64_t)(row * (uint64_t)drops->columns[column + i]);
            mixed ^= mixed >> 32;
            words[word + i] = (int64_t)((uint64_t)mixed * MIXES);
        }
        word += left;
    }
    return (const int16_t *)words + from % POSITIONS;
}

/* exp(-64) is nothing beside 1; of less would come numbers too small for all their digits, with which some processors
   are slow. */
#define LEAST -64.0f

/* How far scores lie below the highest: never above it, and exactly 0 where it is, whatever their size. */
static inline v16 below(v16 scores, float highest, float alpha) { return (scores - all(highest)) * all(alpha); }

/* Which of sixteen are kept. Beyond a run's end the answer means nothing. */
static inline __mmask16 kept(const int16_t *bits, const Drops *drops) {
    return _mm256_cmpge_epi16_mask(_mm256_loadu_si256((const __m256i *)bits), _mm256_set1_epi16((int16_t)drops->least));
}

static inline v16 only(__mmask16 which, v16 values) { return (v16)_mm512_maskz_mov_ps(which, (__m512)values); }

/* --- forward */

/* `softmax` is written for the backward pass, unless it is NULL; `distance` is from token to token there. */
static inline __attribute__((always_inline)) void attend(Values queries, int64_t m, Values keys, Values values,
                                                         int64_t n, int64_t d, const Drops *drops, Results mixed,
                                                         Softmax *softmax, int64_t distance, float *room, Kind kind) {
    int64_t wide = whole_registers(n);
    float *q = room, *v = q + ROWS * d, *turned = v + d * wide, *scores = turned + d * wide;
    int64_t *words = (int64_t *)(scores + ROWS * wide);
    float alpha = 1.0f / sqrtf((float)d);
    int pairs = kind == PAIRS;
    int64_t depth = pairs ? d / 2 : d;
    lay(values, n, wide, d, v, kind);
    turn(keys, n, d, turned, kind);
    for (int64_t first = 0; first < m; first += ROWS) {
        int64_t rows = m - first < ROWS ? m - first : ROWS;
        lay_factors(from(queries, first, kind), rows, ROWS, d, q, kind);
        multiply(q, depth, 1, turned, wide, depth, scores, wide, wide, 0, pairs);
        float shares[ROWS] = {0};
        for (int64_t row = 0; row < rows; row++) {
            float *of = scores + row * wide;
            for (int64_t key = n; key < wide; key++) of[key] = -INFINITY;
            v16 most = load(of), sum = all(0.0f);
            for (int64_t key = LANES; key < wide; key += LANES) most = larger(most, load(of + key));
            float peak = highest(most);
            const int16_t *bits = drops->rows ? bits_of(drops, first + row, n, words) : NULL;
            for (int64_t key = 0; key < wide; key += LANES) {
                v16 e = exponential(larger(all(LEAST), below(load(of + key), peak, alpha)));
                sum += e;
                store(of + key, bits ? only(kept(bits + key, drops), e) : e);
            }
            float share = 1.0f / total(sum);
            shares[row] = share * drops->scale;
            if (softmax) softmax[(first + row) * distance] = (Softmax){peak, share};
        }
        multiply(scores, wide, 1, v, d, n, q, d, d, 0, 0);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < d; i += LANES)
                give(mixed, first + row, i, load(q + row * d + i) * all(shares[row]), kind);
    }
}

/* --- backward */

/* `slope` is the loss's by what was mixed; the three results are its slopes by queries, keys and values. */
static inline __attribute__((always_inline)) void attend_back(Values queries, Values keys, Values values, Values slope,
                                                              int64_t n, int64_t d, const Drops *drops,
                                                              const Softmax *softmax, int64_t distance,
                                                              Results to_queries, Results to_keys, Results to_values,
                                                              float *room, Kind kind) {
    int64_t wide = whole_registers(n);
    float alpha = 1.0f / sqrtf((float)d);
    int pairs = kind == PAIRS;
    int64_t depth = pairs ? d / 2 : d;
    float *q = room, *k = q + d * wide, *s = k + d * wide, *of_keys = s + d * wide, *of_values = of_keys + d * wide;
    float *keys_turned = of_values + d * wide, *values_turned = keys_turned + depth * wide;
    float *shares = room + 7 * d * wide, *slopes = shares + CHUNK * wide;
    int64_t *words = (int64_t *)(slopes + CHUNK * wide);
    lay(queries, n, wide, d, q, kind);
    lay(keys, n, wide, d, k, kind);
    lay(slope, n, wide, d, s, kind);
    /* Pairs take half the room, so there is some for these as pairs, too. */
    float *query_factors = q, *slope_factors = s;
    if (pairs) {
        query_factors = values_turned + depth * wide, slope_factors = query_factors + depth * wide;
        lay_factors(queries, n, wide, d, query_factors, kind);
        lay_factors(slope, n, wide, d, slope_factors, kind);
    }
    turn(keys, n, d, keys_turned, kind);
    turn(values, n, d, values_turned, kind);
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        int64_t count = n - begin < CHUNK ? n - begin : CHUNK;
        for (int64_t first = 0; first < count; first += ROWS) {
            float *p = shares + first * wide, *g = slopes + first * wide;
            int64_t at = (begin + first) * depth;
            multiply(query_factors + at, depth, 1, keys_turned, wide, depth, p, wide, wide, 0, pairs);
            multiply(slope_factors + at, depth, 1, values_turned, wide, depth, g, wide, wide, 0, pairs);
            for (int64_t row = 0; row < ROWS && first + row < count; row++, p += wide, g += wide) {
                int64_t query = begin + first + row;
                Softmax of = softmax[query * distance];
                const int16_t *bits = drops->rows ? bits_of(drops, query, n, words) : NULL;
                v16 along = all(0.0f);
                for (int64_t key = 0; key < wide; key += LANES) {
                    __mmask16 real = key + LANES <= n ? 0xffff : (__mmask16)((1u << (n - key)) - 1);
                    __mmask16 stays = bits ? kept(bits + key, drops) : 0xffff;
                    v16 e = exponential(larger(all(LEAST), below(load(p + key), of.highest, alpha)));
                    v16 share = only(real, e * all(of.share));
                    v16 steep = only(real & stays, load(g + key) * all(drops->scale));
                    along += share * steep;
                    store(g + key, steep);
                    /* Dropped ones bear a sign until their slopes are known. */
                    store(p + key, (v16)_mm512_mask_sub_ps((__m512)share, (__mmask16)~stays, _mm512_setzero_ps(),
                                                           (__m512)share));
                }
                v16 mean = all(total(along));
                for (int64_t key = 0; key < wide; key += LANES) {
                    v16 share = load(p + key);
                    store(g + key, (v16)_mm512_abs_ps((__m512)share) * (load(g + key) - mean));
                    store(p + key, larger(all(0.0f), share) * all(drops->scale));
                }
            }
            /* The queries of these rows are needed below, so their slopes go where nothing is needed any more. */
            float here[ROWS * 16 * LANES];
            for (int64_t i = 0; i < d; i += 16 * LANES) {
                int64_t width = d - i < 16 * LANES ? d - i : 16 * LANES;
                multiply(slopes + first * wide, wide, 1, k + i, d, n, here, 16 * LANES, width, 0, 0);
                for (int64_t row = 0; row < ROWS && first + row < count; row++)
                    for (int64_t j = 0; j < width; j += LANES)
                        give(to_queries, begin + first + row, i + j, load(here + row * 16 * LANES + j) * all(alpha),
                             kind);
            }
        }
        for (int64_t key = 0; key < n; key += ROWS) {
            multiply(shares + key, 1, wide, s + begin * d, d, count, of_values + key * d, d, d, begin > 0, 0);
            multiply(slopes + key, 1, wide, q + begin * d, d, count, of_keys + key * d, d, d, begin > 0, 0);
        }
    }
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < d; i += LANES) {
            give(to_values, token, i, load(of_values + token * d + i), kind);
            give(to_keys, token, i, load(of_keys + token * d + i) * all(alpha), kind);
        }
}
