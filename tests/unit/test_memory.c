/* SPDX-License-Identifier: MIT
 *
 * No memory for a workspace: TC_ERROR_MEMORY, a sentence, outputs as they were, and the same call works once there is memory again.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 256 }; /* a workspace for each of them takes more than malloc has left over */

/* Address space in use, in bytes. */
static double used(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld", &pages) != 1) skip("/proc/self/statm can't be read");
  fclose(file);
  return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Limits the address space to what is in use; false if that has no effect. */
static bool exhaust(struct rlimit *before) {
  getrlimit(RLIMIT_AS, before);
  struct rlimit limit = {(rlim_t)used(), before->rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  void *volatile probe = malloc((size_t)1 << 28); /* volatile, or a compiler leaves both calls out */
  free(probe);
  return probe == NULL;
}

static void check_exhausted(problem p) {
  tc_context *ctx = open_context();
  struct rlimit before;
  char sentence[512];
  CHECK_OK(tc_context_set_threads(ctx, THREADS));
  problem_note(&p);
  problem_open(&p, ctx);
  uint8_t *output = operand_snapshot(problem_output(&p));
  bool limited = exhaust(&before);
  tc_status_t status = problem_call(&p, ctx);
  setrlimit(RLIMIT_AS, &before);
  if (!limited) skip("RLIMIT_AS has no effect here");
  strncpy(sentence, tc_last_error(), sizeof(sentence) - 1);
  sentence[sizeof(sentence) - 1] = 0;
  CHECK_INT(status, TC_ERROR_MEMORY);
  CHECK_CONTAINS(sentence, "memory");
  CHECK_CONTAINS(sentence, p.is_gemm ? "tc_gemm" : conv_names[p.conv.op]);
  CHECK_BYTES(problem_output(&p)->memory.data, output, problem_output(&p)->memory.bytes);
  CHECK_OK(problem_call(&p, ctx));
  free(output);
  problem_close(&p, ctx);
  close_context(ctx);
}

static void workspaces(void) {
  check_exhausted(problem_gemm(1000, 1000, 50));
  for (conv_op op = 0; op < CONV_OPS; op++) {
    problem p = problem_conv(op, (conv_shape){64, 40, 40, 16, 16, 3, 3, 1, 1, 1, 1, 1});
    p.conv.positional = true;
    check_exhausted(p);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"workspaces", workspaces}};
  if (used() > 0x1p40) skip("a sanitizer holds the address space, which can't be limited then");
  return run_tests("memory", tests, COUNT(tests), argc, argv);
}
