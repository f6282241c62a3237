/* SPDX-License-Identifier: MIT
 *
 * Conversions between fp16 and fp32 against arithmetic in double: every half, and of the floats every rounding boundary with its
 * neighbours, and millions at random. With "exhaustive" in TC_TEST_F16, all 2^32 floats.
 */
#include "common/check.h"
#include "common/half.h"
#include "common/operand.h"
#include "common/rng.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static bool half_is_nan(uint16_t half) { return (half & 0x7fff) > 0x7c00; }

/* The float that a half is. A NaN keeps sign and payload, and becomes quiet. */
static uint32_t expected_float(uint16_t half) {
  if (!half_is_nan(half)) return bits_of((float)half_value(half));
  return (uint32_t)(half & 0x8000) << 16 | 0x7f800000 | 0x400000 | (uint32_t)(half & 0x3ff) << 13;
}

static void all_halves(void) {
  for (uint32_t h = 0; h <= 0xffff; h++) {
    note("half 0x%04x", h);
    CHECK_INT(bits_of(tc_f16_to_f32((uint16_t)h)), expected_float((uint16_t)h));
  }
}

static bool float_right(float value) {
  uint16_t got = tc_f32_to_f16(value);
  if (isnan(value)) return half_is_nan(got) && (got & 0x200) && (got >> 15) == (signbit(value) != 0);
  return got == half_round(value);
}

static void check_float(uint32_t bits) {
  if (!float_right(float_of(bits))) {
    note("float 0x%08x = %a", bits, (double)float_of(bits));
    CHECK_INT(tc_f32_to_f16(float_of(bits)), half_round((double)float_of(bits)));
  }
}

/* A half, the middle to the next one, and the floats next to both, of either sign. */
static void rounding_boundaries(void) {
  for (uint16_t h = 0; h < 0x7c00; h++) {
    double low = half_value(h), high = h == 0x7bff ? 65536 : half_value(h + 1);
    const float points[] = {(float)low, (float)((low + high) / 2)};
    for (size_t i = 0; i < COUNT(points); i++) {
      for (uint32_t step = 0; step <= 4; step++) {
        uint32_t bits = bits_of(points[i]) + step - 2; /* at 0 this wraps to NaN, which is a case as well */
        check_float(bits);
        check_float(bits ^ 0x80000000);
      }
    }
  }
  CHECK_INT(tc_f32_to_f16(65519.996f), 0x7bff);
  CHECK_INT(tc_f32_to_f16(65520.0f), 0x7c00);
  CHECK_INT(tc_f32_to_f16(-65520.0f), 0xfc00);
  CHECK_INT(tc_f32_to_f16(0x1p-25f), 0x0000);
  CHECK_INT(tc_f32_to_f16(0x1.000002p-25f), 0x0001);
  CHECK_INT(tc_f32_to_f16(-0x1p-149f), 0x8000);
}

static void round_trip(void) {
  for (uint32_t h = 0; h <= 0xffff; h++) {
    note("half 0x%04x", h);
    CHECK_INT(tc_f32_to_f16(tc_f16_to_f32((uint16_t)h)), half_is_nan((uint16_t)h) ? h | 0x200 : h);
  }
}

static void special_floats(void) {
  CHECK_INT(tc_f32_to_f16(INFINITY), 0x7c00);
  CHECK_INT(tc_f32_to_f16(-INFINITY), 0xfc00);
  CHECK_INT(tc_f32_to_f16(3.4e38f), 0x7c00);
  CHECK_INT(tc_f32_to_f16(-0.0f), 0x8000);
  static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f802000};
  for (size_t i = 0; i < COUNT(nans); i++) check_float(nans[i]);
}

static void random_floats(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(3000000); i > 0; i--) check_float((uint32_t)rng_bits(&r));
  /* Exponents near fp16's range, which uniform bits seldom hit. */
  for (int64_t i = scaled(3000000); i > 0; i--) {
    uint32_t exponent = (uint32_t)rng_between(&r, 127 - 27, 127 + 17), rest = (uint32_t)rng_bits(&r);
    check_float((rest & 0x807fffff) | exponent << 23);
  }
  CHECK(true);
}

/* The same bits whatever the caller's rounding mode. */
static void rounding_modes(void) {
  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  rng r = {test_seed()};
  for (int64_t i = scaled(20000); i > 0; i--) {
    float value = float_of(((uint32_t)rng_bits(&r) & 0x807fffff) | (uint32_t)rng_between(&r, 127 - 27, 127 + 17) << 23);
    uint16_t want = half_round(value), got[COUNT(modes)];
    for (size_t m = 0; m < COUNT(modes); m++) {
      fesetround(modes[m]);
      got[m] = tc_f32_to_f16(value);
      fesetround(FE_TONEAREST);
    }
    note("float 0x%08x", bits_of(value));
    for (size_t m = 0; m < COUNT(modes); m++) CHECK_INT(got[m], want);
  }
}

/* Arrays give what single values give, at every length up to a few vectors, at odd addresses, and not one element more. */
static void arrays(void) {
  enum { LONGEST = 70 };
  rng r = {test_seed()};
  for (size_t n = 0; n <= LONGEST; n++) {
    note("n %zu", n);
    for (placement place = AT_END; place <= AT_START; place++) {
      guarded halves = guarded_open(n * sizeof(uint16_t), place), floats = guarded_open(n * sizeof(float), place);
      uint16_t *half = (uint16_t *)(void *)halves.data;
      float *single = (float *)(void *)floats.data;
      for (size_t i = 0; i < n; i++) half[i] = (uint16_t)rng_bits(&r);
      tc_convert_f16_to_f32(half, single, n);
      for (size_t i = 0; i < n; i++) CHECK_INT(bits_of(single[i]), bits_of(tc_f16_to_f32(half[i])));
      for (size_t i = 0; i < n; i++) single[i] = float_of((uint32_t)rng_bits(&r));
      tc_convert_f32_to_f16(single, half, n);
      for (size_t i = 0; i < n; i++) CHECK_INT(half[i], tc_f32_to_f16(single[i]));
      guarded_close(&halves);
      guarded_close(&floats);
    }
  }
  tc_convert_f16_to_f32(NULL, NULL, 0);
  tc_convert_f32_to_f16(NULL, NULL, 0);
}

/* OpenBLAS#4706: conversion of long arrays. */
static void long_array(void) {
  const size_t n = 16777216 + 3;
  uint16_t *half = allocate((int64_t)n, sizeof(*half));
  float *single = allocate((int64_t)n, sizeof(*single));
  for (size_t i = 0; i < n; i++) half[i] = (uint16_t)i;
  tc_convert_f16_to_f32(half, single, n);
  CHECK_INT(bits_of(single[n - 1]), expected_float((uint16_t)(n - 1)));
  tc_convert_f32_to_f16(single, half, n);
  bool same = true;
  for (size_t i = 0; i < n; i++) same &= half[i] == (half_is_nan((uint16_t)i) ? (uint16_t)(i | 0x200) : (uint16_t)i);
  CHECK(same);
  free(half);
  free(single);
}

static void exhaustive(void) {
  uint32_t bits = 0;
  do {
    check_float(bits++);
  } while (bits != 0);
  CHECK(true);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"all_halves", all_halves},
                               {"rounding_boundaries", rounding_boundaries},
                               {"round_trip", round_trip},
                               {"special_floats", special_floats},
                               {"random_floats", random_floats},
                               {"rounding_modes", rounding_modes},
                               {"arrays", arrays},
                               {"long_array", long_array},
                               {"exhaustive", exhaustive}};
  const char *wish = getenv("TC_TEST_F16");
  bool all = wish && strcmp(wish, "exhaustive") == 0;
  return run_tests("f16", tests, COUNT(tests) - !all, argc, argv);
}
