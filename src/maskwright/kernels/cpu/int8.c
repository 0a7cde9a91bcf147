/* An encoder for inference (`encoder.h`), in 8-bit numbers, for processors with AVX512_VNNI.

   Activations are quantized per token: x = zero_point + scale q, with a signed byte q and a zero point that is a value
   (fp32), not an integer. Weights are quantized per output channel: w = weight_scale (u - 128), with u from 1 to 255. A
   product is then

       y = weight_scale scale (sum of u q - 128 sum of q) + zero_point (sum of the weights) + bias

   and the first sum is what vpdpbusd computes: 64 products of an unsigned and a signed byte in one instruction. Tokens
   are quantized while they are in L1.

   While tokens are multiplied with one panel of weights, the next panel is prefetched into L2, so that the few tokens
   of a short text do not wait for memory. Threads share a layer's panels.

   NaN and infinite values make all results of their token NaN. Sums of 65,536 products fit into 32 bits (255 x 128
   each), and so does 128 times the sum of as many values; `encoder.py` supports no wider layers, and only inputs that are
   multiples of 16. */

#define PREPARES 1
#define PANEL 48 /* three registers of 16 sums. In a panel, by 4 inputs, 48 groups of 4 bytes */

#include "encoder.h"

static void quantize_token(const float *values, int64_t width, int8_t *quantized, Quantization *quantization) {
    __m512 low = _mm512_loadu_ps(values), high = low;
    __mmask16 unknown = _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q);
    for (int64_t i = LANES; i < width; i += LANES) {
        __m512 x = _mm512_loadu_ps(values + i);
        low = _mm512_min_ps(low, x);
        high = _mm512_max_ps(high, x);
        unknown |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    }
    float least = _mm512_reduce_min_ps(low), scale = (_mm512_reduce_max_ps(high) - least) / 255.0f;
    if (unknown) scale = NAN; /* the minimum and maximum ignore NaN; an infinite range gives NaN by itself */
    float zero_point = least + 128.0f * scale;
    v16 inverse = all(scale > 0 ? 1.0f / scale : 0.0f);
    __m128i sum = _mm_setzero_si128();
    for (int64_t i = 0; i < width; i += LANES) {
        __m512i q = _mm512_cvtps_epi32((__m512)((load(values + i) - all(zero_point)) * inverse));
        __m128i bytes = _mm512_cvtsepi32_epi8(q); /* saturates */
        sum = _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), bytes);
        _mm_storeu_si128((__m128i *)(quantized + i), bytes);
    }
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    *quantization = (Quantization){scale, zero_point, 128 * _mm_cvtsi128_si32(sum)};
}

static void prepare_token(const float *values, int64_t width, const Workspace *workspace, int64_t token) {
    quantize_token(values, width, workspace->quantized + token * width, workspace->quantizations + token);
}

/* --- products of integers: up to 8 tokens with one panel. Meanwhile the memory at `next` is prefetched, `pace`
   bytes for every 4 inputs. */

#define BEGIN(r) __m512i a##r = zero, b##r = zero, c##r = zero;
#define ADD(r)                                                                 \
    q = _mm512_set1_epi32(*(const int32_t *)(quantized + r * inputs + i));     \
    a##r = _mm512_dpbusd_epi32(a##r, u, q);                                    \
    b##r = _mm512_dpbusd_epi32(b##r, v, q);                                    \
    c##r = _mm512_dpbusd_epi32(c##r, w, q);
#define KEEP(r) sums[r] = a##r, sums[ROWS + r] = b##r, sums[2 * ROWS + r] = c##r;
#define PRODUCT(R)                                                                                                     \
    static void product##R(const int8_t *quantized, const uint8_t *weight, const uint8_t *next, int64_t pace,            \
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
    (void)values; /* Their quantized values are in the workspace. */
    int64_t inputs = dense->inputs, outputs = dense->outputs, thread = omp_get_thread_num();
    int64_t begin = first_panel(dense, thread), end = first_panel(dense, thread + 1);
    /* As few tiles of up to 8 tokens as possible, of nearly equal size: one token takes as long as four. */
    int64_t tiles = (tokens + ROWS - 1) / ROWS;
    /* The next panel is prefetched during the last three tiles, a cache line or more at a time. A single small tile
       does not leave enough time to prefetch the next panel. */
    int64_t prefetching = tiles < 3 ? tiles : 3, pace = prefetching ? 4 * PANEL / prefetching : 0;
    for (int64_t panel = begin; panel < end; panel++) {
        const uint8_t *weight = panel_of(dense, panel), *next = panel_of(dense, panel + 1);
        if (panel + 1 == end) next = panel_of(after, first_panel(after, thread));
        for (int64_t tile = 0; tile < tiles; tile++) {
            int64_t first = tokens * tile / tiles, rows = tokens * (tile + 1) / tiles - first;
            int64_t part_of_next = tile - (tiles - prefetching);
            const uint8_t *prefetched = part_of_next < 0 ? weight : next + part_of_next * (inputs / 4) * pace;
            __m512i sums[3 * ROWS];
            PRODUCTS[rows](workspace->quantized + first * inputs, weight, prefetched, pace, inputs, sums);
            for (int64_t part = 0, o = panel * PANEL; part < 3 && o < outputs; part++, o += LANES) {
                v16 weight_scale = load(dense->scale + o), sum = load(dense->sum + o), bias = load(dense->bias + o);
                for (int64_t row = 0; row < rows; row++) {
                    Quantization token = workspace->quantizations[first + row];
                    int64_t at = (first + row) * outputs + o;
                    __m512i whole = _mm512_sub_epi32(sums[part * ROWS + row], _mm512_set1_epi32(token.sum));
                    v16 y = (v16)_mm512_cvtepi32_ps(whole) * all(token.scale) * weight_scale;
                    y = activated(y + (sum * all(token.zero_point) + bias), activation);
                    if (residual) y += load(residual + at);
                    store(to + at, y);
                }
            }
        }
    }
}
