/* SPDX-License-Identifier: MIT
 *
 * Counts of problems for roofline.py, which writes one problem a line:
 *
 *     gemm nn|nt|tn|tt M N K CHIP
 *     forward|backward_input|backward_weight BATCH IN_CHANNELS OUT_CHANNELS SIZE KERNEL STRIDE PADDING CHIP
 *
 * A line for each step of the plan answers: kernel, threads of a threadgroup, bytes needed, and the counters in their order; then a
 * line "end". "chip CHIP" is answered by cores, gigahertz and gigabytes per second.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/check.h"
#include "count.h"
#include "kernels/dispatch.h"
#include "workload.h"

enum { LINE = 256, CACHE = 4096 };

/* ---- Counts that were made before: chips often have the same steps ---- */

static struct counted {
  tc_plan_step step;
  step_count count;
} cache[CACHE];
static size_t cached;

static bool same_step(const tc_plan_step *a, const tc_plan_step *b) {
  return tc_plan_kernel_equal(&a->kernel, &b->kernel) && !memcmp(a->threadgroups, b->threadgroups, sizeof a->threadgroups) &&
         !memcmp(a->params, b->params, sizeof a->params);
}

static const step_count *count_of(const tc_plan_step *step, const face_binding operands[TC_ROLES]) {
  for (size_t i = 0; i < cached; i++) {
    if (same_step(&cache[i].step, step)) return &cache[i].count;
  }
  if (cached == CACHE) give_up("more than %d steps", CACHE);
  cache[cached].step = *step;
  if (!step_count_all(step, operands, &cache[cached].count)) give_up("%s failed", step->kernel.name);
  return &cache[cached++].count;
}

/* ---- Problems ---- */

static const tc_plan_chip *chip_of(const char *name) {
  const tc_plan_chip *chip = tc_plan_chip_find(name, 0);
  if (strcmp(chip->name, name)) give_up("no chip \"%s\"", name);
  return chip;
}

static workload read_gemm(const char *line) {
  char form[3], chip[LINE];
  int64_t M, N, K;
  if (sscanf(line, "gemm %2s %" SCNd64 " %" SCNd64 " %" SCNd64 " %255[^\n]", form, &M, &N, &K, chip) != 5) give_up("%s?", line);
  const tc_plan_device device = {chip_of(chip), UINT64_C(1) << 40, false};
  return workload_gemm(&device, form[0] == 't', form[1] == 't', M, N, K);
}

static workload read_conv(const char *line) {
  static const char *const names[CONV_OPS] = {
      [CONV_BACKWARD_INPUT] = "backward_input", [CONV_BACKWARD_WEIGHT] = "backward_weight", [CONV_FORWARD] = "forward"};
  char name[LINE], chip[LINE];
  conv_shape s = {.groups = 1};
  const int read =
      sscanf(line, "%255s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %255[^\n]", name,
             &s.batch, &s.in_channels, &s.out_channels, &s.H, &s.kH, &s.stride_h, &s.pad_h, chip);
  conv_op op = 0;
  while (read == 9 && op < CONV_OPS && strcmp(names[op], name)) op++;
  if (read != 9 || op == CONV_OPS) give_up("%s?", line);
  s.W = s.H;
  s.kW = s.kH;
  s.stride_w = s.stride_h;
  s.pad_w = s.pad_h;
  const tc_plan_device device = {chip_of(chip), UINT64_C(1) << 40, false};
  return workload_conv(&device, op, s);
}

static void print_counts(workload w) {
  for (size_t i = 0; i < w.plan.count; i++) {
    const tc_plan_step *step = &w.plan.steps[i];
    const step_count *count = count_of(step, w.operands);
    uint64_t values[sizeof count->counters / sizeof(uint64_t)];
    memcpy(values, &count->counters, sizeof values);
    printf("%s %u %" PRIu64, step->kernel.name, step->threads[0] * step->threads[1], count->needed);
    for (size_t j = 0; j < COUNT(values); j++) printf(" %" PRIu64, values[j]);
    printf("\n");
  }
  printf("end\n");
  workload_free(&w);
}

int main(void) {
  char line[LINE];
  kernels_open();
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (!strncmp(line, "chip ", 5)) {
      const tc_plan_chip *chip = chip_of(line + 5);
      printf("%d %g %g\n", chip->cores, chip->gigahertz, chip->gigabytes_per_second);
    } else {
      print_counts(strncmp(line, "gemm ", 5) ? read_conv(line) : read_gemm(line));
    }
    fflush(stdout);
  }
  kernels_close();
  return 0;
}
