"""One process of several, and all of them: device, sums over ranks, interrupts."""
