/* SPDX-License-Identifier: MIT
 *
 * Random problems of any op against fp64, on one ISA. Usage: test_property [iterations [seed]]
 * Each problem follows from its own seed, which a failure prints; "test_property 1 SEED" runs it alone.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ITERATIONS = 1500, MACS = 1 << 18 };

int main(int argc, char **argv) {
  int64_t iterations = argc > 1 ? strtoll(argv[1], NULL, 0) : scaled(ITERATIONS);
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : test_seed() * 1000003;
  tc_context *ctx = open_context();
  for (int64_t i = 0; i < iterations; i++) {
    rng r = {seed + (uint64_t)i};
    problem p = problem_random(&r, MACS);
    if (!problem_check(&p, ctx)) printf("     again: test_property 1 %" PRIu64 "\n", seed + (uint64_t)i);
  }
  close_context(ctx);
  printf("property: %" PRId64 " problems from seed %" PRIu64 "\n", iterations, seed);
  return finish("property", 1);
}
