/* The keyed random numbers of `core/randomness.py`: the SplitMix64 finaliser (Steele, Lea and Flood 2014). */

#pragma once

#include <stdint.h>

/* Functions that are compiled for processors with AVX512 as well as for all; which is taken is decided when the code is
   loaded. What they call is to be inlined. Compilers before GCC 12 do not know such processors by that name. */
#ifndef WIDEST
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define WIDEST
#endif
#endif
#define INLINED static inline __attribute__((always_inline))

#define GOLDEN 0x9E3779B97F4A7C15ull

INLINED uint64_t mixed(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* A key's number at a place of its stream. */
INLINED uint64_t bits_of(uint64_t key, int64_t counter) { return mixed(key + ((uint64_t)counter + 1) * GOLDEN); }

/* The same in [0, 1), 53 bits fine. */
INLINED double uniform_of(uint64_t key, int64_t counter) {
    return (double)(int64_t)(bits_of(key, counter) >> 11) * 0x1p-53;
}
