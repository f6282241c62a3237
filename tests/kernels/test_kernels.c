/* SPDX-License-Identifier: MIT
 *
 * The micro-kernels of one ISA against plain C, to the bit: each height and depth of the product, each length of the others, with
 * operands flush against guard pages.
 */
#include "common/check.h"
#include "common/operand.h"
#include "cpu/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tc_cpu_kernels *kernels;

static const char *wanted_isa(void) {
  const char *isa = getenv("TC_CPU_ISA");
  return isa ? isa : "generic";
}

/* The kernels that TC_CPU_ISA names. */
static const tc_cpu_kernels *find_kernels(void) {
  for (int i = 0; i < tc_cpu_isa_count; i++) {
    if (strcmp(tc_cpu_isas[i].name, wanted_isa()) != 0) continue;
    if (!tc_cpu_isas[i].supported()) skip("this machine can't do %s", wanted_isa());
    return tc_cpu_isas[i].kernels;
  }
  skip("the compiler of this build can't do %s", wanted_isa());
}

/* fp16 values, as packing delivers them. */
static void fill_panel(float *panel, int64_t n, rng *r, bool special) {
  static const float rare[] = {INFINITY, -INFINITY, NAN, -0.0f, 0x1p-24f, 65504};
  for (int64_t i = 0; i < n; i++) {
    panel[i] = (float)half_value(half_round(rng_normal(r)));
    if (special && rng_one_in(r, 100)) panel[i] = rare[rng_between(r, 0, COUNT(rare) - 1)];
  }
}

static float *open_floats(guarded *g, int64_t n, placement place) {
  *g = guarded_open((size_t)n * sizeof(float), place);
  return (float *)(void *)g->data;
}

static bool same_bits(double a, double b) { return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof(a)) == 0; }

/* acc has a row and two columns more than the kernel may touch. */
static void check_product(int64_t m, int64_t k, bool special, rng *r) {
  const int64_t nr = kernels->nr, ld = nr + 2, sums = (kernels->mr + 1) * ld;
  const int64_t lda = m + rng_between(r, 0, 3), ldb = nr + rng_between(r, 0, 3);
  const int64_t a_count = k ? (k - 1) * lda + m : 0, b_count = k ? (k - 1) * ldb + nr : 0;
  guarded a_memory, b_memory;
  float *a = open_floats(&a_memory, a_count, rng_one_in(r, 2) ? AT_END : AT_START);
  float *b = open_floats(&b_memory, b_count, rng_one_in(r, 2) ? AT_END : AT_START);
  double *acc = allocate(sums, sizeof(*acc)), *want = allocate(sums, sizeof(*want));
  note("m %lld, k %lld", (long long)m, (long long)k);
  fill_panel(a, a_count, r, special);
  fill_panel(b, b_count, r, special);
  for (int64_t i = 0; i < sums; i++) acc[i] = want[i] = rng_normal(r);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < nr; j++) {
      float sum = 0;
      for (int64_t p = 0; p < k; p++) sum += a[p * lda + i] * b[p * ldb + j];
      want[i * ld + j] += (double)sum;
    }
  }
  kernels->gemm(m, k, a, lda, b, ldb, acc, ld);
  bool same = true;
  for (int64_t i = 0; i < sums; i++) same &= same_bits(acc[i], want[i]);
  CHECK(same);
  free(acc);
  free(want);
  guarded_close(&a_memory);
  guarded_close(&b_memory);
}

static void product(void) {
  static const int64_t depths[] = {0, 1, 2, 3, 7, 8, 31, 64, 255, TC_KC};
  rng r = {test_seed()};
  for (int64_t m = 1; m <= kernels->mr; m++) {
    for (size_t d = 0; d < COUNT(depths); d++) {
      check_product(m, depths[d], false, &r);
      check_product(m, depths[d], true, &r);
    }
  }
}

static uint16_t *open_halves(guarded *g, int64_t n, placement place) {
  *g = guarded_open((size_t)n * sizeof(uint16_t), place);
  return (uint16_t *)(void *)g->data;
}

/* out has a row and two columns more than the kernel may touch; b ends at its last row's last column. */
static void check_product_of_halves(int64_t m, int64_t n, int64_t k, rng *r) {
  const int64_t ld = n + 2, count = (m + 1) * ld, lda = m + rng_between(r, 0, 3), ldb = n + rng_between(r, 0, 40);
  const int64_t a_count = (k - 1) * lda + m, b_count = (k - 1) * ldb + n;
  guarded a_memory, b_memory;
  float *a = open_floats(&a_memory, a_count, rng_one_in(r, 2) ? AT_END : AT_START);
  uint16_t *b = open_halves(&b_memory, b_count, rng_one_in(r, 2) ? AT_END : AT_START);
  float *out = allocate(count, sizeof(*out)), *want = allocate(count, sizeof(*want));
  note("m %lld, n %lld, k %lld", (long long)m, (long long)n, (long long)k);
  fill_panel(a, a_count, r, true);
  for (int64_t i = 0; i < b_count; i++) b[i] = rng_one_in(r, 200) ? (uint16_t)rng_bits(r) : half_round(rng_normal(r));
  for (int64_t i = 0; i < count; i++) out[i] = want[i] = (float)rng_normal(r);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      float sum = 0;
      for (int64_t p = 0; p < k; p++) sum += a[p * lda + i] * (float)half_value(b[p * ldb + j]);
      want[i * ld + j] = sum;
    }
  }
  kernels->gemm_half(m, n, k, a, lda, b, ldb, out, ld);
  bool same = true;
  for (int64_t i = 0; i < count; i++) same &= same_bits((double)out[i], (double)want[i]);
  CHECK(same);
  free(out);
  free(want);
  guarded_close(&a_memory);
  guarded_close(&b_memory);
}

static void product_of_halves(void) {
  static const int64_t widths[] = {TC_HALF_COLUMNS, 17, 31, 33, 64, 127, 128, 300}, depths[] = {1, 2, 33, TC_KC};
  rng r = {test_seed()};
  for (int64_t m = 1; m <= kernels->mr; m++) {
    for (size_t w = 0; w < COUNT(widths); w++) {
      for (size_t d = 0; d < COUNT(depths); d++) check_product_of_halves(m, widths[w], depths[d], &r);
    }
  }
}

/* A column of dst more than the kernel may touch. */
static void check_transpose(int64_t n, int64_t k, rng *r) {
  const int64_t whole = (n + TC_HALF_COLUMNS - 1) / TC_HALF_COLUMNS * TC_HALF_COLUMNS, ldd = whole + 1;
  const int64_t lds = k + rng_between(r, 0, 3), count = (n - 1) * lds + k;
  guarded src_memory;
  uint16_t *src = open_halves(&src_memory, count, rng_one_in(r, 2) ? AT_END : AT_START);
  uint16_t *dst = allocate(k * ldd, sizeof(*dst));
  note("n %lld, k %lld", (long long)n, (long long)k);
  for (int64_t i = 0; i < count; i++) src[i] = (uint16_t)rng_bits(r);
  for (int64_t i = 0; i < k * ldd; i++) dst[i] = 0x1234;
  kernels->transpose(n, k, src, lds, dst, ldd);
  bool same = true;
  for (int64_t p = 0; p < k; p++) {
    for (int64_t i = 0; i < whole; i++) same &= dst[p * ldd + i] == src[(i < n ? i : n - 1) * lds + p];
    same &= dst[p * ldd + whole] == 0x1234;
  }
  CHECK(same);
  free(dst);
  guarded_close(&src_memory);
}

static void transpose(void) {
  rng r = {test_seed()};
  for (int64_t n = 1; n <= 70; n++) {
    for (int64_t k = 1; k <= 70; k++) check_transpose(n, k, &r);
    check_transpose(n, TC_KC, &r);
  }
}

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/* Every length up to a few vectors, then every half and its neighbours. */
static void conversions_of(int64_t n, placement place, uint32_t first) {
  guarded halves = guarded_open((size_t)n * sizeof(uint16_t), place), floats = guarded_open((size_t)n * sizeof(float), place);
  uint16_t *half = (uint16_t *)(void *)halves.data;
  float *single = (float *)(void *)floats.data;
  note("n %lld, first half 0x%x", (long long)n, first);
  for (int64_t i = 0; i < n; i++) half[i] = (uint16_t)(first + (uint32_t)i);
  kernels->widen(n, half, single);
  for (int64_t i = 0; i < n; i++) CHECK_INT(float_bits(single[i]), float_bits(tc_f16_to_f32(half[i])));
  for (int step = -2; step <= 2; step++) {
    for (int64_t i = 0; i < n; i++) {
      uint32_t bits = float_bits(tc_f16_to_f32((uint16_t)(first + (uint32_t)i))) + (uint32_t)(step * (step % 2 ? 1 : 0x800));
      memcpy(&single[i], &bits, sizeof(bits));
    }
    kernels->narrow(n, single, half);
    for (int64_t i = 0; i < n; i++) CHECK_INT(half[i], isnan(single[i]) ? 0x7e00 : tc_f32_to_f16(single[i]));
  }
  guarded_close(&halves);
  guarded_close(&floats);
}

static void conversions(void) {
  for (int64_t n = 0; n <= 70; n++) {
    conversions_of(n, AT_END, 0x3c00);
    conversions_of(n, AT_START, 0xc001);
  }
  for (uint32_t first = 0; first < 0x10000; first += 0x1000) conversions_of(0x1000, AT_END, first);
}

/* dst += src and dst = src between fp32 and fp64, at every length; fp64 values that fp32 must round. */
static void second_level(void) {
  rng r = {test_seed()};
  for (int64_t n = 0; n <= 70; n++) {
    placement place = n % 2 ? AT_END : AT_START;
    guarded singles, doubles = guarded_open((size_t)n * sizeof(double), place);
    float *single = open_floats(&singles, n, place);
    double *sums = (double *)(void *)doubles.data, *want = allocate(n, sizeof(*want));
    note("n %lld", (long long)n);
    fill_panel(single, n, &r, true);
    for (int64_t i = 0; i < n; i++) sums[i] = rng_normal(&r) / 3;
    for (int64_t i = 0; i < n; i++) want[i] = sums[i] + (double)single[i];
    kernels->add(n, single, sums);
    for (int64_t i = 0; i < n; i++) CHECK(same_bits(sums[i], want[i]));
    kernels->round(n, sums, single);
    for (int64_t i = 0; i < n; i++) CHECK(same_bits((double)single[i], (double)(float)want[i]));
    free(want);
    guarded_close(&singles);
    guarded_close(&doubles);
  }
}

/* Arithmetic that block sizes must satisfy, and the name's grammar. */
static void table(void) {
  char name[64];
  snprintf(name, sizeof(name), "_%s", kernels->isa);
  CHECK(strstr(kernels->gemm_name, name) != NULL);
  CHECK(strncmp(kernels->gemm_name, "tc_gemm_f32f32_f32_", 19) == 0);
  CHECK_INT(TC_MC % kernels->mr, 0);
  CHECK_INT(TC_NC % kernels->nr, 0);
  CHECK(TC_KC <= 512); /* design rule 1 */
  CHECK_STRING(tc_cpu_isas[0].name, "generic");
}

int main(int argc, char **argv) {
  static const test tests[] = {{"product", product},         {"product_of_halves", product_of_halves}, {"transpose", transpose},
                               {"conversions", conversions}, {"second_level", second_level},           {"table", table}};
  kernels = find_kernels();
  return run_tests("kernels", tests, COUNT(tests), argc, argv);
}
