/* SPDX-License-Identifier: MIT
 *
 * The counts that the roofline takes from single threadgroups are those of the whole dispatch.
 */
#include <math.h>
#include <string.h>

#include "common/check.h"
#include "count.h"
#include "kernels/dispatch.h"
#include "workload.h"

/* With one core no product has few tiles; with many, each has, and is cut along K. */
static const tc_plan_chip one = {"one core", 7, 1, 1, 50}, many = {"many cores", 9, 1000, 1, 1e6};
static const tc_plan_device devices[] = {{&one, UINT64_C(1) << 40, false}, {&many, UINT64_C(1) << 40, false}};

static double apart(uint64_t got, uint64_t want) { return fabs((double)got - (double)want) / ((double)want + 1); }

/* Windows: reads that padding saves are estimated. */
static bool check_reads(face_counters *got, const face_counters *want) {
  uint64_t *const got_reads[] = {&got->device_read, &got->device_accesses, &got->threadgroup_read, &got->threadgroup_accesses};
  const uint64_t want_reads[] = {want->device_read, want->device_accesses, want->threadgroup_read, want->threadgroup_accesses};
  bool good = true;
  for (size_t i = 0; i < COUNT(want_reads); i++) {
    good = CHECK_AT_MOST(apart(*got_reads[i], want_reads[i]), 0.1) && good;
    *got_reads[i] = want_reads[i];
  }
  return good;
}

static bool check_step(const tc_plan_step *step, const face_binding operands[TC_ROLES]) {
  step_count count;
  face_counters whole;
  note("%s, grid %u %u %u", step->kernel.name, step->threadgroups[0], step->threadgroups[1], step->threadgroups[2]);
  if (!CHECK(step_run(step, operands, &whole)) || !CHECK(step_count_all(step, operands, &count))) return false;
  if (strstr(step->kernel.name, "_window_") && !check_reads(&count.counters, &whole)) return false;
  return CHECK(whole.device_written > 0) && CHECK_BYTES(&count.counters, &whole, sizeof whole);
}

static void check_workload(workload w) {
  for (size_t i = 0; i < w.plan.count; i++) check_step(&w.plan.steps[i], w.operands);
  workload_free(&w);
}

/* Stripes of rows that end short, edges, both sides along and across K, parts. */
static void gemm(void) {
  static const int64_t sizes[][3] = {{64, 64, 64}, {640, 70, 20}, {130, 200, 50}, {100, 100, 1100}, {8, 600, 40}, {600, 3, 40}};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    for (int transposes = 0; transposes < 4; transposes++) {
      const tc_plan_device *device = &devices[(i + (size_t)transposes) % COUNT(devices)];
      check_workload(workload_gemm(device, transposes & 1, transposes >> 1, sizes[i][0], sizes[i][1], sizes[i][2]));
    }
  }
}

/* Padding, strides with phases of different sizes and without taps, parts, groups. */
static void conv(void) {
  static const conv_shape shapes[] = {
      {2, 16, 70, 9, 9, 3, 3, 1, 1, 1, 1, 1}, {2, 6, 40, 11, 9, 3, 3, 1, 1, 2, 2, 1},  {2, 8, 72, 7, 7, 1, 1, 0, 0, 2, 2, 1},
      {3, 64, 72, 8, 8, 1, 1, 0, 0, 1, 1, 1}, {1, 3, 64, 20, 20, 7, 7, 3, 3, 2, 2, 1}, {2, 8, 8, 12, 12, 3, 3, 1, 1, 1, 1, 4},
      {2, 72, 80, 7, 7, 3, 3, 1, 1, 1, 1, 1},
  };
  for (size_t i = 0; i < COUNT(shapes); i++) {
    for (conv_op op = 0; op < CONV_OPS; op++) {
      for (size_t j = 0; j < COUNT(devices); j++) check_workload(workload_conv(&devices[j], op, shapes[i]));
    }
  }
}

/* What a tile needs is what it reads and writes, where all fits. */
static void needed(void) {
  workload w = workload_gemm(&devices[0], false, false, 192, 128, 64);
  step_count count;
  if (CHECK(step_count_all(&w.plan.steps[0], w.operands, &count))) {
    CHECK_INT((int64_t)count.needed, 6 * (2 * (64 + 64) * 64 + 2 * 64 * 64));
    CHECK_INT((int64_t)(count.counters.device_read + count.counters.device_written), (int64_t)count.needed);
    CHECK_INT((int64_t)count.counters.multiply_accumulates, 192 * 128 * 64 / 512);
  }
  workload_free(&w);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"gemm", gemm}, {"conv", conv}, {"needed", needed}};
  kernels_open();
  const int status = run_tests("roofline_count", tests, COUNT(tests), argc, argv);
  kernels_close();
  return status;
}
