/* Activations of sixteen fp32 numbers. */

#include "registers.h"

enum { NONE, GELU, GELU_TANH, RELU };

/* GELU is x F(x), with the normal CDF or its approximation by tanh as F. F(x) - 1/2 is odd, so GELU is
   x/2 + |x| (F(|x|) - 1/2). F(|x|) - 1/2 is a polynomial of degree 4 around each of 16 points, to 2e-7 (least squares
   at Chebyshev nodes); at the last point, from |x| = 5.3 on, it is 1/2. Coefficients: by power, then by point. */
#define POINTS 2.75f /* per unit of x */
#define LAST 15.0f
/* The normal CDF. */
static const float NORMAL[5][LANES] = {
    {0.0f, 1.41935214e-1f, 2.66470551e-1f, 3.6234355e-1f, 4.27102417e-1f, 4.65481818e-1f,
     4.85438526e-1f, 4.94543225e-1f, 4.98187602e-1f, 4.99467432e-1f, 4.99861747e-1f, 4.9996832e-1f,
     4.99993593e-1f, 4.99998868e-1f, 4.99999821e-1f, 0.5f},
    {1.4506869e-1f, 1.3578786e-1f, 1.11358277e-1f, 8.00124481e-2f, 5.03691733e-2f, 2.77806595e-2f,
     1.34241981e-2f, 5.68328425e-3f, 2.1080079e-3f, 6.85019419e-4f, 1.95023415e-4f, 4.86428144e-5f,
     1.06290117e-5f, 2.03471131e-6f, 3.41225388e-7f, 0.0f},
    {0.0f, -8.97755753e-3f, -1.47248162e-2f, -1.58699937e-2f, -1.33206146e-2f, -9.18364618e-3f,
     -5.32534719e-3f, -2.63036066e-3f, -1.1150511e-3f, -4.07661195e-4f, -1.2896469e-4f, -3.53863943e-5f,
     -8.43631915e-6f, -1.74982586e-6f, -3.16086982e-7f, 0.0f},
    {-3.17739788e-3f, -2.58317031e-3f, -1.15554186e-3f, 3.25313478e-4f, 1.22655858e-3f, 1.40421872e-3f,
     1.11069495e-3f, 6.87869673e-4f, 3.49007256e-4f, 1.4829087e-4f, 5.34273131e-5f, 1.64507383e-5f,
     4.35185211e-6f, 9.9278634e-7f, 1.95852721e-7f, 0.0f},
    {0.0f, 2.81475077e-4f, 3.98286473e-4f, 3.1520988e-4f, 1.30202403e-4f, -2.97572806e-5f,
     -1.02334554e-4f, -1.00470847e-4f, -6.71609523e-5f, -3.48061076e-5f, -1.46647517e-5f, -5.14177373e-6f,
     -1.52060863e-6f, -3.82575365e-7f, -8.23681603e-8f, 0.0f},
};

/* (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. */
static const float TANH[5][LANES] = {
    {0.0f, 1.4192079e-1f, 2.66384542e-1f, 3.62175405e-1f, 4.2694658e-1f, 4.65453029e-1f,
     4.8555395e-1f, 4.94721413e-1f, 4.98339415e-1f, 4.99558002e-1f, 4.99902338e-1f, 4.99982446e-1f,
     4.99997497e-1f, 4.99999732e-1f, 4.9999997e-1f, 0.5f},
    {1.4506866e-1f, 1.35747299e-1f, 1.11264326e-1f, 7.99627528e-2f, 5.04475385e-2f, 2.79375482e-2f,
     1.35374554e-2f, 5.69508038e-3f, 2.0539707e-3f, 6.24625885e-4f, 1.57132017e-4f, 3.20376748e-5f,
     5.18497563e-6f, 6.52269762e-7f, 6.24614529e-8f, 0.0f},
    {0.0f, -9.01149586e-3f, -1.47332819e-2f, -1.5818432e-2f, -1.32572101e-2f, -9.17530805e-3f,
     -5.37072215e-3f, -2.67770817e-3f, -1.13181735e-3f, -4.00359451e-4f, -1.16416821e-4f, -2.72718262e-5f,
     -5.0408139e-6f, -7.2002257e-7f, -7.78577487e-8f, 0.0f},
    {-3.19277309e-3f, -2.58595147e-3f, -1.13754172e-3f, 3.40991945e-4f, 1.21738762e-3f, 1.38195546e-3f,
     1.10078393e-3f, 6.94814604e-4f, 3.59584228e-4f, 1.53019195e-4f, 5.29388562e-5f, 1.46331913e-5f,
     3.17009085e-6f, 5.2785839e-7f, 6.62706228e-8f, 0.0f},
    {0.0f, 2.87019066e-4f, 4.01622703e-4f, 3.10707896e-4f, 1.23975871e-4f, -2.9468014e-5f,
     -9.75103685e-5f, -9.76569354e-5f, -6.7914516e-5f, -3.65100204e-5f, -1.54565532e-5f, -5.11769713e-6f,
     -1.30585249e-6f, -2.52502957e-7f, -3.63651509e-8f, 0.0f},
};

static inline __attribute__((always_inline)) v16 gelu(v16 x, const float (*coefficients)[LANES]) {
    v16 size = (v16)_mm512_abs_ps((__m512)x);
    /* The second where one of them is NaN; x/2 stays NaN. */
    v16 at = (v16)_mm512_min_ps((__m512)(size * all(POINTS)), _mm512_set1_ps(LAST));
    v16 shifted = at + all(12582912.0f); /* 1.5 x 2^23: the lowest bits are the nearest whole number */
    v16 beyond = at - (shifted - all(12582912.0f));
    v16 polynomial = all(0.0f);
    _Pragma("GCC unroll 5") for (int power = 4; power >= 0; power--)
        polynomial =
            polynomial * beyond + (v16)_mm512_permutexvar_ps((__m512i)shifted, (__m512)load(coefficients[power]));
    return size * polynomial + all(0.5f) * x;
}

static inline __attribute__((always_inline)) v16 activated(v16 x, int64_t activation) {
    if (activation == GELU) return gelu(x, NORMAL);
    if (activation == GELU_TANH) return gelu(x, TANH);
    return activation == RELU ? larger(all(0.0f), x) : x;
}
