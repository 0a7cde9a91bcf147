/* An encoder for inference (`encoder.h`), in 8-bit numbers, for processors with AVX512_VNNI.

   A token's values x are rounded to integers q of 8 bits, x = middle + step q with one middle and one step a token; a
   weight is w = weight_step (u - 128) with one step an output and u from 1 to 255. A product is then

       y = weight_step step (sum of u q - 128 sum of q) + middle (sum of the weights) + bias

   and the first sum is what vpdpbusd computes: 64 products of an unsigned and a signed byte in one instruction. Tokens
   are rounded while they are in the nearest cache.

   While tokens are multiplied with one panel of weights, the next panel is fetched into the second cache, so that the
   few tokens of a short text do not wait for memory. Threads share a layer's panels.

   NaN and infinite values make all results of their token NaN. Sums of 65,536 products fit into 32 bits (255 x 128
   each), and so does 128 times the sum of as many values; `encoder.py` supports no wider layers, and only inputs that are
   multiples of 16. */

#define PREPARES 1
#define PANEL 48 /* three registers of 16 sums. In a panel, by 4 inputs, 48 groups of 4 bytes */

#include "encoder.h"

static void round_token(const float *values, int64_t width, int8_t *rounded, Rounding *rounding) {
    __m512 low = _mm512_loadu_ps(values), high = low;
    __mmask16 unknown = _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q);
    for (int64_t i = LANES; i < width; i += LANES) {
        __m512 x = _mm512_loadu_ps(values + i);
        low = _mm512_min_ps(low, x);
        high = _mm512_max_ps(high, x);
        unknown |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    }
    float least = _mm512_reduce_min_ps(low), step = (_mm512_reduce_max_ps(high) - least) / 255.0f;
    if (unknown) step = NAN; /* the minimum and maximum ignore NaN; an infinite range gives NaN by itself */
    float middle = least + 128.0f * step;
    v16 inverse = all(step > 0 ? 1.0f / step : 0.0f);
    __m128i sum = _mm_setzero_si128();
    for (int64_t i = 0; i < width; i += LANES) {
        __m512i q = _mm512_cvtps_epi32((__m512)((load(values + i) - all(middle)) * inverse));
        __m128i bytes = _mm512_cvtsepi32_epi8(q); /* saturates */
        sum = _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), bytes);
        _mm_storeu_si128((__m128i *)(rounded + i), bytes);
    }
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    *rounding = (Rounding){step, middle, 128 * _mm_cvtsi128_si32(sum)};
}

static void prepare_token(const float *values, int64_t width, const Workspace *workspace, int64_t token) {
    round_token(values, width, workspace->rounded + token * width, workspace->roundings + token);
}

/* --- products of integers: up to 8 tokens with one panel. Meanwhile what lies at `next` is fetched, `pace` bytes
   for every 4 inputs. */

#define BEGIN(r) __m512i a##r = zero, b##r = zero, c##r = zero;
#define ADD(r)                                                                 \
    q = _mm512_set1_epi32(*(const int32_t *)(rounded + r * inputs + i));       \
    a##r = _mm512_dpbusd_epi32(a##r, u, q);                                    \
    b##r = _mm512_dpbusd_epi32(b##r, v, q);                                    \
    c##r = _mm512_dpbusd_epi32(c##r, w, q);
#define KEEP(r) sums[r] = a##r, sums[ROWS + r] = b##r, sums[2 * ROWS + r] = c##r;
#define PRODUCT(R)                                                                                                     \
    static void product##R(const int8_t *rounded, const uint8_t *weight, const uint8_t *next, int64_t pace,              \
                           int64_t inputs, __m512i *sums) {                                                            \
        const __m512i zero = _mm512_setzero_si512();                                                                   \
        EACH##R(BEGIN)                                                                                                 \
        for (int64_t i = 0; i < inputs; i += 4, weight += 4 * PANEL, next += pace) {                                   \
            __m512i q, u = _mm512_loadu_si512(weight), v = _mm512_loadu_si512(weight + 64),                            \
                       w = _mm512_loadu_si512(weight + 128);                                                           \
            _mm_prefetch(next, _MM_HINT_T1);                                                                           \
            _mm_prefetch(next + 64, _MM_HINT_T1);                                                                      \
            _mm_prefetch(next + 128, _MM_HINT_T1);                                                                     \
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
PRODUCT(7)
PRODUCT(8)

static void (*const PRODUCTS[])(const int8_t *, const uint8_t *, const uint8_t *, int64_t, int64_t, __m512i *) = {
    NULL, product1, product2, product3, product4, product5, product6, product7, product8,
};

/* The first panel that a thread computes; that of the next thread is the end. */
static int64_t first_panel(const Dense *dense, int64_t thread) {
    return (dense->outputs + PANEL - 1) / PANEL * thread / omp_get_num_threads();
}

static const void *panel_of(const Dense *dense, int64_t panel) {
    return (const uint8_t *)dense->weight + panel * PANEL * dense->inputs;
}

static inline __attribute__((always_inline)) void compute(const Dense *dense, const Dense *after, const float *values,
                                                          const Workspace *workspace, int64_t tokens, int64_t activation,
                                                          const float *residual, float *to) {
    (void)values; /* Their rounded values are in the workspace. */
    int64_t inputs = dense->inputs, outputs = dense->outputs, thread = omp_get_thread_num();
    int64_t begin = first_panel(dense, thread), end = first_panel(dense, thread + 1);
    /* As many tokens in each block as the fewest blocks of 8 allow: one by itself takes as long as four. */
    int64_t blocks = (tokens + ROWS - 1) / ROWS;
    /* The next panel is fetched evenly during the last blocks, a line or more at a time: memory is slower than one
       block of few tokens would ask. */
    int64_t fetching = blocks < 3 ? blocks : 3, pace = fetching ? 4 * PANEL / fetching : 0;
    for (int64_t panel = begin; panel < end; panel++) {
        const uint8_t *weight = panel_of(dense, panel), *next = panel_of(dense, panel + 1);
        if (panel + 1 == end) next = panel_of(after, first_panel(after, thread));
        for (int64_t block = 0; block < blocks; block++) {
            int64_t first = tokens * block / blocks, rows = tokens * (block + 1) / blocks - first;
            int64_t part_of_next = block - (blocks - fetching);
            const uint8_t *fetched = part_of_next < 0 ? weight : next + part_of_next * (inputs / 4) * pace;
            __m512i sums[3 * ROWS];
            PRODUCTS[rows](workspace->rounded + first * inputs, weight, fetched, pace, inputs, sums);
            for (int64_t part = 0, o = panel * PANEL; part < 3 && o < outputs; part++, o += LANES) {
                v16 step = load(dense->step + o), sum = load(dense->sum + o), bias = load(dense->bias + o);
                for (int64_t row = 0; row < rows; row++) {
                    Rounding rounding = workspace->roundings[first + row];
                    int64_t at = (first + row) * outputs + o;
                    __m512i whole = _mm512_sub_epi32(sums[part * ROWS + row], _mm512_set1_epi32(rounding.sum));
                    v16 y = (v16)_mm512_cvtepi32_ps(whole) * all(rounding.step) * step;
                    y = activated(y + (sum * all(rounding.middle) + bias), activation);
                    if (residual) y += load(residual + at);
                    store(to + at, y);
                }
            }
        }
    }
}
