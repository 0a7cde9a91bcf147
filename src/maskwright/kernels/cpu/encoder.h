/* An encoder that is only used: all of it but its dense layers, which `int8.c` and `fp32.c` bring, each in its
   precision (`prepare_token`, `compute`). Compiled and called by `packed/native_*.py`, which also says what the
   structures mean to Python.

   What surrounds a product (bias, activation, residual, LayerNorm) is done while its numbers are in a register or in
   the nearest cache; that, and not the product itself, is what is faster here than a chain of library calls. All layers
   are computed in one call.

   Threads share a layer's outputs. Every number is computed by one thread in one order, so a result depends neither on
   how many there are nor on what else is in the batch. */

#include "activations.h"
#include "attention.h"

#define LINE 64 /* bytes that a cache fetches together */

typedef struct {
    const void *weight;      /* panels of outputs, in whole panels; how they lie is the precision's matter */
    const float *step, *sum; /* by output, for whole panels; of 8-bit weights only */
    const float *bias;       /* by output, for whole panels */
    int64_t inputs, outputs; /* outputs are a multiple of 16, so that a row of what comes out is registers */
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
    int64_t layers, width, inner, heads, activation; /* widths are multiples of 16, and so is a head's size */
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
    int8_t *whole; /* the larger of inner and width; for products of 8-bit numbers only, as the next */
    Rounding *roundings;
} Room;

/* Whatever is named once for each of several tokens, so that sums have names, no indices, and stay in registers. */
#define EACH1(X) X(0)
#define EACH2(X) EACH1(X) X(1)
#define EACH3(X) EACH2(X) X(2)
#define EACH4(X) EACH3(X) X(3)
#define EACH5(X) EACH4(X) X(4)
#define EACH6(X) EACH5(X) X(5)
#define EACH7(X) EACH6(X) X(6)
#define EACH8(X) EACH7(X) X(7)

/* --- what a precision brings. Before this is included, PREPARES says whether there is something to prepare, and PANEL
   how many outputs a panel has. */

/* Where a panel of weights begins. */
static const void *panel_of(const Dense *dense, int64_t panel);

/* Turn the values of one token into what products take. */
static void prepare_token(const float *values, int64_t width, const Room *room, int64_t token);

/* A thread's part of one dense layer: to = activation(values weight + bias) + residual, with rows as wide as the
   layer's inputs and outputs. `values` are the last that were prepared; `after` is the layer that will be computed
   next. */
static inline __attribute__((always_inline)) void compute(const Dense *dense, const Dense *after, const float *values,
                                                          const Room *room, int64_t tokens, int64_t activation,
                                                          const float *residual, float *to);

/* --- what is between products. Everything that has an `omp for` or a barrier is called by all threads of a team, and
   ends with all of them. */

static void apply(const Dense *dense, const Dense *after, const float *values, const Room *room, int64_t tokens,
                  int64_t activation, const float *residual, float *to) {
    /* Four copies of the code, each without questions inside. */
    switch (activation) {
    case GELU: compute(dense, after, values, room, tokens, GELU, residual, to); break;
    case GELU_TANH: compute(dense, after, values, room, tokens, GELU_TANH, residual, to); break;
    case RELU: compute(dense, after, values, room, tokens, RELU, residual, to); break;
    default: compute(dense, after, values, room, tokens, NONE, residual, to);
    }
#pragma omp barrier
}

static void prepare(const float *values, int64_t tokens, int64_t width, const Room *room) {
    if (!PREPARES) return;
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) prepare_token(values + token * width, width, room, token);
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

static void normalise_and_prepare(float *values, int64_t tokens, const Encoder *encoder, const Norm *norm,
                                  const Room *room) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) {
        float *of_token = values + token * encoder->width;
        normalise_token(of_token, encoder->width, norm, encoder->epsilon);
        if (PREPARES) prepare_token(of_token, encoder->width, room, token);
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

/* Queries, keys and values of a batch, and where each token's mix goes; a head's numbers lie side by side. */
typedef struct {
    const float *queries, *keys, *values;
    int64_t query_stride, stride; /* numbers from token to token */
    float *mixed; /* tokens x width */
} Attention;

/* For `queries` tokens of one run, from `query` on. */
static void mix_head(const Attention *a, const Encoder *encoder, const Batch *batch, const Room *room, int64_t query,
                     int64_t queries, int64_t run, int64_t head) {
    int64_t size = encoder->width / encoder->heads, i = head * size;
    int64_t first = batch->offsets[run], n = batch->offsets[run + 1] - first;
    Values asking = {a->queries + query * a->query_stride + i, a->query_stride};
    Values keys = {a->keys + first * a->stride + i, a->stride}, values = {a->values + first * a->stride + i, a->stride};
    attend(asking, queries, keys, values, n, size, &(Drops){.scale = 1.0f},
           (Results){a->mixed + query * encoder->width + i, encoder->width}, NULL, 0,
           room->scores + omp_get_thread_num() * numbers_needed(size, batch->longest, 0), FP32);
}

static void mix(const Attention *a, const Encoder *encoder, const Batch *batch, const Room *room) {
#pragma omp for schedule(dynamic) collapse(2)
    for (int64_t run = 0; run < batch->runs; run++)
        for (int64_t head = 0; head < encoder->heads; head++) {
            int64_t first = batch->offsets[run];
            mix_head(a, encoder, batch, room, first, batch->offsets[run + 1] - first, run, head);
        }
}

static int64_t run_of(const Batch *batch, int64_t token) {
    int64_t low = 0, high = batch->runs - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (batch->offsets[middle] <= token) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* For tokens that are read only. Those beside each other that are of one run are computed together. */
static void mix_read(const Attention *a, const Encoder *encoder, const Batch *batch, const Room *room) {
#pragma omp for schedule(dynamic) collapse(2)
    for (int64_t first = 0; first < batch->num_read; first++)
        for (int64_t head = 0; head < encoder->heads; head++) {
            int64_t run = run_of(batch, batch->read[first]), end = first + 1;
            if (first && run_of(batch, batch->read[first - 1]) == run) continue;
            while (end < batch->num_read && run_of(batch, batch->read[end]) == run) end++;
            mix_head(a, encoder, batch, room, first, end - first, run, head);
        }
}

/* The tokens read of tokens x width, `stride` numbers from token to token. */
static void gather(const Batch *batch, const float *from, int64_t stride, int64_t width, float *to) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < batch->num_read; token++)
        for (int64_t i = 0; i < width; i += LANES)
            store(to + token * width + i, load(from + batch->read[token] * stride + i));
}

/* A layer that has some of another's outputs, from a panel's first on. */
static Dense outputs_of(const Dense *dense, int64_t first, int64_t outputs) {
    return (Dense){panel_of(dense, first / PANEL), dense->step ? dense->step + first : NULL,
                   dense->sum ? dense->sum + first : NULL, dense->bias + first, dense->inputs, outputs};
}

/* Attention of the last layer where not all tokens are read: all are attended to, but what else there is is each
   token's own. What is mixed is then in `inner`, what came in in `result`. */
static void attend_for_read(const Encoder *encoder, const Batch *batch, const Room *room, const Block *block,
                            const float *hidden) {
    int64_t width = encoder->width;
    float *projected = room->projected, *queries = room->other;
    gather(batch, hidden, width, width, batch->result);
    if (width % PANEL) {
        apply(&block->first, &block->second, hidden, room, batch->tokens, NONE, NULL, projected);
        gather(batch, projected, 3 * width, width, queries);
        Attention all_projected = {queries, projected + width, projected + 2 * width, width, 3 * width, room->inner};
        mix_read(&all_projected, encoder, batch, room);
        return;
    }
    Dense asks = outputs_of(&block->first, 0, width), answers = outputs_of(&block->first, width, 2 * width);
    apply(&answers, &asks, hidden, room, batch->tokens, NONE, NULL, projected);
    prepare(batch->result, batch->num_read, width, room);
    apply(&asks, &block->second, batch->result, room, batch->num_read, NONE, NULL, queries);
    mix_read(&(Attention){queries, projected, projected + width, width, 2 * width, room->inner}, encoder, batch, room);
}

/* Encode a batch that was surveyed. The last hidden states are then in `hidden`, or those of the tokens read in
   `result`. */
void encode(const Encoder *encoder, const Batch *batch, const Room *room, int threads) {
    float *hidden = batch->hidden, *other = room->other;
    int64_t width = encoder->width, tokens = batch->tokens;
#pragma omp parallel num_threads(threads) firstprivate(hidden, other, tokens)
    {
        prepare(hidden, tokens, width, room);
        for (int64_t layer = 0; layer < encoder->layers; layer++) {
            const Block *attention = encoder->attention + encoder->attention_plan[layer];
            const Block *ffn = encoder->ffn + encoder->ffn_plan[layer];
            int last = layer == encoder->layers - 1;
            const Block *after = last ? attention : encoder->attention + encoder->attention_plan[layer + 1];
            float *mixed = room->mixed;
            if (last && batch->read) {
                attend_for_read(encoder, batch, room, attention, hidden);
                mixed = room->inner;
                hidden = batch->result;
                tokens = batch->num_read;
            } else {
                float *projected = room->projected;
                apply(&attention->first, &attention->second, hidden, room, tokens, NONE, NULL, projected);
                Attention of = {projected, projected + width, projected + 2 * width, 3 * width, 3 * width, mixed};
                mix(&of, encoder, batch, room);
            }
            prepare(mixed, tokens, width, room);
            apply(&attention->second, &ffn->first, mixed, room, tokens, NONE, hidden, other);
            normalise_and_prepare(other, tokens, encoder, &attention->norm, room);
            apply(&ffn->first, &ffn->second, other, room, tokens, encoder->activation, NULL, room->inner);
            prepare(room->inner, tokens, encoder->inner, room);
            apply(&ffn->second, &after->first, room->inner, room, tokens, NONE, other, hidden);
            normalise_and_prepare(hidden, tokens, encoder, &ffn->norm, room);
        }
    }
}

/* One dense layer; `room` needs what tokens are prepared in only. */
void transform(const Dense *dense, const float *values, int64_t tokens, int64_t activation, const float *residual,
               const Room *room, float *to, int threads) {
#pragma omp parallel num_threads(threads)
    {
        prepare(values, tokens, dense->inputs, room);
        apply(dense, dense, values, room, tokens, activation, residual, to);
    }
}
