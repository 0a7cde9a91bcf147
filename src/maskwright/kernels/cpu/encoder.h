/* The layers of an encoder for inference, post-norm or pre-norm: all but the dense layers, which `int8.c` and `fp32.c`
   bring, each in its precision (`prepare_token`, `compute`). Compiled and called by `encoder.py`, which also defines the
   structures.

   Bias, activation, residual and LayerNorm of a product are computed while its numbers are in a register or in L1;
   that, and not the product itself, is what is faster here than a chain of library calls. A gate reads them again.

   Threads share a layer's outputs. Every number is computed by one thread in one order, so a result depends neither on
   how many there are nor on what else is in the batch. */

#include "activations.h"
#include "attention.h"

#define CACHE_LINE 64 /* cache line size in bytes */
#define QUERIES 512   /* of one task of attention, a multiple of ROWS: heads of a long text are shared by threads */

typedef struct {
    const void *weight;       /* whole panels of outputs; their layout depends on the precision */
    const float *scale, *sum; /* by output, for whole panels; of 8-bit weights only */
    const float *bias;        /* by output, for whole panels */
    int64_t inputs, outputs;  /* outputs are a multiple of 16 */
} Dense;

typedef struct {
    const float *weight, *bias; /* NULL for no norm */
} Norm;

typedef struct {
    Dense first, second; /* attention: queries, keys and values; output. Feed-forward: in (gated: and gate); out */
    Norm norm;
} Sublayer;

typedef struct {
    const Sublayer *attention, *ffn;
    /* By layer: its sublayers; tokens to either side that are attended to, -1 for all; cosines and sines of a head's
       angles for each position, NULL for no rotary positions. */
    const int64_t *attention_plan, *ffn_plan, *windows;
    const float *const *rotations;
    Norm final; /* after the last layer; pre-norm only */
    int64_t layers, width, inner, heads, activation; /* widths and a head's size are multiples of 16 */
    int64_t is_pre_norm, is_gated;
    float epsilon;
} Encoder;

typedef struct {
    const int64_t *cu_seqlens; /* boundaries of the sequences */
    const int64_t *outputs;    /* output positions: the tokens that the last layer computes; NULL for all */
    const int64_t *positions;  /* of the tokens, in the rotations; NULL without */
    float *hidden;             /* tokens x width; overwritten */
    float *result;             /* output positions x width */
    int64_t tokens, sequences, longest, num_outputs;
} Batch;

/* How the activations of a token are quantized. */
typedef struct {
    float scale, zero_point;
    int32_t sum; /* 128 times the sum of the quantized values */
} Quantization;

/* Of the larger of tokens and output positions. */
typedef struct {
    float *projected;       /* 3 x width; gated: no less than 2 x inner */
    float *context, *other; /* width */
    float *normed;          /* width; pre-norm only */
    float *inner;           /* inner */
    float *scores;          /* each thread's own: `attention_workspace` */
    int8_t *quantized;      /* the larger of inner and width; only for 8-bit products, like the next */
    Quantization *quantizations;
} Workspace;

/* A macro for each of several tokens, so that sums have names instead of indices, and stay in registers. */
#define EACH1(X) X(0)
#define EACH2(X) EACH1(X) X(1)
#define EACH3(X) EACH2(X) X(2)
#define EACH4(X) EACH3(X) X(3)
#define EACH5(X) EACH4(X) X(4)
#define EACH6(X) EACH5(X) X(5)
#define EACH7(X) EACH6(X) X(6)
#define EACH8(X) EACH7(X) X(7)

/* --- what a precision brings. Before this is included, PREPARES says whether there is something to prepare. */

/* Turn the values of one token into what products take. */
static void prepare_token(const float *values, int64_t width, const Workspace *workspace, int64_t token);

/* A thread's part of one dense layer: to = activation(values weight + bias) + residual, with rows as wide as the
   layer's inputs and outputs. `values` are the last that were prepared; `after` is the layer that will be computed
   next. */
static inline __attribute__((always_inline)) void compute(const Dense *dense, const Dense *after, const float *values,
                                                          const Workspace *workspace, int64_t tokens, int64_t activation,
                                                          const float *residual, float *to);

/* --- what is between products. Everything that has an `omp for` or a barrier is called by all threads of a team, and
   ends with all of them. */

static void apply(const Dense *dense, const Dense *after, const float *values, const Workspace *workspace, int64_t tokens,
                  int64_t activation, const float *residual, float *to) {
    /* Four copies of the code, each without branches inside. */
    switch (activation) {
    case GELU: compute(dense, after, values, workspace, tokens, GELU, residual, to); break;
    case GELU_TANH: compute(dense, after, values, workspace, tokens, GELU_TANH, residual, to); break;
    case RELU: compute(dense, after, values, workspace, tokens, RELU, residual, to); break;
    default: compute(dense, after, values, workspace, tokens, NONE, residual, to);
    }
#pragma omp barrier
}

static void prepare(const float *values, int64_t tokens, int64_t width, const Workspace *workspace) {
    if (!PREPARES) return;
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) prepare_token(values + token * width, width, workspace, token);
}

static void normalize_token(const float *values, int64_t width, const Norm *norm, float epsilon, float *to) {
    v16 sum = all(0.0f), squares = all(0.0f);
    for (int64_t i = 0; i < width; i += LANES) sum += load(values + i);
    v16 mean = all(total(sum) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) squares += (load(values + i) - mean) * (load(values + i) - mean);
    v16 scale = all(1.0f / sqrtf(total(squares) / (float)width + epsilon));
    for (int64_t i = 0; i < width; i += LANES) {
        v16 normal = (load(values + i) - mean) * scale;
        store(to + i, normal * load(norm->weight + i) + load(norm->bias + i));
    }
}

/* Return the normalized values, at `to`; without a norm, the values themselves. */
static const float *normalize_and_prepare(const float *values, int64_t tokens, const Encoder *encoder, const Norm *norm,
                                          const Workspace *workspace, float *to) {
    int64_t width = encoder->width;
    if (!norm->weight) {
        prepare(values, tokens, width, workspace);
        return values;
    }
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) {
        normalize_token(values + token * width, width, norm, encoder->epsilon, to + token * width);
        if (PREPARES) prepare_token(to + token * width, width, workspace, token);
    }
    return to;
}

/* Multiply the activations of the first half of `projected` with the second half. */
static void gate_and_prepare(int64_t tokens, const Encoder *encoder, const Workspace *workspace) {
    int64_t inner = encoder->inner;
#pragma omp for schedule(static)
    for (int64_t token = 0; token < tokens; token++) {
        const float *from = workspace->projected + token * 2 * inner;
        float *to = workspace->inner + token * inner;
        for (int64_t i = 0; i < inner; i += LANES)
            store(to + i, activated(load(from + i), encoder->activation) * load(from + inner + i));
        if (PREPARES) prepare_token(to, inner, workspace, token);
    }
}

/* Rotate queries and keys by their positions (Su et al. 2021): numbers i and i + size/2 of a head together. */
static void rotate(const Encoder *encoder, const Batch *batch, const float *rotation, float *projected) {
    int64_t size = encoder->width / encoder->heads, half = size / 2;
    if (!rotation) return;
#pragma omp for schedule(static)
    for (int64_t token = 0; token < batch->tokens; token++) {
        const float *cosines = rotation + batch->positions[token] * size, *sines = cosines + half;
        float *first = projected + token * 3 * encoder->width;
        for (int64_t head = 0; head < 2 * encoder->heads; head++, first += size)
            for (int64_t i = 0; i < half; i += LANES) {
                v16 a = load(first + i), b = load(first + half + i), c = load(cosines + i), d = load(sines + i);
                store(first + i, a * c - b * d);
                store(first + half + i, b * c + a * d);
            }
    }
}

/* --- the layers */

/* Queries, keys and values of a batch; a head's numbers lie side by side. */
typedef struct {
    const float *queries, *keys, *values;
    int64_t query_stride, stride; /* numbers from token to token */
    float *context;               /* queries x width */
    int64_t window;               /* -1 for none */
} Attention;

/* One head of `count` queries of one sequence, from `query` on. `positions` are those of all queries in the batch, NULL
   for a sequence's own tokens, which with a window copy the keys in reach only. */
static void attend(const Attention *a, const Encoder *encoder, const Batch *batch, const Workspace *workspace,
                   int64_t query, int64_t count, const int64_t *positions, int64_t sequence, int64_t head) {
    int64_t size = encoder->width / encoder->heads, i = head * size;
    int64_t first = batch->cu_seqlens[sequence], n = batch->cu_seqlens[sequence + 1] - first;
    Window window = {a->window, positions ? positions + query : NULL, first};
    if (!positions && a->window >= 0) {
        int64_t own = query - first, begin = own - a->window, end = own + count + a->window;
        begin = begin < 0 ? 0 : begin / LANES * LANES; /* so that sums have the same order */
        window.first = begin - own;
        n = (end < n ? end : n) - begin;
        first += begin;
    }
    Values queries = {a->queries + query * a->query_stride + i, a->query_stride};
    Values keys = {a->keys + first * a->stride + i, a->stride}, values = {a->values + first * a->stride + i, a->stride};
    Dropout none = {.scale = 1.0f};
    attend_head(queries, count, keys, values, n, size, a->window < 0 ? NULL : &window, &none,
                a->context + query * encoder->width + i, encoder->width, NULL, 0,
                workspace->scores + omp_get_thread_num() * attention_workspace(size, batch->longest));
}

static void attend_all(const Attention *a, const Encoder *encoder, const Batch *batch, const Workspace *workspace) {
    int64_t parts = (batch->longest + QUERIES - 1) / QUERIES;
#pragma omp for schedule(dynamic) collapse(3)
    for (int64_t sequence = 0; sequence < batch->sequences; sequence++)
        for (int64_t head = 0; head < encoder->heads; head++)
            for (int64_t part = 0; part < parts; part++) {
                int64_t first = batch->cu_seqlens[sequence] + part * QUERIES, end = batch->cu_seqlens[sequence + 1];
                int64_t count = end - first < QUERIES ? end - first : QUERIES;
                if (count > 0) attend(a, encoder, batch, workspace, first, count, NULL, sequence, head);
            }
}

static int64_t sequence_of(const Batch *batch, int64_t token) {
    int64_t low = 0, high = batch->sequences - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (batch->cu_seqlens[middle] <= token) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* For output positions only. Neighbors of one sequence are computed together. */
static void attend_outputs(const Attention *a, const Encoder *encoder, const Batch *batch, const Workspace *workspace) {
#pragma omp for schedule(dynamic) collapse(2)
    for (int64_t first = 0; first < batch->num_outputs; first++)
        for (int64_t head = 0; head < encoder->heads; head++) {
            int64_t sequence = sequence_of(batch, batch->outputs[first]), end = first + 1;
            if (first && sequence_of(batch, batch->outputs[first - 1]) == sequence) continue;
            while (end < batch->num_outputs && sequence_of(batch, batch->outputs[end]) == sequence) end++;
            attend(a, encoder, batch, workspace, first, end - first, batch->outputs, sequence, head);
        }
}

/* Copy the output positions of tokens x width, `stride` numbers from token to token. */
static void gather(const Batch *batch, const float *from, int64_t stride, int64_t width, float *to) {
#pragma omp for schedule(static)
    for (int64_t token = 0; token < batch->num_outputs; token++)
        for (int64_t i = 0; i < width; i += LANES)
            store(to + token * width + i, load(from + batch->outputs[token] * stride + i));
}

/* Attention of a layer, from `input` to a context, which is returned. */
static const float *attend_layer(const Encoder *encoder, const Batch *batch, const Workspace *workspace, int64_t layer,
                                 const float *input) {
    const Sublayer *attention = encoder->attention + encoder->attention_plan[layer];
    int64_t width = encoder->width, window = encoder->windows[layer];
    float *projected = workspace->projected, *context = workspace->context, *queries = workspace->other;
    apply(&attention->first, &attention->second, input, workspace, batch->tokens, NONE, NULL, projected);
    rotate(encoder, batch, encoder->rotations[layer], projected);
    Attention a = {projected, projected + width, projected + 2 * width, 3 * width, 3 * width, context, window};
    if (layer == encoder->layers - 1 && batch->outputs) {
        /* With the queries of the output positions only. */
        gather(batch, projected, 3 * width, width, queries);
        a.queries = queries, a.query_stride = width;
        attend_outputs(&a, encoder, batch, workspace);
    } else attend_all(&a, encoder, batch, workspace);
    return context;
}

/* Compute all layers. The last hidden states are then in `hidden`, or those of the output positions in `result`. */
void encode(const Encoder *encoder, const Batch *batch, const Workspace *workspace, int threads) {
    float *hidden = batch->hidden, *other = workspace->other, *inner = workspace->inner, *normed = workspace->normed;
    int64_t width = encoder->width, tokens = batch->tokens, pre = encoder->is_pre_norm, gated = encoder->is_gated;
#pragma omp parallel num_threads(threads) firstprivate(hidden, tokens)
    {
        const Norm none = {NULL, NULL}, *norm = pre ? &encoder->attention[encoder->attention_plan[0]].norm : &none;
        const float *input = normalize_and_prepare(hidden, tokens, encoder, norm, workspace, normed);
        for (int64_t layer = 0; layer < encoder->layers; layer++) {
            const Sublayer *attention = encoder->attention + encoder->attention_plan[layer];
            const Sublayer *ffn = encoder->ffn + encoder->ffn_plan[layer];
            int last = layer == encoder->layers - 1;
            const Sublayer *after = last ? attention : encoder->attention + encoder->attention_plan[layer + 1];
            const float *context = attend_layer(encoder, batch, workspace, layer, input);
            if (last && batch->outputs) {
                gather(batch, hidden, width, width, batch->result);
                hidden = batch->result;
                tokens = batch->num_outputs;
            }
            prepare(context, tokens, width, workspace);
            apply(&attention->second, &ffn->first, context, workspace, tokens, NONE, hidden, other);
            norm = pre ? &ffn->norm : &attention->norm;
            input = normalize_and_prepare(other, tokens, encoder, norm, workspace, pre ? normed : other);
            if (gated) {
                apply(&ffn->first, &ffn->second, input, workspace, tokens, NONE, NULL, workspace->projected);
                gate_and_prepare(tokens, encoder, workspace);
            } else {
                apply(&ffn->first, &ffn->second, input, workspace, tokens, encoder->activation, NULL, inner);
                prepare(inner, tokens, encoder->inner, workspace);
            }
            apply(&ffn->second, &after->first, inner, workspace, tokens, NONE, other, hidden);
            norm = !pre ? &ffn->norm : last ? &encoder->final : &after->norm;
            input = normalize_and_prepare(hidden, tokens, encoder, norm, workspace, pre && !last ? normed : hidden);
        }
    }
}
