/* An encoder that is only used, in 8-bit numbers, for processors with AVX512_VNNI. Compiled and called by `packed/native_*.py`, which also
   says what the structures mean to Python.

   A token's values x are kept as whole numbers q of 8 bits, x = middle + step q with one middle and one step a token; a
   weight is w = weight_step (u - 128) with one step an output and u from 1 to 255. A product is then

       y = weight_step step (sum of u q - 128 sum of q) + middle (sum of the weights) + bias

   and the first sum is what vpdpbusd computes: 64 products of an unsigned and a signed byte in one instruction. What
   surrounds a product (bias, activation, residual, LayerNorm, rounding) is done while its numbers are in a register or
   in the nearest cache; that, and not the product itself, is what is faster here than a chain of library calls.

   Threads share a layer's outputs, in panels of 48. Every number is computed by one thread in one order, so a result
   depends neither on how many there are nor on what else is in the batch.

   What is no number stays none, and what is infinite becomes none: a token that has such a value has no other in what
   is computed of it. Sums of 65,536 products fit into 32 bits (255 x 128 each), and 128 times the sum of as many whole
   numbers; `native_dense.py` hands over no wider layers, and only widths that are multiples of 16. */

#include "attention.h"

#define PANEL 48 /* outputs side by side: three registers of 16 sums */

typedef struct {
    const uint8_t *weight; /* panels of 48 outputs; in each, by 4 inputs, 48 groups of 4 bytes */
    const float *step, *sum, *bias; /* by output, for whole panels */
    int64_t inputs, outputs; /* multiples of 16, so that a row of what comes out is registers */
} Dense;

typedef struct {
    Dense first, second; /* attention: queries, keys and values; output. feed-forward: in; out */
    const float *norm_weight, *norm_bias;
} Block;

typedef struct {
    const Block *attention, *ffn;
    const int64_t *attention_plan, *ffn_plan; /* which block each layer uses */
    int64_t layers, width, inner, heads, activation;
    float epsilon;
} Encoder;

typedef struct {
    float *hidden; /* tokens x width; overwritten */
    const int64_t *offsets; /* where runs of tokens that attend to each other begin; one more than there are runs */
    const int64_t *read; /* tokens that the last layer computes; NULL for all */
    int64_t tokens, runs, longest, num_read;
} Batch;

typedef struct {
    float step, middle;
    int32_t sum; /* 128 times the sum of the whole numbers */
} Rounding;

/* Of the larger of tokens and tokens read. */
typedef struct {
    float *projected; /* 3 x width */
    float *mixed, *other; /* width */
    float *inner; /* the larger of inner and width */
    float *scores; /* each thread's own, for attention: `numbers_needed` */
    int8_t *whole; /* the larger of inner and width */
    Rounding *roundings;
} Room;

enum { NONE, GELU, GELU_TANH, RELU };

/* --- activations */

/* x times the normal distribution's share below x; the error function is Abramowitz and Stegun's 7.1.26 (1.5e-7). */
static inline v16 gelu(v16 x) {
    v16 z = (v16)_mm512_abs_ps((__m512)x) * all(0.70710678f);
    v16 t = all(1.0f) / (all(1.0f) + all(0.3275911f) * z);
    v16 p = all(1.061405429f);
    p = p * t + all(-1.453152027f);
    p = p * t + all(1.421413741f);
    p = p * t + all(-0.284496736f);
    p = p * t + all(0.254829592f);
    v16 tail = all(0.5f) * p * t * exponential(-z * z); /* the share beyond |x| */
    __mmask16 negative = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return x * (v16)_mm512_mask_blend_ps(negative, (__m512)(all(1.0f) - tail), (__m512)tail);
}

/* x / (1 + exp(-2 u)) is 0.5 x (1 + tanh(u)). */
static inline v16 gelu_tanh(v16 x) {
    v16 twice = all(1.59576912f) * (x + all(0.044715f) * x * x * x);
    v16 less = exponential((v16)_mm512_or_ps((__m512)twice, _mm512_set1_ps(-0.0f))); /* exp(-|2 u|) */
    __mmask16 negative = _mm512_cmp_ps_mask((__m512)twice, _mm512_setzero_ps(), _CMP_LT_OQ);
    return x * (v16)_mm512_mask_blend_ps(negative, _mm512_set1_ps(1.0f), (__m512)less) / (all(1.0f) + less);
}

static inline v16 activated(v16 x, int64_t activation) {
    if (activation == GELU) return gelu(x);
    if (activation == GELU_TANH) return gelu_tanh(x);
    return activation == RELU ? larger(all(0.0f), x) : x;
}

/* --- one token */

static void round_token(const float *values, int64_t width, int8_t *whole, Rounding *rounding) {
    __m512 low = _mm512_loadu_ps(values), high = low;
    __mmask16 unknown = _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q);
    for (int64_t i = 16; i < width; i += 16) {
        __m512 x = _mm512_loadu_ps(values + i);
        low = _mm512_min_ps(low, x);
        high = _mm512_max_ps(high, x);
        unknown |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    }
    float least = _mm512_reduce_min_ps(low), step = (_mm512_reduce_max_ps(high) - least) / 255.0f;
    if (unknown) step = NAN; /* least and greatest know nothing of it; an infinite range is none by itself */
    float middle = least + 128.0f * step;
    v16 inverse = all(step > 0 ? 1.0f / step : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < width; i += 16) {
        __m512i q = _mm512_cvtps_epi32((__m512)((load(values + i) - all(middle)) * inverse));
        q = _mm512_max_epi32(_mm512_min_epi32(q, _mm512_set1_epi32(127)), _mm512_set1_epi32(-128));
        sum = _mm512_add_epi32(sum, q);
        _mm_storeu_si128((__m128i *)(whole + i), _mm512_cvtepi32_epi8(q));
    }
    *rounding = (Rounding){step, middle, 128 * _mm512_reduce_add_epi32(sum)};
}

static void normalise_token(float *values, int64_t width, const Block *block, float epsilon) {
    v16 sum = all(0.0f), squares = all(0.0f);
    for (int64_t i = 0; i < width; i += 16) sum += load(values + i);
    v16 mean = all(total(sum) / (float)width);
    for (int64_t i = 0; i < width; i += 16) squares += (load(values + i) - mean) * (load(values + i) - mean);
    v16 scale = all(1.0f / sqrtf(total(squares) / (float)width + epsilon));
    for (int64_t i = 0; i < width; i += 16) {
        v16 normal = (load(values + i) - mean) * scale;
        store(values + i, normal * load(block->norm_weight + i) + load(block->norm_bias + i));
    }
}

/* --- products of whole numbers: some tokens with one panel. Sums have names, no indices, to stay in registers. */

#define EACH1(X) X(0)
#define EACH2(X) EACH1(X) X(1)
#define EACH4(X) EACH2(X) X(2) X(3)
#define EACH8(X) EACH4(X) X(4) X(5) X(6) X(7)
#define BEGIN(r) __m512i a##r = zero, b##r = zero, c##r = zero;
#define ADD(r)                                                                 \
    q = _mm512_set1_epi32(*(const int32_t *)(whole + r * inputs + i));         \
    a##r = _mm512_dpbusd_epi32(a##r, u, q);                                    \
    b##r = _mm512_dpbusd_epi32(b##r, v, q);                                    \
    c##r = _mm512_dpbusd_epi32(c##r, w, q);
#define KEEP(r) sums[3 * r] = a##r, sums[3 * r + 1] = b##r, sums[3 * r + 2] = c##r;
#define PRODUCT(R)                                                                                                     \
    static void product##R(const int8_t *whole, const uint8_t *weight, int64_t inputs, __m512i *sums) {                \
        const __m512i zero = _mm512_setzero_si512();                                                                   \
        EACH##R(BEGIN)                                                                                                 \
        for (int64_t i = 0; i < inputs; i += 4, weight += 4 * PANEL) {                                                 \
            __m512i q, u = _mm512_loadu_si512(weight), v = _mm512_loadu_si512(weight + 64),                            \
                       w = _mm512_loadu_si512(weight + 128);                                                           \
            EACH##R(ADD)                                                                                               \
        }                                                                                                              \
        EACH##R(KEEP)                                                                                                  \
    }
PRODUCT(1)
PRODUCT(2)
PRODUCT(4)
PRODUCT(8)

/* Everything below that has an `omp for` is called by all threads of a team, and ends with all of them. */

static void apply(const Dense *dense, const Room *room, int64_t tokens, int64_t activation, const float *residual,
                  float *to) {
    int64_t inputs = dense->inputs, outputs = dense->outputs, panels = (outputs + PANEL - 1) / PANEL;
#pragma omp for schedule(static)
    for (int64_t panel = 0; panel < panels; panel++) {
        const uint8_t *weight = dense->weight + panel * PANEL * inputs;
        for (int64_t first = 0, rows; first < tokens; first += rows) {
            __m512i sums[3 * ROWS];
            const int8_t *from = room->whole + first * inputs;
            rows = tokens - first >= 8 ? 8 : tokens - first >= 4 ? 4 : tokens - first >= 2 ? 2 : 1;
            if (rows == 8) product8(from, weight, inputs, sums);
            else if (rows == 4) product4(from, weight, inputs, sums);
            else if (rows == 2) product2(from, weight, inputs, sums);
            else product1(from, weight, inputs, sums);
            for (int64_t row = 0; row < rows; row++) {
                Rounding rounding = room->roundings[first + row];
                for (int64_t part = 0, o = panel * PANEL; part < 3 && o < outputs; part++, o += 16) {
                    int64_t at = (first + row) * outputs + o;
                    __m512i sum = _mm512_sub_epi32(sums[3 * row + part], _mm512_set1_epi32(rounding.sum));
                    v16 y = (v16)_mm512_cvtepi32_ps(sum) * all(rounding.step) * load(dense->step + o);
                    y += load(dense->sum + o) * all(rounding.middle) + load(dense->bias + o);
                    y = activated(y, activation);
                    if (residual) y += load(residual + at);
                    store(to + at, y);
                }
            }
        }
    }
}

static void round_tokens(const float *values, int64_t tokens, int64_t width, const Room *room) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++)
        round_token(values + token * width, width, room->whole + token * width, room->roundings + token);
}

static void normalise_tokens(float *values, int64_t tokens, const Encoder *encoder, const Block *block,
                             const Room *room) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) {
        float *from = values + token * encoder->width;
        normalise_token(from, encoder->width, block, encoder->epsilon);
        round_token(from, encoder->width, room->whole + token * encoder->width, room->roundings + token);
    }
}

/* --- the whole of it */

/* Encode a batch. The last hidden states are then in `hidden`, or those of the tokens read in `projected`. */
void encode(const Encoder *encoder, const Batch *batch, const Room *room, int threads) {
    float *hidden = batch->hidden, *other = room->other;
    int64_t width = encoder->width, tokens = batch->tokens;
    int64_t size = width / encoder->heads, per_thread = numbers_needed(size, batch->longest, 0);
#pragma omp parallel num_threads(threads) firstprivate(hidden, other, tokens)
    {
        round_tokens(hidden, tokens, width, room);
        for (int64_t layer = 0; layer < encoder->layers; layer++) {
            const Block *attention = encoder->attention + encoder->attention_plan[layer];
            const Block *ffn = encoder->ffn + encoder->ffn_plan[layer];
            apply(&attention->first, room, tokens, NONE, NULL, room->projected);
            float *mixed = room->mixed;
#pragma omp for schedule(dynamic) collapse(2)
            for (int64_t run = 0; run < batch->runs; run++)
                for (int64_t head = 0; head < encoder->heads; head++) {
                    int64_t first = batch->offsets[run], n = batch->offsets[run + 1] - first;
                    float *queries = room->projected + first * 3 * width + head * size;
                    attend((Values){queries, 3 * width}, n, (Values){queries + width, 3 * width},
                           (Values){queries + 2 * width, 3 * width}, n, size, &(Drops){.scale = 1.0f},
                           (Results){mixed + first * width + head * size, width}, NULL, 0,
                           room->scores + omp_get_thread_num() * per_thread, 0);
                }
            if (batch->read && layer == encoder->layers - 1) {
                /* What follows is each token's own. */
                tokens = batch->num_read;
#pragma omp for schedule(static)
                for (int64_t token = 0; token < tokens; token++) {
                    for (int64_t i = 0; i < width; i += 16) {
                        store(room->projected + token * width + i, load(hidden + batch->read[token] * width + i));
                        store(room->inner + token * width + i, load(mixed + batch->read[token] * width + i));
                    }
                }
                mixed = room->inner;
                hidden = room->projected;
            }
            round_tokens(mixed, tokens, width, room);
            apply(&attention->second, room, tokens, NONE, hidden, other);
            normalise_tokens(other, tokens, encoder, attention, room);
            apply(&ffn->first, room, tokens, encoder->activation, NULL, room->inner);
            round_tokens(room->inner, tokens, encoder->inner, room);
            apply(&ffn->second, room, tokens, NONE, other, hidden);
            normalise_tokens(hidden, tokens, encoder, ffn, room);
        }
    }
}

/* One dense layer on fp32 values; `room` needs whole numbers and roundings only. */
void transform(const Dense *dense, const float *values, int64_t tokens, int64_t activation, const Room *room, float *to,
               int threads) {
#pragma omp parallel num_threads(threads)
    {
        round_tokens(values, tokens, dense->inputs, room);
        apply(dense, room, tokens, activation, NULL, to);
    }
}
