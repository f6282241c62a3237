/* SPDX-License-Identifier: MIT
 *
 * A small seeded generator (splitmix64): the same numbers on every machine.
 */
#ifndef TC_TESTS_RNG_H
#define TC_TESTS_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rng {
  uint64_t state;
} rng;

uint64_t rng_bits(rng *r);
int64_t rng_between(rng *r, int64_t low, int64_t high); /* both included */
bool rng_one_in(rng *r, int64_t n);
double rng_normal(rng *r); /* mean 0, variance 1, within +-6 */

/* One entry of an array of int64_t. */
#define rng_pick(r, array) ((array)[rng_between((r), 0, (int64_t)(sizeof(array) / sizeof((array)[0])) - 1)])

#endif
