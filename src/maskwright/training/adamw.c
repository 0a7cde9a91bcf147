/* The norm of all gradients in one pass, and AdamW over all parameters in another. Called by `adamw_native.py`.

   Parameters are taken as one row of numbers, tensor after tensor, and threads share that row evenly. Each element is
   computed by the same operations whichever thread has it; squares are summed in chunks that depend on sizes alone, and
   the chunks' sums are added in their order: no result depends on the number of threads.

   Memory is what both wait for (without root and quotient the update takes as long), so each reads and writes once what
   it needs, in order; fetching ahead and stores past the caches gained nothing. */

#include "registers.h"

#define CHUNK 8192 /* elements whose squares are summed in fp32, 128 in each of 64 sums */
#define GRAIN 64 /* what begins a thread's share of a tensor: a multiple of the elements of a cache line */

typedef struct {
    const int64_t *sizes; /* elements of each tensor */
    const float *const *gradients;
    float *const *weights, *const *first, *const *second; /* first and second moments */
    float *const *steps; /* updates that each has had, one number */
    const double *decays; /* per unit of learning rate */
    int64_t count;
    double rate, epsilon, beta1, beta2;
    double shrinkage; /* times its decay: the share of a weight that is taken off */
    double scale; /* of the gradients */
} Update;

/* Where a thread's share ends in a tensor, and the next one's begins: `end` elements after the tensor's beginning in
   the row of all, moved to a whole grain. */
static inline int64_t cut(int64_t end, int64_t size, int64_t grain) {
    return end <= 0 ? 0 : end >= size ? size : end / grain * grain;
}

static inline int64_t sum_of(const int64_t *sizes, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += sizes[i];
    return sum;
}

static inline __mmask16 lanes(int64_t left) { return left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1); }

/* --- the norm */

static float sum_of_squares(const float *values, int64_t count) {
    v16 sums[4] = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            v16 x = load(values + i + k * LANES);
            sums[k] += x * x;
        }
    for (; i < count; i += LANES) {
        v16 x = (v16)_mm512_maskz_loadu_ps(lanes(count - i), values + i);
        sums[0] += x * x;
    }
    return total((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* How many numbers `norm` needs room for. */
int64_t chunks_of_all(const int64_t *sizes, int64_t count) {
    int64_t chunks = 0;
    for (int64_t i = 0; i < count; i++) chunks += (sizes[i] + CHUNK - 1) / CHUNK;
    return chunks;
}

double norm(const float *const *tensors, const int64_t *sizes, int64_t count, float *room, int threads) {
    int64_t whole = sum_of(sizes, count), chunks = chunks_of_all(sizes, count);
#pragma omp parallel num_threads(threads)
    {
        int64_t begin = whole * omp_get_thread_num() / omp_get_num_threads(), chunk = 0;
        int64_t end = whole * (omp_get_thread_num() + 1) / omp_get_num_threads();
        for (int64_t i = 0; i < count; i++) {
            int64_t last = cut(end, sizes[i], CHUNK);
            for (int64_t at = cut(begin, sizes[i], CHUNK); at < last; at += CHUNK)
                room[chunk + at / CHUNK] = sum_of_squares(tensors[i] + at, last - at < CHUNK ? last - at : CHUNK);
            begin -= sizes[i], end -= sizes[i], chunk += (sizes[i] + CHUNK - 1) / CHUNK;
        }
    }
    double sum = 0;
    for (int64_t i = 0; i < chunks; i++) sum += room[i];
    return __builtin_sqrt(sum);
}

/* --- the update */

typedef struct {
    v16 scale, beta1, beta2, to_first, to_second, kept, correction, epsilon, rate;
} Terms;

static inline double power(double base, int64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

static Terms terms_of(const Update *a, int64_t i) {
    int64_t step = (int64_t)*a->steps[i];
    double corrected = 1 - power(a->beta1, step), root = __builtin_sqrt(1 - power(a->beta2, step));
    return (Terms){
        .scale = all((float)a->scale),
        .beta1 = all((float)a->beta1),
        .beta2 = all((float)a->beta2),
        .to_first = all((float)(1 - a->beta1)),
        .to_second = all((float)(1 - a->beta2)),
        .kept = all((float)(1 - a->shrinkage * a->decays[i])),
        .correction = all((float)(1 / root)),
        .epsilon = all((float)a->epsilon),
        .rate = all((float)(a->rate / corrected)),
    };
}

static inline __attribute__((always_inline)) void update_register(const Terms *t, v16 gradient, v16 *weight, v16 *first,
                                                                  v16 *second) {
    gradient *= t->scale;
    *first = *first * t->beta1 + gradient * t->to_first;
    *second = *second * t->beta2 + gradient * gradient * t->to_second;
    v16 size = (v16)_mm512_sqrt_ps((__m512)*second) * t->correction + t->epsilon;
    *weight = *weight * t->kept - *first * t->rate / size;
}

static void update_stretch(const Update *a, int64_t tensor, int64_t begin, int64_t end) {
    const float *gradients = a->gradients[tensor];
    float *weights = a->weights[tensor], *first = a->first[tensor], *second = a->second[tensor];
    Terms terms = terms_of(a, tensor);
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) {
        v16 weight = load(weights + i), one = load(first + i), two = load(second + i);
        update_register(&terms, load(gradients + i), &weight, &one, &two);
        store(weights + i, weight);
        store(first + i, one);
        store(second + i, two);
    }
    if (i == end) return;
    __mmask16 left = lanes(end - i);
    v16 gradient = (v16)_mm512_maskz_loadu_ps(left, gradients + i);
    v16 weight = (v16)_mm512_maskz_loadu_ps(left, weights + i);
    v16 one = (v16)_mm512_maskz_loadu_ps(left, first + i), two = (v16)_mm512_maskz_loadu_ps(left, second + i);
    update_register(&terms, gradient, &weight, &one, &two);
    _mm512_mask_storeu_ps(weights + i, left, (__m512)weight);
    _mm512_mask_storeu_ps(first + i, left, (__m512)one);
    _mm512_mask_storeu_ps(second + i, left, (__m512)two);
}

void update(const Update *a, int threads) {
    int64_t whole = sum_of(a->sizes, a->count);
    for (int64_t i = 0; i < a->count; i++) *a->steps[i] += 1;
#pragma omp parallel num_threads(threads)
    {
        int64_t begin = whole * omp_get_thread_num() / omp_get_num_threads();
        int64_t end = whole * (omp_get_thread_num() + 1) / omp_get_num_threads();
        for (int64_t i = 0; i < a->count; i++) {
            int64_t from = cut(begin, a->sizes[i], GRAIN), to = cut(end, a->sizes[i], GRAIN);
            if (from < to) update_stretch(a, i, from, to);
            begin -= a->sizes[i], end -= a->sizes[i];
        }
    }
}
