/* SPDX-License-Identifier: MIT */
#include "rng.h"

uint64_t rng_bits(rng *r) {
  uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t rng_between(rng *r, int64_t low, int64_t high) { return low + (int64_t)(rng_bits(r) % (uint64_t)(high - low + 1)); }

bool rng_one_in(rng *r, int64_t n) { return rng_between(r, 1, n) == 1; }

/* The sum of twelve uniform numbers has variance 1. */
double rng_normal(rng *r) {
  double sum = -6;
  for (int i = 0; i < 3; i++) {
    uint64_t bits = rng_bits(r);
    for (int j = 0; j < 4; j++, bits >>= 16) sum += ((double)(bits & 0xffff) + 0.5) / 65536;
  }
  return sum;
}
