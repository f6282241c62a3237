/* SPDX-License-Identifier: MIT
 *
 * What the examples share. To use an example elsewhere, take this file along.
 */
#ifndef TC_EXAMPLES_COMMON_H
#define TC_EXAMPLES_COMMON_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tc/tc.h>

/* Every call can fail; the library says why. */
#define CHECK(call)                                                        \
  do {                                                                     \
    if ((call) != TC_OK) {                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tc_last_error()); \
      exit(EXIT_FAILURE);                                                  \
    }                                                                      \
  } while (0)

/* A buffer of n fp16 numbers, all 0, and where they are. */
static inline uint16_t *new_tensor(tc_context *ctx, int64_t n, tc_buffer **buffer) {
  void *memory;
  CHECK(tc_buffer_alloc(ctx, (size_t)n * sizeof(uint16_t), buffer));
  CHECK(tc_buffer_map(*buffer, &memory));
  return memory;
}

/* The next number of a fixed sequence, evenly spread over [-1, 1). */
static inline float next_random(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static inline void print_device(tc_context *ctx) {
  tc_device_info info = TC_DEVICE_INFO_INIT;
  CHECK(tc_device_info_get(ctx, &info));
  printf("device: %s, kernels: %s, threads: %" PRId64 "\n", info.device, info.isa, info.threads);
}

/* A sum of products in double, which a result can be held against. */
typedef struct exact_sum {
  double value, magnitude; /* sum of a*b, sum of |a|*|b| */
} exact_sum;

static inline void add_product(exact_sum *sum, double a, double b) {
  sum->value += a * b;
  sum->magnitude += fabs(a * b);
}

/* Half the distance between two neighbouring fp16 numbers near `value`: what rounding to fp16 may cost. */
static inline double half_step(double value) {
  int exponent = value == 0 || fabs(value) < 0x1p-14 ? -14 : ilogb(value);
  return ldexp(1.0, exponent - 11);
}

/* The error of a result as a part of the error that libtc permits itself: its rounding, and 2^-15 of the sum of magnitudes.
 * Over 1 it would be a bug. */
static inline double error_ratio(uint16_t result, exact_sum exact) {
  double got = tc_f16_to_f32(result);
  double permitted = fmax(half_step(exact.value), half_step(got)) + 0x1p-15 * exact.magnitude;
  return isfinite(got) ? fabs(got - exact.value) / permitted : INFINITY;
}

#endif
