/* An encoder for inference (`encoder.h`), in fp32, for processors with AVX512.

   A tile of up to six tokens is multiplied with a panel of 64 outputs; the sums fill 24 of the 32 registers.

   - Weights of many inputs are tiled into blocks of inputs (K blocks) of which two fit into L2: the next is prefetched
     while tokens are multiplied with one, so that the few tokens of a short text do not wait for memory.
   - The memory of the results is prefetched while they are computed.
   - Many tokens are tiled into blocks that stay in L3.

   Every sum runs over the inputs from the first to the last, whatever the number of tokens. Threads share a layer's
   panels, and tiles of tokens where panels cannot be shared evenly. */

#define PREPARES 0
#define PANEL 64 /* four registers of 16 sums. In a panel, by input, 64 weights */

#include "encoder.h"

#define PARTS (PANEL / LANES)
#define TILE_TOKENS 6   /* tokens in a tile */
#define K_BLOCK 1024    /* most inputs in a K block */
#define PREFETCHING 4   /* tiles at the end of a K block during which the next one is prefetched */
#define TOKEN_BLOCK 512 /* tokens that are multiplied with all panels before others are: they stay in L3 */

static void prepare_token(const float *values, int64_t width, const Workspace *workspace, int64_t token) {
    (void)values, (void)width, (void)workspace, (void)token;
}

/* --- products: up to six tokens with a K block of a panel, added to sums (tokens x 4 registers). Meanwhile the memory
   at `next` is prefetched, `pace` bytes for every input. */

#define BEGIN(r)                                                               \
    __m512 *of##r = sums + PARTS * r, a##r = of##r[0], b##r = of##r[1], c##r = of##r[2], d##r = of##r[3];
#define ADD(r)                                                                 \
    x = _mm512_set1_ps(values[r * stride + i]);                                \
    a##r = _mm512_fmadd_ps(x, s, a##r);                                        \
    b##r = _mm512_fmadd_ps(x, t, b##r);                                        \
    c##r = _mm512_fmadd_ps(x, u, c##r);                                        \
    d##r = _mm512_fmadd_ps(x, v, d##r);
#define KEEP(r) of##r[0] = a##r, of##r[1] = b##r, of##r[2] = c##r, of##r[3] = d##r;
#define PRODUCT(R)                                                                                                     \
    static void product##R(const float *values, int64_t stride, const float *weight, int64_t inputs,                   \
                           const char *next, int64_t pace, __m512 *sums) {                                             \
        EACH##R(BEGIN)                                                                                                 \
        for (int64_t i = 0; i < inputs; i++, weight += PANEL, next += pace) {                                          \
            __m512 x, s = _mm512_loadu_ps(weight), t = _mm512_loadu_ps(weight + LANES),                                \
                      u = _mm512_loadu_ps(weight + 2 * LANES), v = _mm512_loadu_ps(weight + 3 * LANES);                \
            for (int64_t byte = 0; byte < pace; byte += CACHE_LINE) _mm_prefetch(next + byte, _MM_HINT_T1);            \
            EACH##R(ADD)                                                                                               \
        }                                                                                                              \
        EACH##R(KEEP)                                                                                                  \
    }
PRODUCT(1)
PRODUCT(2)
PRODUCT(3)
PRODUCT(4)
PRODUCT(5)
PRODUCT(6)

static void (*const PRODUCTS[])(const float *, int64_t, const float *, int64_t, const char *, int64_t, __m512 *) = {
    NULL, product1, product2, product3, product4, product5, product6,
};

static int64_t panels_of(const Dense *dense) { return (dense->outputs + PANEL - 1) / PANEL; }

static int64_t k_blocks_of(const Dense *dense) { return (dense->inputs + K_BLOCK - 1) / K_BLOCK; }

static const void *panel_of(const Dense *dense, int64_t panel) {
    return (const float *)dense->weight + panel * PANEL * dense->inputs;
}

/* One tile of tokens with one K block of a panel. Between K blocks, sums are kept in the memory of the results. */
static inline __attribute__((always_inline)) void multiply_tile(const float *values, int64_t stride,
                                                                const float *weight, int64_t inputs, const char *next,
                                                                int64_t pace, int64_t rows, int begins, int ends,
                                                                const float *bias, int64_t activation,
                                                                const float *residual, float *to, int64_t outputs,
                                                                int64_t parts) {
    __m512 sums[TILE_TOKENS * PARTS];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t part = 0; part < PARTS; part++) {
            float *place = to + row * outputs + part * LANES;
            int kept = !begins && part < parts;
            sums[row * PARTS + part] = kept ? (__m512)load(place) : _mm512_setzero_ps();
            if (!kept && part < parts) __builtin_prefetch(place, 1); /* to write */
        }
    PRODUCTS[rows](values, stride, weight, inputs, next, pace, sums);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t part = 0; part < parts; part++) {
            v16 y = (v16)sums[row * PARTS + part];
            int64_t at = row * outputs + part * LANES;
            if (ends) {
                y = activated(y + load(bias + part * LANES), activation);
                if (residual) y += load(residual + at);
            }
            store(to + at, y);
        }
}

/* A thread's part of one block of tokens. */
static inline __attribute__((always_inline)) void compute_token_block(const Dense *dense, const Dense *after,
                                                                      const float *values, int64_t tokens,
                                                                      int64_t activation, const float *residual,
                                                                      float *to) {
    int64_t inputs = dense->inputs, outputs = dense->outputs;
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    int64_t tiles = (tokens + TILE_TOKENS - 1) / TILE_TOKENS, k_blocks = k_blocks_of(dense);
    int64_t of_all = panels_of(dense) * tiles, unit = of_all * thread / threads, end = of_all * (thread + 1) / threads;
    while (unit < end) {
        /* Tiles of one panel. */
        int64_t panel = unit / tiles, begin = unit % tiles, left = end - unit;
        int64_t stop = tiles - begin < left ? tiles : begin + left, o = panel * PANEL;
        int64_t parts = (outputs - o) / LANES < PARTS ? (outputs - o) / LANES : PARTS;
        int64_t prefetching = stop - begin < PREFETCHING ? stop - begin : PREFETCHING;
        unit += stop - begin;
        for (int64_t k_block = 0; k_block < k_blocks; k_block++) {
            int64_t input = inputs * k_block / k_blocks, count = inputs * (k_block + 1) / k_blocks - input;
            const float *weight = (const float *)panel_of(dense, panel) + input * PANEL, *next = weight + count * PANEL;
            int64_t inputs_of_next = count;
            if (k_block + 1 == k_blocks && unit == end) {
                next = panel_of(after, panels_of(after) * thread / threads);
                inputs_of_next = after->inputs / k_blocks_of(after);
            }
            /* A single small tile does not leave enough time to prefetch the next panel. */
            int64_t pace = (inputs_of_next * PANEL * (int64_t)sizeof(float) / count + prefetching - 1) / prefetching;
            for (int64_t tile = begin; tile < stop; tile++) {
                int64_t first = tokens * tile / tiles, rows = tokens * (tile + 1) / tiles - first;
                int64_t at = first * outputs + o, part_of_next = tile - (stop - prefetching);
                const char *prefetched = (const char *)next + part_of_next * count * pace;
                multiply_tile(values + first * inputs + input, inputs, weight, count, prefetched,
                              part_of_next < 0 ? 0 : pace, rows, k_block == 0, k_block + 1 == k_blocks,
                              dense->bias + o, activation, residual ? residual + at : NULL, to + at, outputs, parts);
            }
        }
    }
}

static inline __attribute__((always_inline)) void compute(const Dense *dense, const Dense *after, const float *values,
                                                          const Workspace *workspace, int64_t tokens, int64_t activation,
                                                          const float *residual, float *to) {
    (void)workspace;
    int64_t token_blocks = (tokens + TOKEN_BLOCK - 1) / TOKEN_BLOCK;
    for (int64_t token_block = 0; token_block < token_blocks; token_block++) {
        int64_t first = tokens * token_block / token_blocks, count = tokens * (token_block + 1) / token_blocks - first;
        compute_token_block(dense, token_block + 1 < token_blocks ? dense : after, values + first * dense->inputs,
                            count, activation, residual ? residual + first * dense->outputs : NULL,
                            to + first * dense->outputs);
    }
}
