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

/* ---- Convolution ---- */

enum { RUNS = 5 };

/* Runs of up to that many terms in all, of rows of a that are at most `reach` long; sums end where they must, and now and then. */
static int64_t make_runs(tc_run *run, int64_t reach, int64_t b_distance, bool one_sum, rng *r) {
  int64_t count = rng_between(r, 1, RUNS), sum = 0, terms = 0;
  for (int64_t i = 0; i < count; i++) {
    run[i].n = rng_between(r, 1, one_sum ? TC_KC / RUNS : TC_KC);
    run[i].a = rng_between(r, 0, reach - run[i].n);
    run[i].b = terms * b_distance;
    if (i && sum + run[i].n > TC_KC) run[i - 1].ends = true;
    sum = i && run[i - 1].ends ? run[i].n : sum + run[i].n;
    terms += run[i].n;
    run[i].ends = i + 1 == count || (!one_sum && rng_one_in(r, 4));
  }
  return terms;
}

/* The sum of the runs' products, to the bit. */
static double sum_runs(const tc_run *run, const float *a, int64_t a_step, const float *b, int64_t b_step) {
  double all = 0;
  float sum = 0;
  for (;; run++) {
    for (int64_t p = 0; p < run->n; p++) sum += a[run->a + p * a_step] * b[run->b + p * b_step];
    if (!run->ends) continue;
    all += (double)sum;
    sum = 0;
    if (run[1].n == 0) return all;
  }
}

static void check_taps(int64_t m, int64_t n, bool special, rng *r) {
  const int64_t nr = kernels->nr, reach = TC_KC + 5, lda = reach - rng_between(r, 0, 60), ldout = nr + 3;
  tc_run run[RUNS + 1] = {0};
  const int64_t terms = make_runs(run, reach, nr, false, r);
  int64_t runs = 0;
  while (run[runs].n) runs++;
  guarded a_memory, b_memory, out_memory;
  const int64_t a_count = (m - 1) * lda + reach, out_count = (m - 1) * ldout + nr;
  float *a = open_floats(&a_memory, a_count, AT_END), *b = open_floats(&b_memory, terms * nr, AT_START);
  float *out = open_floats(&out_memory, out_count, AT_END);
  note("m %lld, n %lld, %lld terms in %lld runs", (long long)m, (long long)n, (long long)terms, (long long)runs);
  fill_panel(a, a_count, r, special);
  fill_panel(b, terms * nr, r, special);
  for (int64_t i = 0; i < out_count; i++) out[i] = -1;
  kernels->taps(m, n, runs, run, a, lda, b, out, ldout);
  bool same = true, kept = true;
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++)
      same &= same_bits((double)out[i * ldout + j], (double)(float)sum_runs(run, a + i * lda, 1, b + j, nr));
    for (int64_t j = nr; j < ldout && i + 1 < m; j++) kept &= out[i * ldout + j] == -1;
  }
  CHECK(same);
  CHECK(kept);
  guarded_close(&a_memory);
  guarded_close(&b_memory);
  guarded_close(&out_memory);
}

static void check_outer(int64_t m, int64_t n, bool special, rng *r) {
  const int64_t nr = kernels->nr, lda = m + rng_between(r, 0, 9), ldb = nr - rng_between(r, 0, 5), ldacc = nr + 1;
  tc_run run[RUNS + 1] = {0};
  const int64_t terms = make_runs(run, TC_KC, ldb, true, r);
  int64_t runs = 0, at = 0;
  for (; run[runs].n; at += run[runs++].n) run[runs].a = at * lda;
  guarded a_memory, b_memory;
  const int64_t a_count = (terms - 1) * lda + m, b_count = (terms - 1) * ldb + nr, acc_count = m * ldacc;
  float *a = open_floats(&a_memory, a_count, AT_END), *b = open_floats(&b_memory, b_count, AT_END);
  double *acc = allocate(acc_count, sizeof(*acc)), *before = allocate(acc_count, sizeof(*before));
  note("m %lld, n %lld, %lld terms in %lld runs", (long long)m, (long long)n, (long long)terms, (long long)runs);
  fill_panel(a, a_count, r, special);
  fill_panel(b, b_count, r, special);
  for (int64_t i = 0; i < acc_count; i++) acc[i] = before[i] = rng_normal(r);
  kernels->outer(m, n, runs, run, a, lda, b, ldb, acc, ldacc);
  bool same = true, kept = true;
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      const double want = before[i * ldacc + j] + sum_runs(run, a + i, lda, b + j, ldb);
      same &= same_bits(acc[i * ldacc + j], want);
    }
    kept &= same_bits(acc[i * ldacc + nr], before[i * ldacc + nr]);
  }
  CHECK(same);
  CHECK(kept);
  free(acc);
  free(before);
  guarded_close(&a_memory);
  guarded_close(&b_memory);
}

static void runs(void) {
  rng r = {test_seed()};
  for (int64_t m = 1; m <= kernels->mr; m++) {
    const int64_t widths[] = {1, kernels->nr / 2, kernels->nr / 2 + 1, kernels->nr};
    for (size_t i = 0; i < COUNT(widths) * 4; i++) {
      check_taps(m, widths[i / 4], i % 4 == 0, &r);
      check_outer(m, widths[i / 4], i % 4 == 0, &r);
    }
  }
}

static uint16_t any_half(rng *r) { return rng_one_in(r, 20) ? 0x7e00 : half_round(rng_normal(r)); }

/* Rows whose columns go to places that are in no order. */
static void check_spread(int64_t rows, int64_t n, placement place, rng *r) {
  const int64_t ld = n + rng_between(r, 0, 9), pitch = rows + rng_between(r, 0, 2), count = (rows - 1) * ld + n;
  int64_t *at = allocate(n, sizeof(*at));
  guarded src_memory, dst_memory;
  uint16_t *src = open_halves(&src_memory, count, place);
  float *dst = open_floats(&dst_memory, (n - 1) * pitch + rows, place);
  note("rows %lld, n %lld, ld %lld, pitch %lld", (long long)rows, (long long)n, (long long)ld, (long long)pitch);
  for (int64_t i = 0; i < count; i++) src[i] = any_half(r);
  for (int64_t i = 0; i < (n - 1) * pitch + rows; i++) dst[i] = -7;
  for (int64_t x = 0; x < n; x++) at[x] = (n % 7 ? x * 7 % n : n - 1 - x) * pitch;
  kernels->spread(rows, n, src, ld, dst, at);
  bool same = true, kept = true;
  for (int64_t x = 0; x < n; x++) {
    for (int64_t i = 0; i < rows; i++) same &= float_bits(dst[at[x] + i]) == float_bits(tc_f16_to_f32(src[i * ld + x]));
    for (int64_t i = rows; i < pitch && at[x] + i < (n - 1) * pitch; i++) kept &= dst[at[x] + i] == -7;
  }
  CHECK(same);
  CHECK(kept);
  free(at);
  guarded_close(&src_memory);
  guarded_close(&dst_memory);
}

static uint16_t narrowed(float value) { return isnan(value) ? 0x7e00 : tc_f32_to_f16(value); }

static void check_gather(int64_t rows, int64_t n, bool biased, placement place, rng *r) {
  const int64_t nr = kernels->nr, ld = n + rng_between(r, 0, 9), from = nr + rng_between(r, 0, 3), count = (n - 1) * from + nr;
  guarded src_memory, dst_memory, bias_memory;
  float *src = open_floats(&src_memory, count, place), *bias = open_floats(&bias_memory, nr, place);
  uint16_t *dst = open_halves(&dst_memory, (rows - 1) * ld + n, place);
  note("rows %lld, n %lld, ld %lld, from %lld, bias %d", (long long)rows, (long long)n, (long long)ld, (long long)from, biased);
  fill_panel(src, count, r, true);
  fill_panel(bias, nr, r, false);
  for (int64_t i = 0; i < (rows - 1) * ld + n; i++) dst[i] = 0x1234;
  kernels->gather(rows, n, src, from, biased ? bias : NULL, dst, ld);
  bool same = true, kept = true;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t x = 0; x < n; x++) same &= dst[i * ld + x] == narrowed(biased ? src[x * from + i] + bias[i] : src[x * from + i]);
    for (int64_t x = n; x < ld && i + 1 < rows; x++) kept &= dst[i * ld + x] == 0x1234;
  }
  CHECK(same);
  CHECK(kept);
  guarded_close(&src_memory);
  guarded_close(&dst_memory);
  guarded_close(&bias_memory);
}

static void relaying(void) {
  rng r = {test_seed()};
  for (int64_t rows = 1; rows <= 40; rows += rows < 10 ? 1 : 3) {
    for (int64_t n = 1; n <= 70; n += n < 18 ? 1 : 5) {
      check_spread(rows, n, n % 2 ? AT_END : AT_START, &r);
      if (rows <= kernels->nr) check_gather(rows, n, n % 3, n % 2 ? AT_END : AT_START, &r);
    }
  }
}

static void check_rows(int64_t rows, int64_t n, int64_t step, placement place, rng *r) {
  const int64_t ld = (n - 1) * step + 1 + rng_between(r, 0, 3), to = n + rng_between(r, 0, 3);
  guarded halves = {0}, floats = {0};
  uint16_t *half = open_halves(&halves, (rows - 1) * ld + (n - 1) * step + 1, place);
  float *single = open_floats(&floats, (rows - 1) * to + n, place), bias[8];
  note("rows %lld, n %lld, step %lld", (long long)rows, (long long)n, (long long)step);
  for (int64_t i = 0; i < (rows - 1) * ld + (n - 1) * step + 1; i++) half[i] = any_half(r);
  kernels->widen_rows(rows, n, half, ld, step, single, to);
  bool same = true;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t x = 0; x < n; x++) same &= float_bits(single[i * to + x]) == float_bits(tc_f16_to_f32(half[i * ld + x * step]));
  }
  CHECK(same);
  fill_panel(single, (rows - 1) * to + n, r, true);
  fill_panel(bias, COUNT(bias), r, false);
  for (int biased = 0; biased < 2; biased++) {
    kernels->narrow_rows(rows, n, single, to, biased ? bias : NULL, half, ld);
    same = true;
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t x = 0; x < n; x++)
        same &= half[i * ld + x] == narrowed(biased ? single[i * to + x] + bias[i] : single[i * to + x]);
    }
    CHECK(same);
  }
  guarded_close(&halves);
  guarded_close(&floats);
}

static void check_pick(int64_t n, int64_t step, placement place, rng *r) {
  guarded src_memory = {0}, dst_memory = {0};
  uint16_t *src = open_halves(&src_memory, (n - 1) * step + 1, place), *dst = open_halves(&dst_memory, n, place);
  for (int64_t i = 0; i < (n - 1) * step + 1; i++) src[i] = any_half(r);
  kernels->pick(n, src, step, dst);
  bool same = true;
  for (int64_t x = 0; x < n; x++) same &= dst[x] == src[x * step];
  note("n %lld, step %lld", (long long)n, (long long)step);
  CHECK(same);
  guarded_close(&src_memory);
  guarded_close(&dst_memory);
}

static void rows_of_conversions(void) {
  rng r = {test_seed()};
  for (int64_t n = 1; n <= 70; n++) {
    for (int64_t step = 1; step <= 3; step++) {
      check_rows(1 + n % 8, n, step, n % 2 ? AT_END : AT_START, &r);
      check_pick(n, step, n % 2 ? AT_END : AT_START, &r);
    }
  }
}

/* Each sum in the order that the contract fixes. */
static void check_planes(int64_t n, int64_t terms, bool special, rng *r) {
  const int64_t room = (n + TC_LANES - 1) / TC_LANES * TC_LANES, count = room + 37;
  int64_t *at = allocate(terms, sizeof(*at));
  guarded weight_memory, src_memory, out_memory;
  float *weight = open_floats(&weight_memory, terms, AT_END), *src = open_floats(&src_memory, count, AT_END);
  float *out = open_floats(&out_memory, room, AT_END);
  note("n %lld, %lld terms", (long long)n, (long long)terms);
  fill_panel(weight, terms, r, false);
  fill_panel(src, count, r, special);
  for (int64_t t = 0; t < terms; t++) at[t] = rng_between(r, 0, 37);
  kernels->planes(n, terms, weight, at, src, out);
  bool same = true;
  for (int64_t x = 0; x < n; x++) {
    float sum = 0;
    for (int64_t t = 0; t < terms; t++) sum += weight[t] * src[at[t] + x];
    same &= same_bits((double)out[x], (double)sum);
  }
  CHECK(same);
  free(at);
  guarded_close(&weight_memory);
  guarded_close(&src_memory);
  guarded_close(&out_memory);
}

static double dot(int64_t n, const float *a, const float *b, double sum) {
  for (int64_t first = 0; first < n; first += TC_LANES * TC_KC) {
    float lanes[TC_LANES] = {0};
    for (int64_t x = first; x < n && x < first + TC_LANES * TC_KC; x++) lanes[x % TC_LANES] += a[x] * b[x];
    for (int l = 0; l < TC_LANES; l++) sum += (double)lanes[l];
  }
  return sum;
}

static void check_dots(int64_t n, int64_t terms, bool special, rng *r) {
  int64_t *at = allocate(terms, sizeof(*at));
  double *acc = allocate(terms, sizeof(*acc)), *before = allocate(terms, sizeof(*before));
  guarded a_memory, b_memory;
  float *a = open_floats(&a_memory, n, AT_END), *b = open_floats(&b_memory, n + 20, AT_END);
  note("n %lld, %lld terms", (long long)n, (long long)terms);
  fill_panel(a, n, r, special);
  fill_panel(b, n + 20, r, special);
  for (int64_t t = 0; t < terms; t++) {
    at[t] = t ? rng_between(r, 0, 20) : 20;
    acc[t] = before[t] = rng_normal(r);
  }
  kernels->dots(n, terms, a, b, at, acc);
  bool same = true;
  for (int64_t t = 0; t < terms; t++) same &= same_bits(acc[t], dot(n, a, b + at[t], before[t]));
  CHECK(same);
  free(at);
  free(acc);
  free(before);
  guarded_close(&a_memory);
  guarded_close(&b_memory);
}

static void planes_and_dots(void) {
  static const int64_t terms[] = {0, 1, 2, 7, 9, 25}, lengths[] = {1, 3, 15, 16, 17, 63, 64, 65, 130, 300, TC_LANES * TC_KC + 5};
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(terms) * COUNT(lengths) * 2; i++) {
    int64_t t = terms[i / 2 % COUNT(terms)], n = lengths[i / 2 / COUNT(terms)];
    check_planes(n, t, i % 2, &r);
    check_dots(n, t, i % 2 && n < 100, &r);
  }
}

/* inf or NaN in each place of each length. */
static void finite_numbers(void) {
  static const uint16_t special[] = {0x7c00, 0xfc00, 0x7c01, 0xfe00}, largest[] = {0x7bff, 0xfbff, 0x0001, 0x8000};
  for (int64_t n = 0; n <= 70; n++) {
    guarded memory;
    uint16_t *half = open_halves(&memory, n, n % 2 ? AT_END : AT_START);
    note("n %lld", (long long)n);
    for (int64_t i = 0; i < n; i++) half[i] = largest[i % COUNT(largest)];
    CHECK(kernels->finite(n, half));
    for (int64_t i = 0; i < n; i++) {
      half[i] = special[i % COUNT(special)];
      CHECK(!kernels->finite(n, half));
      half[i] = 0;
    }
    guarded_close(&memory);
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
  static const test tests[] = {{"product", product},
                               {"product_of_halves", product_of_halves},
                               {"transpose", transpose},
                               {"conversions", conversions},
                               {"second_level", second_level},
                               {"runs", runs},
                               {"relaying", relaying},
                               {"rows_of_conversions", rows_of_conversions},
                               {"planes_and_dots", planes_and_dots},
                               {"finite_numbers", finite_numbers},
                               {"table", table}};
  kernels = find_kernels();
  return run_tests("kernels", tests, COUNT(tests), argc, argv);
}
