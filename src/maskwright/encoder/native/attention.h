/* Attention of one head over one run of tokens, forward and backward, with sums in fp32 (Vaswani et al. 2017, 3.2).

   Scores of eight queries lie in the nearest cache from their product to their use: no square of them is ever written
   to memory. The backward pass makes them again from what the softmax of each query was (`Softmax`).

   Values come as fp32 or bfloat16 with any distance between tokens, and are laid side by side first, in fp32 or as pairs
   of bfloat16 (`Kind`): that is n numbers for every n^2, and spares the products both the conversion and the strides of powers of two that throw each
   other out of a cache.

   n tokens, m queries (n, or those that are read), d numbers of a head (a multiple of 16), "wide": n in whole
   registers. */

#include "registers.h"
#include "words.h"

#define ROWS 8   /* tokens together: 8 x 3 of the 32 registers hold sums */
#define UNROLL _Pragma("GCC unroll 16")
#define CHUNK 64 /* queries whose scores the backward pass has at once */

/* How values lie in memory. PAIRS is bfloat16 too, for heads of a multiple of 32 numbers and processors that have the
   instruction vdpbf16ps: where both factors come in as bfloat16 (queries by keys, slopes by values), pairs of them are
   multiplied at once. A product of two is exact in fp32, and the instruction adds one after the other (Intel's manual;
   AMD's Zen 4 was asked): the sums are those of BF16 to the bit, but that numbers below 1e-38 are zero to it.
   Probabilities and the slopes of scores stay fp32, and so do the products they are in. */
typedef enum { FP32, BF16, PAIRS } Kind;

static inline int64_t bytes_of(Kind kind) { return kind == FP32 ? 4 : 2; }

typedef struct {
    const void *first; /* of the run's first token and this head */
    int64_t stride; /* numbers from token to token */
} Values;

typedef struct {
    void *first;
    int64_t stride;
} Results;

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

/* --- in and out */

static inline __attribute__((always_inline)) v16 take(Values values, int64_t token, int64_t i, Kind kind) {
    if (kind == FP32) return load((const float *)values.first + token * values.stride + i);
    __m256i bits = _mm256_loadu_si256((const __m256i *)((const uint16_t *)values.first + token * values.stride + i));
    return (v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}

static inline __attribute__((always_inline)) void give(Results to, int64_t token, int64_t i, v16 values, Kind kind) {
    if (kind == FP32) {
        store((float *)to.first + token * to.stride + i, values);
        return;
    }
    /* To the nearest, ties to even; what is no number stays none. */
    __m512i bits = (__m512i)values;
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 none = _mm512_cmp_ps_mask((__m512)values, (__m512)values, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, none, _mm512_set1_epi32(0x7fc00000));
    _mm256_storeu_si256((__m256i *)((uint16_t *)to.first + token * to.stride + i),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

static inline Values from(Values values, int64_t token, Kind kind) {
    return (Values){(const char *)values.first + token * values.stride * bytes_of(kind), values.stride};
}

/* Lay n tokens side by side, and zeros in the places behind them. */
static inline __attribute__((always_inline)) void lay(Values values, int64_t n, int64_t places, int64_t d, float *to,
                                                      Kind kind) {
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < d; i += LANES) store(to + token * d + i, take(values, token, i, kind));
    for (int64_t i = n * d; i < places * d; i += LANES) store(to + i, all(0.0f));
}

/* Sixteen pairs of bfloat16, from pair i on. The instruction adds the product of the upper halves first, so the first
   of a pair goes there. */
static inline __attribute__((always_inline)) v16 take_pairs(Values values, int64_t token, int64_t i) {
    const uint16_t *at = (const uint16_t *)values.first + token * values.stride + 2 * i;
    return (v16)_mm512_rol_epi32(_mm512_loadu_si512(at), 16);
}

/* Lay n tokens side by side as factors of products along d, and zeros in the places behind them: d numbers of each, or
   d / 2 pairs. */
static inline __attribute__((always_inline)) void lay_factors(Values values, int64_t n, int64_t places, int64_t d,
                                                              float *to, Kind kind) {
    if (kind != PAIRS) {
        lay(values, n, places, d, to, kind);
        return;
    }
    int64_t count = d / 2;
    for (int64_t token = 0; token < n; token++)
        for (int64_t i = 0; i < count; i += LANES) store(to + token * count + i, take_pairs(values, token, i));
    for (int64_t i = n * count; i < places * count; i += LANES) store(to + i, all(0.0f));
}

/* Lay n tokens as columns of a matrix (d x wide, or d / 2 x wide pairs), and zeros behind them. */
static inline __attribute__((always_inline)) void turn(Values values, int64_t n, int64_t d, float *to, Kind kind) {
    int64_t wide = whole_registers(n), count = kind == PAIRS ? d / 2 : d;
    for (int64_t token = 0; token < wide; token += LANES)
        for (int64_t i = 0; i < count; i += LANES) {
            __m512 a[LANES], b[LANES];
            UNROLL for (int r = 0; r < LANES; r++)
                a[r] = token + r >= n  ? _mm512_setzero_ps()
                       : kind == PAIRS ? (__m512)take_pairs(values, token + r, i)
                                       : (__m512)take(values, token + r, i, kind);
            /* Numbers, pairs, then quarters of registers change places. */
            UNROLL for (int r = 0; r < LANES; r += 2) {
                b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
                b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
            }
            UNROLL for (int r = 0; r < LANES; r += 4)
                UNROLL for (int s = 0; s < 2; s++) {
                    a[r + 2 * s] = (__m512)_mm512_unpacklo_pd((__m512d)b[r + s], (__m512d)b[r + s + 2]);
                    a[r + 2 * s + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[r + s], (__m512d)b[r + s + 2]);
                }
            UNROLL for (int r = 0; r < 4; r++) {
                b[r] = _mm512_shuffle_f32x4(a[r], a[r + 4], 0x88);
                b[r + 4] = _mm512_shuffle_f32x4(a[r], a[r + 4], 0xdd);
                b[r + 8] = _mm512_shuffle_f32x4(a[r + 8], a[r + 12], 0x88);
                b[r + 12] = _mm512_shuffle_f32x4(a[r + 8], a[r + 12], 0xdd);
            }
            UNROLL for (int r = 0; r < 8; r++) {
                __m512 low = b[r], high = b[r + 8];
                store(to + (i + r) * wide + token, (v16)_mm512_shuffle_f32x4(low, high, 0x88));
                store(to + (i + r + 8) * wide + token, (v16)_mm512_shuffle_f32x4(low, high, 0xdd));
            }
        }
}

/* --- products: to (ROWS x 16 C) = left (ROWS x k) right (k x 16 C), or added to what is there. Sums stay in registers.
   k counts numbers, or pairs of bfloat16 where `pairs` is set. */

/* By name, since what includes this also runs where the instruction is not known. */
static inline __attribute__((always_inline)) v16 with_product(v16 sum, v16 one, v16 other, int pairs) {
    if (!pairs) return sum + one * other;
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(one), "v"(other));
    return sum;
}

/* Functions by themselves: inlined, they leave too few registers for the addresses of eight rows. The empty instruction
   has the compiler load a column once, and not again for each product. */
#define TILE(NAME, C, PAIRED)                                                                                          \
    static __attribute__((noinline)) void NAME(const float *left, int64_t down, int64_t across, const float *right,    \
                                               int64_t stride, int64_t k, float *to, int64_t to_stride, int adds) {    \
        v16 sums[ROWS][C];                                                                                             \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
            UNROLL for (int c = 0; c < C; c++) sums[r][c] = adds ? load(to + r * to_stride + LANES * c) : all(0.0f);   \
        for (int64_t i = 0; i < k; i++, left += across, right += stride) {                                             \
            v16 columns[C];                                                                                            \
            UNROLL for (int c = 0; c < C; c++) {                                                                       \
                columns[c] = load(right + LANES * c);                                                                  \
                __asm__("" : "+v"(columns[c]));                                                                        \
            }                                                                                                          \
            UNROLL for (int r = 0; r < ROWS; r++) {                                                                    \
                v16 one = all(left[r * down]);                                                                         \
                UNROLL for (int c = 0; c < C; c++) sums[r][c] = with_product(sums[r][c], one, columns[c], PAIRED);     \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
            UNROLL for (int c = 0; c < C; c++) store(to + r * to_stride + LANES * c, sums[r][c]);                      \
    }
TILE(tile1, 1, 0)
TILE(tile2, 2, 0)
TILE(tile3, 3, 0)
TILE(paired1, 1, 1)
TILE(paired2, 2, 1)
TILE(paired3, 3, 1)

/* ROWS x width (whole registers). */
static inline __attribute__((always_inline)) void multiply(const float *left, int64_t down, int64_t across,
                                                           const float *right, int64_t stride, int64_t k, float *to,
                                                           int64_t to_stride, int64_t width, int adds, int pairs) {
    int64_t at = 0;
    /* Four registers are better two and two than three and one. */
    for (; width - at >= 3 * LANES && width - at != 4 * LANES; at += 3 * LANES)
        (pairs ? paired3 : tile3)(left, down, across, right + at, stride, k, to + at, to_stride, adds);
    for (; width - at >= 2 * LANES; at += 2 * LANES)
        (pairs ? paired2 : tile2)(left, down, across, right + at, stride, k, to + at, to_stride, adds);
    if (at < width) (pairs ? paired1 : tile1)(left, down, across, right + at, stride, k, to + at, to_stride, adds);
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
