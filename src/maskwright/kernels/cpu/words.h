/* The table of random words of dropout: see `RandomWords` in dropout.py. */

#pragma once

#define POSITIONS 4 /* of a word */
#define COLUMNS 512 /* of the table */
#define MIXES 0xBF58476D1CE4E5B9u /* SplitMix64's */
