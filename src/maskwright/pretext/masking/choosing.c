/* Units chosen within each sequence of a flat batch, one sequence after another, by the plain loops that the maskings
   describe. One thread. Each function has its twin in NumPy (`choosing.py` says which); the headers are named as the
   maskings' files are.

   B sequences lie one behind the other; sequence s has the tokens cu_seqlens[s] to cu_seqlens[s + 1]. A key orders a
   token among those of its sequence, the smallest first; keys differ, and NOBODY is that of a token in no order. What
   is chosen is written in ascending order, and how many units there are is returned; -1 where memory is short. */

#include "spans.h"
#include "windows.h"
