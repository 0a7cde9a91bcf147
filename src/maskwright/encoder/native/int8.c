/* An encoder that is only used, in 8-bit numbers, for processors with AVX512_VNNI. Compiled and called by
   `packed/native_*.py`, which also says what the structures mean to Python.

   A token's values x are kept as whole numbers q of 8 bits, x = middle + step q with one middle and one step a token; a
   weight is w = weight_step (u - 128) with one step an output and u from 1 to 255. A product is then

       y = weight_step step (sum of u q - 128 sum of q) + middle (sum of the weights) + bias

   and the first sum is what vpdpbusd computes: 64 products of an unsigned and a signed byte in one instruction. What
   surrounds a product (bias, activation, residual, LayerNorm, rounding) is done while its numbers are in a register or
   in the nearest cache; that, and not the product itself, is what is faster here than a chain of library calls.

   While tokens are multiplied with one panel of weights, the next panel is fetched into the second cache, so that the
   few tokens of a short text do not wait for memory.

   Threads share a layer's outputs, in panels of 48. Every number is computed by one thread in one order, so a result
   depends neither on how many there are nor on what else is in the batch.

   What is no number stays none, and what is infinite becomes none: a token that has such a value has no other in what
   is computed of it. Sums of 65,536 products fit into 32 bits (255 x 128 each), and 128 times the sum of as many whole
   numbers; `native_dense.py` hands over no wider layers, and only widths that are multiples of 16. */

#include "activations.h"
#include "attention.h"

#define PANEL 48 /* outputs side by side: three registers of 16 sums */

typedef struct {
    const uint8_t *weight; /* panels of 48 outputs; in each, by 4 inputs, 48 groups of 4 bytes */
    const float *step, *sum, *bias; /* by output, for whole panels */
    int64_t inputs, outputs; /* multiples of 16, so that a row of what comes out is registers */
} Dense;

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    Dense first, second; /* attention: queries, keys and values; output. feed-forward: in; out */
    Norm norm;
} Block;

/* Embeddings that are added up. */
typedef struct {
    const float *words, *positions, *segments; /* segments may be NULL */
    int64_t num_words, num_positions, num_segments; /* of one segment, all tokens are */
    int64_t position_offset; /* positions skipped at the front */
    int64_t width;
} Tables;

typedef struct {
    Tables tables;
    const Block *attention, *ffn;
    const int64_t *attention_plan, *ffn_plan; /* which block each layer uses */
    int64_t layers, width, inner, heads, activation;
    float epsilon;
} Encoder;

/* A stream of slots, and the tokens among them: slots that are no filler. */
typedef struct {
    const int64_t *ids, *position_ids, *segment_ids, *sequence_ids; /* slots */
    int64_t *offsets; /* where runs of tokens that attend to each other begin; one more than there are runs */
    int64_t *places; /* the slot of each token */
    const int64_t *read; /* tokens that the last layer computes; NULL for all */
    float *embedded; /* tokens x the tables' width */
    float *hidden; /* tokens x width; overwritten */
    float *result; /* tokens read x width */
    int64_t slots, row_length; /* no run goes beyond the end of a row; 0 if there are no rows */
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
    float *inner; /* inner, and no less than width */
    float *scores; /* each thread's own, for attention: `numbers_needed` */
    int8_t *whole; /* the larger of inner and width */
    Rounding *roundings;
} Room;

/* --- one token */

static void round_token(const float *values, int64_t width, int8_t *whole, Rounding *rounding) {
    __m512 low = _mm512_loadu_ps(values), high = low;
    __mmask16 unknown = _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q);
    for (int64_t i = LANES; i < width; i += LANES) {
        __m512 x = _mm512_loadu_ps(values + i);
        low = _mm512_min_ps(low, x);
        high = _mm512_max_ps(high, x);
        unknown |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    }
    float least = _mm512_reduce_min_ps(low), step = (_mm512_reduce_max_ps(high) - least) / 255.0f;
    if (unknown) step = NAN; /* least and greatest know nothing of it; an infinite range is none by itself */
    float middle = least + 128.0f * step;
    v16 inverse = all(step > 0 ? 1.0f / step : 0.0f);
    __m128i sum = _mm_setzero_si128();
    for (int64_t i = 0; i < width; i += LANES) {
        __m512i q = _mm512_cvtps_epi32((__m512)((load(values + i) - all(middle)) * inverse));
        __m128i bytes = _mm512_cvtsepi32_epi8(q); /* what is beyond 8 bits becomes the nearest that is not */
        sum = _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), bytes);
        _mm_storeu_si128((__m128i *)(whole + i), bytes);
    }
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    *rounding = (Rounding){step, middle, 128 * _mm_cvtsi128_si32(sum)};
}

static void normalise_token(float *values, int64_t width, const Norm *norm, float epsilon) {
    v16 sum = all(0.0f), squares = all(0.0f);
    for (int64_t i = 0; i < width; i += LANES) sum += load(values + i);
    v16 mean = all(total(sum) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) squares += (load(values + i) - mean) * (load(values + i) - mean);
    v16 scale = all(1.0f / sqrtf(total(squares) / (float)width + epsilon));
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normal = (load(values + i) - mean) * scale;
        store(values + i, normal * load(norm->weight + i) + load(norm->bias + i));
    }
}

/* --- products of whole numbers: up to 8 tokens with one panel. Sums have names, no indices, to stay in registers.
   Meanwhile what lies at `next` is fetched, `pace` bytes for every 4 inputs. */

#define EACH1(X) X(0)
#define EACH2(X) EACH1(X) X(1)
#define EACH3(X) EACH2(X) X(2)
#define EACH4(X) EACH3(X) X(3)
#define EACH5(X) EACH4(X) X(4)
#define EACH6(X) EACH5(X) X(5)
#define EACH7(X) EACH6(X) X(6)
#define EACH8(X) EACH7(X) X(7)
#define BEGIN(r) __m512i a##r = zero, b##r = zero, c##r = zero;
#define ADD(r)                                                                 \
    q = _mm512_set1_epi32(*(const int32_t *)(whole + r * inputs + i));         \
    a##r = _mm512_dpbusd_epi32(a##r, u, q);                                    \
    b##r = _mm512_dpbusd_epi32(b##r, v, q);                                    \
    c##r = _mm512_dpbusd_epi32(c##r, w, q);
#define KEEP(r) sums[r] = a##r, sums[ROWS + r] = b##r, sums[2 * ROWS + r] = c##r;
#define PRODUCT(R)                                                                                                     \
    static void product##R(const int8_t *whole, const uint8_t *weight, const uint8_t *next, int64_t pace,              \
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

static const uint8_t *panel_of(const Dense *dense, int64_t panel) {
    return dense->weight + panel * PANEL * dense->inputs;
}

static inline __attribute__((always_inline)) void compute(const Dense *dense, const Dense *after, const Room *room,
                                                          int64_t tokens, int64_t activation, const float *residual,
                                                          float *to) {
    int64_t inputs = dense->inputs, outputs = dense->outputs, thread = omp_get_thread_num();
    int64_t begin = first_panel(dense, thread), end = first_panel(dense, thread + 1);
    /* As many tokens in each block as the fewest blocks of 8 allow: one by itself takes as long as four. */
    int64_t blocks = (tokens + ROWS - 1) / ROWS;
    /* The next panel is fetched evenly during the last blocks, a line or more at a time: memory is slower than one block
       of few tokens would ask. */
    int64_t fetching = blocks < 3 ? blocks : 3, pace = fetching ? 4 * PANEL / fetching : 0;
    for (int64_t panel = begin; panel < end; panel++) {
        const uint8_t *weight = panel_of(dense, panel), *next = panel_of(dense, panel + 1);
        if (panel + 1 == end) next = panel_of(after, first_panel(after, thread));
        for (int64_t block = 0; block < blocks; block++) {
            int64_t first = tokens * block / blocks, rows = tokens * (block + 1) / blocks - first;
            int64_t part_of_next = block - (blocks - fetching);
            const uint8_t *fetched = part_of_next < 0 ? weight : next + part_of_next * (inputs / 4) * pace;
            __m512i sums[3 * ROWS];
            PRODUCTS[rows](room->whole + first * inputs, weight, fetched, pace, inputs, sums);
            for (int64_t part = 0, o = panel * PANEL; part < 3 && o < outputs; part++, o += LANES) {
                v16 step = load(dense->step + o), sum = load(dense->sum + o), bias = load(dense->bias + o);
                for (int64_t row = 0; row < rows; row++) {
                    Rounding rounding = room->roundings[first + row];
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

/* Everything below that has an `omp for` or a barrier is called by all threads of a team, and ends with all of them. */

/* One dense layer; `after` is the one that will be computed next. */
static void apply(const Dense *dense, const Dense *after, const Room *room, int64_t tokens, int64_t activation,
                  const float *residual, float *to) {
    switch (activation) {
    case GELU: compute(dense, after, room, tokens, GELU, residual, to); break;
    case GELU_TANH: compute(dense, after, room, tokens, GELU_TANH, residual, to); break;
    case RELU: compute(dense, after, room, tokens, RELU, residual, to); break;
    default: compute(dense, after, room, tokens, NONE, residual, to);
    }
#pragma omp barrier
}

static void round_tokens(const float *values, int64_t tokens, int64_t width, const Room *room) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++)
        round_token(values + token * width, width, room->whole + token * width, room->roundings + token);
}

static void normalise_tokens(float *values, int64_t tokens, const Encoder *encoder, const Norm *norm,
                             const Room *room) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) {
        float *from = values + token * encoder->width;
        normalise_token(from, encoder->width, norm, encoder->epsilon);
        round_token(from, encoder->width, room->whole + token * encoder->width, room->roundings + token);
    }
}

/* --- what comes before the layers */

static int all_within(const int64_t *numbers, int64_t count, int64_t begin, int64_t end) {
    int within = 1;
    for (int64_t i = 0; i < count; i++) within &= numbers[i] >= begin && numbers[i] < end;
    return within;
}

/* Write where the tokens of a batch and their runs lie, and how many there are. Something else than 0 is returned, and
   nothing written, if an embedding that is asked for is not there. */
int survey(const Encoder *encoder, Batch *batch) {
    const Tables *tables = &encoder->tables;
    int64_t slots = batch->slots, skipped = tables->position_offset;
    if (!all_within(batch->ids, slots, 0, tables->num_words)) return 1;
    if (!all_within(batch->position_ids, slots, -skipped, tables->num_positions - skipped)) return 1;
    if (tables->num_segments > 1 && !all_within(batch->segment_ids, slots, 0, tables->num_segments)) return 1;
    int64_t tokens = 0, runs = 0, longest = 0;
    for (int64_t slot = 0; slot < slots; slot++) {
        int64_t sequence = batch->sequence_ids[slot];
        if (sequence < 0) continue;
        int row_begins = batch->row_length && slot % batch->row_length == 0;
        if (!slot || row_begins || sequence != batch->sequence_ids[slot - 1]) batch->offsets[runs++] = tokens;
        batch->places[tokens++] = slot;
        int64_t length = tokens - batch->offsets[runs - 1];
        longest = length > longest ? length : longest;
    }
    batch->offsets[runs] = tokens;
    batch->tokens = tokens, batch->runs = runs, batch->longest = longest;
    return 0;
}

/* Add up the embeddings of each token of a batch that was surveyed. */
void embed(const Encoder *encoder, const Batch *batch, int threads) {
    const Tables *tables = &encoder->tables;
    int64_t width = tables->width;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t token = 0; token < batch->tokens; token++) {
        int64_t slot = batch->places[token], segment = tables->num_segments > 1 ? batch->segment_ids[slot] : 0;
        const float *word = tables->words + batch->ids[slot] * width;
        const float *position = tables->positions + (batch->position_ids[slot] + tables->position_offset) * width;
        const float *of_segment = tables->segments ? tables->segments + segment * width : NULL;
        float *to = batch->embedded + token * width;
        for (int64_t i = 0; i < width; i++) to[i] = word[i] + position[i];
        for (int64_t i = 0; of_segment && i < width; i++) to[i] += of_segment[i];
    }
}

/* --- the whole of it */

/* Encode a batch that was surveyed. The last hidden states are then in `hidden`, or those of the tokens read in
   `result`. */
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
            int last = layer == encoder->layers - 1;
            const Block *after = last ? attention : encoder->attention + encoder->attention_plan[layer + 1];
            apply(&attention->first, &attention->second, room, tokens, NONE, NULL, room->projected);
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
            if (batch->read && last) {
                /* What follows is each token's own. */
                tokens = batch->num_read;
#pragma omp for schedule(static)
                for (int64_t token = 0; token < tokens; token++) {
                    for (int64_t i = 0; i < width; i += LANES) {
                        store(batch->result + token * width + i, load(hidden + batch->read[token] * width + i));
                        store(room->inner + token * width + i, load(mixed + batch->read[token] * width + i));
                    }
                }
                mixed = room->inner;
                hidden = batch->result;
            }
            round_tokens(mixed, tokens, width, room);
            apply(&attention->second, &ffn->first, room, tokens, NONE, hidden, other);
            normalise_tokens(other, tokens, encoder, &attention->norm, room);
            apply(&ffn->first, &ffn->second, room, tokens, encoder->activation, NULL, room->inner);
            round_tokens(room->inner, tokens, encoder->inner, room);
            apply(&ffn->second, &after->first, room, tokens, NONE, other, hidden);
            normalise_tokens(hidden, tokens, encoder, &ffn->norm, room);
        }
    }
}

/* One dense layer on fp32 values; `room` needs whole numbers and roundings only. */
void transform(const Dense *dense, const float *values, int64_t tokens, int64_t activation, const Room *room, float *to,
               int threads) {
#pragma omp parallel num_threads(threads)
    {
        round_tokens(values, tokens, dense->inputs, room);
        apply(dense, dense, room, tokens, activation, NULL, to);
    }
}
