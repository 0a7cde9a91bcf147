/* Cross entropy over rows of a vocabulary's logits: losses, whether the best is right, slopes in the logits' place,
   their sums of columns, and tokens drawn. Compiled and called by `cross_entropy_native.py`.

   A row is read for its best logit, then for its exponentials, which are summed, then written as slopes: from the
   second reading on it lies in the processor's nearest caches. No result depends on the number of threads: losses are
   summed one by one, columns in chunks of rows that do not depend on it. */

#include <string.h>

#include "halves.h"
#include "registers.h"

/* Copies for each kind of logits, without questions inside. */
#define INLINE static inline __attribute__((always_inline))

#define BLOCK 256 /* columns whose exponentials are summed in fp32; what comes together from there on is in fp64 */
#define CHUNK 16 /* rows whose slopes are summed together */
#define GROUP 4 /* rows whose slopes are written together, so that the sums are read and written once for them */
#define STRIP 1024 /* columns added up by one thread */

typedef struct {
    void *logits; /* rows x entries, fp32 or bfloat16; slopes are written over them */
    const float *bias; /* entries; added to each row */
    const int64_t *labels; /* targets; NULL scores nothing */
    const float *numbers; /* targets, uniform in [0, 1); NULL draws nothing */
    int64_t *drawn; /* targets */
    double *losses; /* targets */
    int64_t *right; /* targets: whether the best is the answer */
    float *to_bias; /* entries; sums of slopes are added; NULL if no slopes are asked for */
    float *sums; /* chunks of the targets x entries */
    float *shares; /* threads x GROUP x entries: exponentials, which bfloat16 logits have no room for; else NULL */
    float *block_sums; /* threads x blocks */
    int64_t rows, targets, entries; /* rows from `targets` on count for nothing: their slopes are 0 */
    double loss; /* comes out, with `correct`: the sums of both */
    int64_t correct;
    int32_t half; /* the logits are bfloat16 */
} Scores;

typedef struct {
    const Scores *all;
    char *logits;
    float *shares; /* where the exponentials go: the logits' place, or beside it */
    float *block_sums;
    float best;
    double sum;
} Row;

static int64_t chunks_of(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }
static int64_t blocks_of(int64_t entries) { return (entries + BLOCK - 1) / BLOCK; }

/* The numbers that `sums`, `shares` and `block_sums` take. */
void room_of(const Scores *a, int threads, int64_t *numbers) {
    int keeps = a->to_bias != NULL;
    numbers[0] = keeps ? chunks_of(a->targets) * a->entries : 0;
    numbers[1] = keeps && a->half ? threads * GROUP * a->entries : 0;
    numbers[2] = threads * blocks_of(a->entries);
}

/* As `take`; of the last numbers of a row, fewer than a register holds, the missing ones are -inf. */
INLINE v16 take_some(const void *from, int64_t at, int64_t count, int half) {
    if (count >= LANES) return take(from, at, half);
    size_t size = half ? sizeof(uint16_t) : sizeof(float);
    float room[LANES] = {0};
    memcpy(room, (const char *)from + (size_t)at * size, (size_t)count * size);
    __mmask16 there = (__mmask16)((1u << count) - 1);
    return (v16)_mm512_mask_mov_ps((__m512)all(-INFINITY), there, (__m512)take(room, 0, half));
}

INLINE void give_some(void *to, int64_t at, v16 values, int64_t count, int half) {
    if (count >= LANES) {
        give(to, at, values, half);
        return;
    }
    size_t size = half ? sizeof(uint16_t) : sizeof(float);
    float room[LANES];
    give(room, 0, values, half);
    memcpy((char *)to + (size_t)at * size, room, (size_t)count * size);
}

/* Sixteen logits with their bias. */
INLINE v16 logits_at(const Row *row, int64_t at, int64_t count, int half) {
    return take_some(row->logits, at, count, half) + take_some(row->all->bias, at, count, 0);
}

/* exp(x) for x <= 0; 0 below 1e-38, so that what has no probability is never drawn. What is no number stays none. */
static inline v16 share_of(v16 x) {
    __mmask16 counts = _mm512_cmp_ps_mask((__m512)x, (__m512)all(-87.0f), _CMP_NLT_UQ);
    return (v16)_mm512_maskz_mov_ps(counts, (__m512)exponential(x));
}

/* --- the three readings of a row */

/* What is no number is passed over here; the sum is none then. */
INLINE float best_of(const Row *row, int half) {
    int64_t entries = row->all->entries, i = 0;
    v16 best = all(-INFINITY), other = best;
    for (; i + 2 * LANES <= entries; i += 2 * LANES) {
        best = larger(logits_at(row, i, LANES, half), best);
        other = larger(logits_at(row, i + LANES, LANES, half), other);
    }
    for (; i < entries; i += LANES) best = larger(logits_at(row, i, entries - i, half), best);
    return highest(larger(best, other));
}

INLINE v16 shares_at(const Row *row, int64_t at, int64_t count, int keeps, int half) {
    v16 share = share_of(logits_at(row, at, count, half) - all(row->best));
    if (keeps) give_some(row->shares, at, share, count, 0);
    return share;
}

/* Sum the exponentials, and keep the sums of blocks and (if asked) the exponentials. */
INLINE double sum_of(const Row *row, int keeps, int half) {
    int64_t entries = row->all->entries;
    double sum = 0;
    for (int64_t begin = 0; begin < entries; begin += BLOCK) {
        int64_t end = begin + BLOCK < entries ? begin + BLOCK : entries, i = begin;
        v16 of_block = all(0.0f);
        for (; i + LANES <= end; i += LANES) of_block += shares_at(row, i, LANES, keeps, half);
        if (i < end) of_block += shares_at(row, i, end - i, keeps, half);
        sum += (double)(row->block_sums[begin / BLOCK] = total(of_block));
    }
    return sum;
}

/* Write some columns of some rows' slopes, and add them to the sums. */
INLINE void write_columns(const Row *rows, int number, const v16 *rates, int64_t at,
                                                                int64_t count, float *sums, int begins, int half) {
    v16 sum = begins ? all(0.0f) : take_some(sums, at, count, 0);
    for (int r = 0; r < number; r++) {
        v16 slope = take_some(rows[r].shares, at, count, 0) * rates[r];
        give_some(rows[r].logits, at, slope, count, half);
        sum += slope;
    }
    give_some(sums, at, sum, count, 0);
}

/* Write the slopes of some rows, softmax - one hot. */
INLINE void write_slopes(const Row *rows, int number, const int64_t *labels,
                                                               float *sums, int begins, int half) {
    int64_t entries = rows->all->entries, i = 0;
    v16 rates[GROUP];
    float of_answers[GROUP];
    for (int r = 0; r < number; r++) {
        rates[r] = all((float)(1.0 / rows[r].sum));
        of_answers[r] = rows[r].shares[labels[r]] * rates[r][0] - 1.0f;
    }
    for (; i + LANES <= entries; i += LANES) write_columns(rows, number, rates, i, LANES, sums, begins, half);
    if (i < entries) write_columns(rows, number, rates, i, entries - i, sums, begins, half);
    for (int r = 0; r < number; r++) {
        give_some(rows[r].logits, labels[r], all(of_answers[r]), 1, half);
        sums[labels[r]] -= 1.0f;
    }
}

/* --- what is said of a row */

/* Whether no logit is higher than the answer's, and none before it as high. */
INLINE int is_best(const Row *row, int64_t label, int half) {
    if (!(logits_at(row, label, 1, half)[0] >= row->best)) return 0;
    for (int64_t i = 0; i < label; i += LANES) {
        v16 before = logits_at(row, i, label - i, half);
        if (_mm512_cmp_ps_mask((__m512)before, (__m512)all(row->best), _CMP_GE_OQ)) return 0;
    }
    return 1;
}

/* The first column at which the running sum of exponentials passes a share of the whole. Rounding does not carry a
   number near 1 beyond the last that has any probability. A row with what is no number draws a column too; its loss is
   none, and the step is refused. */
INLINE int64_t draw(const Row *row, float number, int keeps, int half) {
    int64_t entries = row->all->entries, begin = 0, last = 0;
    double wanted = (double)number * row->sum, running = 0, before = 0;
    for (int64_t i = 0; i < entries && !(running > wanted); i += BLOCK) {
        float of_block = row->block_sums[i / BLOCK];
        if (of_block > 0) {
            begin = i;
            before = running;
        }
        running += of_block;
    }
    int64_t end = begin + BLOCK < entries ? begin + BLOCK : entries;
    for (int64_t i = begin; i < end; i += LANES) {
        float shares[LANES];
        store(shares, keeps ? take_some(row->shares, i, end - i, 0) : shares_at(row, i, end - i, 0, half));
        for (int64_t k = 0; k < LANES && i + k < end; k++) {
            if (!(shares[k] > 0)) continue;
            last = i + k;
            before += shares[k];
            if (before > wanted) return last;
        }
    }
    return last;
}

/* --- rows that threads share */

INLINE Row read_row(const Scores *a, int64_t at, int place, int keeps, int half) {
    int64_t thread = omp_get_thread_num();
    Row row = {.all = a};
    row.logits = (char *)a->logits + (size_t)(at * a->entries) * (half ? sizeof(uint16_t) : sizeof(float));
    row.shares = (float *)row.logits;
    if (half) row.shares = keeps ? a->shares + (thread * GROUP + place) * a->entries : NULL;
    row.block_sums = a->block_sums + thread * blocks_of(a->entries);
    row.best = best_of(&row, half);
    double answer = 0;
    if (a->labels) {
        answer = (double)logits_at(&row, a->labels[at], 1, half)[0];
        a->right[at] = is_best(&row, a->labels[at], half);
    }
    row.sum = sum_of(&row, keeps, half); /* From here on fp32 logits are gone if it keeps. */
    if (a->labels) a->losses[at] = log(row.sum) - (answer - (double)row.best);
    if (a->numbers) a->drawn[at] = draw(&row, a->numbers[at], keeps, half);
    return row;
}

INLINE void turn_rows(const Scores *a, int64_t chunk, int keeps, int half) {
    int64_t first = chunk * CHUNK, end = first + CHUNK < a->targets ? first + CHUNK : a->targets;
    float *sums = keeps ? a->sums + chunk * a->entries : NULL;
    for (int64_t begin = first; begin < end; begin += GROUP) {
        int number = end - begin < GROUP ? (int)(end - begin) : GROUP;
        Row rows[GROUP];
        for (int r = 0; r < number; r++) rows[r] = read_row(a, begin + r, r, keeps, half);
        if (!keeps) continue;
        const int64_t *labels = a->labels + begin;
        if (number == GROUP) write_slopes(rows, GROUP, labels, sums, begin == first, half);
        else write_slopes(rows, number, labels, sums, begin == first, half);
    }
}

void score_rows(Scores *a, int threads) {
    int64_t chunks = chunks_of(a->targets), entries = a->entries;
    int keeps = a->to_bias != NULL;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        if (a->half) keeps ? turn_rows(a, chunk, 1, 1) : turn_rows(a, chunk, 0, 1);
        else keeps ? turn_rows(a, chunk, 1, 0) : turn_rows(a, chunk, 0, 0);
    }
    for (int64_t i = 0; a->labels && i < a->targets; i++) {
        a->loss += a->losses[i];
        a->correct += a->right[i];
    }
    if (!keeps) return;
    size_t row = (size_t)entries * (a->half ? sizeof(uint16_t) : sizeof(float));
    memset((char *)a->logits + (size_t)a->targets * row, 0, (size_t)(a->rows - a->targets) * row);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t begin = 0; begin < entries; begin += STRIP) {
        int64_t end = begin + STRIP < entries ? begin + STRIP : entries;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            const float *sums = a->sums + chunk * entries;
            for (int64_t i = begin; i < end; i++) a->to_bias[i] += sums[i];
        }
    }
}

/* Write bfloat16 numbers as fp32, times a factor. */
void scale_halves(const uint16_t *from, float *to, int64_t count, float factor, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t begin = 0; begin < count; begin += STRIP) {
        int64_t end = begin + STRIP < count ? begin + STRIP : count, i = begin;
        for (; i + LANES <= end; i += LANES) store(to + i, take(from, i, 1) * all(factor));
        if (i < end) give_some(to, i, take_some(from, i, end - i, 1) * all(factor), end - i, 0);
    }
}
