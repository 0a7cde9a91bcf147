/* An encoder for inference (`encoder.h`), in fp32, for processors with AVX512.

   Up to six tokens are multiplied with a panel of 64 outputs, whose sums fill 24 of the 32 registers. Weights of many
   inputs are taken in pieces that leave space in the second cache for the next: while tokens are multiplied with one
   piece, the next is fetched, so that the few tokens of a short text do not wait for memory; what results are written
   to is fetched while they are computed. Of many tokens, so many are taken at a time as stay in the third cache.

   Every sum runs over the inputs from the first to the last, however many tokens are computed beside. Threads share a
   layer's panels, and blocks of tokens where panels cannot be shared evenly. */

#define PREPARES 0
#define PANEL 64 /* four registers of 16 sums. In a panel, by input, 64 weights */

#include "encoder.h"

#define PARTS (PANEL / LANES)
#define TOGETHER 6  /* tokens in a block */
#define PIECE 1024  /* inputs at a time, at most */
#define FETCHING 4  /* blocks of tokens at the end of a piece during which the next one is fetched */
#define STRETCH 512 /* tokens that are multiplied with all panels before others are: they stay in the third cache */

static void prepare_token(const float *values, int64_t width, const Workspace *workspace, int64_t token) {
    (void)values, (void)width, (void)workspace, (void)token;
}

/* --- products: up to six tokens with a piece of a panel, added to sums (tokens x 4 registers). Meanwhile what lies at
   `next` is fetched, `pace` bytes for every input. */

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
            for (int64_t byte = 0; byte < pace; byte += LINE) _mm_prefetch(next + byte, _MM_HINT_T1);                  \
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

static int64_t pieces_of(const Dense *dense) { return (dense->inputs + PIECE - 1) / PIECE; }

static const void *panel_of(const Dense *dense, int64_t panel) {
    return (const float *)dense->weight + panel * PANEL * dense->inputs;
}

/* One block of tokens with one piece of a panel. Between pieces, sums are kept where the results will be. */
static inline __attribute__((always_inline)) void multiply_block(const float *values, int64_t stride,
                                                                 const float *weight, int64_t inputs, const char *next,
                                                                 int64_t pace, int64_t rows, int begins, int ends,
                                                                 const float *bias, int64_t activation,
                                                                 const float *residual, float *to, int64_t outputs,
                                                                 int64_t parts) {
    __m512 sums[TOGETHER * PARTS];
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

/* A thread's part of one stretch of tokens. */
static inline __attribute__((always_inline)) void compute_stretch(const Dense *dense, const Dense *after,
                                                                  const float *values, int64_t tokens,
                                                                  int64_t activation, const float *residual,
                                                                  float *to) {
    int64_t inputs = dense->inputs, outputs = dense->outputs;
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    int64_t blocks = (tokens + TOGETHER - 1) / TOGETHER, pieces = pieces_of(dense);
    int64_t of_all = panels_of(dense) * blocks, unit = of_all * thread / threads, end = of_all * (thread + 1) / threads;
    while (unit < end) {
        /* Blocks of one panel. */
        int64_t panel = unit / blocks, begin = unit % blocks, left = end - unit;
        int64_t stop = blocks - begin < left ? blocks : begin + left, o = panel * PANEL;
        int64_t parts = (outputs - o) / LANES < PARTS ? (outputs - o) / LANES : PARTS;
        int64_t fetching = stop - begin < FETCHING ? stop - begin : FETCHING;
        unit += stop - begin;
        for (int64_t piece = 0; piece < pieces; piece++) {
            int64_t input = inputs * piece / pieces, count = inputs * (piece + 1) / pieces - input;
            const float *weight = (const float *)panel_of(dense, panel) + input * PANEL, *next = weight + count * PANEL;
            int64_t inputs_of_next = count;
            if (piece + 1 == pieces && unit == end) {
                next = panel_of(after, panels_of(after) * thread / threads);
                inputs_of_next = after->inputs / pieces_of(after);
            }
            /* Evenly during the last blocks: memory is slower than one block of few tokens would ask. */
            int64_t pace = (inputs_of_next * PANEL * (int64_t)sizeof(float) / count + fetching - 1) / fetching;
            for (int64_t block = begin; block < stop; block++) {
                int64_t first = tokens * block / blocks, rows = tokens * (block + 1) / blocks - first;
                int64_t at = first * outputs + o, part_of_next = block - (stop - fetching);
                const char *fetched = (const char *)next + part_of_next * count * pace;
                multiply_block(values + first * inputs + input, inputs, weight, count, fetched,
                               part_of_next < 0 ? 0 : pace, rows, piece == 0, piece + 1 == pieces, dense->bias + o,
                               activation, residual ? residual + at : NULL, to + at, outputs, parts);
            }
        }
    }
}

static inline __attribute__((always_inline)) void compute(const Dense *dense, const Dense *after, const float *values,
                                                          const Workspace *workspace, int64_t tokens, int64_t activation,
                                                          const float *residual, float *to) {
    (void)workspace;
    int64_t stretches = (tokens + STRETCH - 1) / STRETCH;
    for (int64_t stretch = 0; stretch < stretches; stretch++) {
        int64_t first = tokens * stretch / stretches, count = tokens * (stretch + 1) / stretches - first;
        compute_stretch(dense, stretch + 1 < stretches ? dense : after, values + first * dense->inputs, count,
                        activation, residual ? residual + first * dense->outputs : NULL, to + first * dense->outputs);
    }
}
