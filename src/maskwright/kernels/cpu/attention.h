/* Attention of one head over one run of tokens, with sums in fp32 (Vaswani et al. 2017, 3.2).

   Scores of eight queries lie in the nearest cache from their product to their use: no square of them is ever written
   to memory.

   Values are laid side by side first (`layout.h`), and multiplied tile by tile (`tiles.h`).

   n tokens, m queries (n, or those that are read), d numbers of a head (a multiple of 16), "wide": n in whole
   registers. */

#include "layout.h"
#include "tiles.h"

/* Numbers of memory that a thread needs for runs of n tokens. */
int64_t numbers_needed(int64_t d, int64_t n) {
    int64_t wide = whole_registers(n);
    return ROWS * d + 2 * d * wide + ROWS * wide;
}

/* exp(-64) is nothing beside 1; of less would come numbers too small for all their digits, with which some processors
   are slow. */
#define LEAST -64.0f

/* How far scores lie below the highest: never above it, and exactly 0 where it is, whatever their size. */
static inline v16 below(v16 scores, float highest, float alpha) { return (scores - all(highest)) * all(alpha); }

static inline __attribute__((always_inline)) void attend(Values queries, int64_t m, Values keys, Values values,
                                                         int64_t n, int64_t d, Results mixed, float *room, Kind kind) {
    int64_t wide = whole_registers(n);
    float *q = room, *v = q + ROWS * d, *turned = v + d * wide, *scores = turned + d * wide;
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
            for (int64_t key = 0; key < wide; key += LANES) {
                v16 e = exponential(larger(all(LEAST), below(load(of + key), peak, alpha)));
                sum += e;
                store(of + key, e);
            }
            shares[row] = 1.0f / total(sum);
        }
        multiply(scores, wide, 1, v, d, n, q, d, d, 0, 0);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < d; i += LANES)
                give(mixed, first + row, i, load(q + row * d + i) * all(shares[row]), kind);
    }
}
