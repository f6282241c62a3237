/* SPDX-License-Identifier: MIT */
/* Kernels with one fault each (kernels/faults.metal): the checks that this build has must find it, and say where.
 *
 * Divergence is found in every build, races and bounds with METALSIM_CHECK=1 or ThreadSanitizer, bounds with AddressSanitizer, which
 * ends the process: there each kernel runs in a child. */
#include "testing.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum kind { DIVERGENCE, RACE, BOUNDS } kind;

static const struct fault {
  kind kind;
  const char *kernel, *text;
  uint32_t groups, threads;
  const char *asan;
} faults[] = {
    {DIVERGENCE, "barrier_under_if", "threads 40-63 have returned; threads 0-39 wait at threadgroup_barrier, barrier_under_if:2", 1,
     64, NULL},
    {DIVERGENCE, "early_return", "threads 50-63 have returned; threads 0-49 wait at threadgroup_barrier, early_return:4", 1, 64,
     NULL},
    {DIVERGENCE, "two_barriers", "threads wait at different places: threads 0-31 wait at threadgroup_barrier, two_barriers:3", 1,
     64, NULL},
    {DIVERGENCE, "sum_under_if", "threads 0, 2, 4, 6 ... have returned", 1, 32, NULL},
    {DIVERGENCE, "simdgroup_barrier_under_if", "33 have returned", 1, 64, NULL},
    {DIVERGENCE, "matrix_under_if", "different simdgroup operations", 1, 64, NULL},
    {DIVERGENCE, "matrix_arguments_differ", "different simdgroup operations, or with different arguments; thread 1 differs", 1, 32,
     NULL},
    {DIVERGENCE, "matrix_without_value", "a simdgroup_matrix that has no value yet is read, matrix_without_value:3", 1, 32, NULL},
    {DIVERGENCE, "too_much_memory", "more than 32768 bytes of threadgroup memory", 1, 64, NULL},
    {RACE, "no_barrier_before_read", "of threadgroup memory", 1, 64, NULL},
    {RACE, "no_barrier_after_read", "no_barrier_after_read:4", 1, 64, NULL},
    {RACE, "barrier_of_no_memory", "without a barrier between", 1, 64, NULL},
    {RACE, "barrier_of_other_memory", "of 'z'", 1, 64, NULL},
    {RACE, "simdgroup_barrier_is_too_small", "without a barrier between", 1, 64, NULL},
    {RACE, "matrix_before_barrier",
     "thread 1 writes, matrix_before_barrier:3; thread 0 read, matrix_before_barrier:5, without a barrier between", 1, 32, NULL},
    {RACE, "threadgroups_write_one_place", "of another threadgroup wrote", 2, 1, NULL},
    {RACE, "threadgroup_reads_another", "of another threadgroup wrote", 2, 32, NULL},
    {RACE, "plain_beside_atomic", "of another threadgroup wrote", 2, 1, NULL},
    {BOUNDS, "reads_past_buffer", "reads 4 bytes outside of 'x' (256 bytes), at byte 256, reads_past_buffer:3", 1, 64,
     "heap-buffer-overflow"},
    {BOUNDS, "reads_before_buffer", "outside of 'x' (256 bytes), at byte -4", 1, 64, "heap-buffer-overflow"},
    {BOUNDS, "writes_past_threadgroup_memory", "outside of every variable in threadgroup memory", 1, 64, "use-after-poison"},
    {BOUNDS, "matrix_past_threadgroup_memory", "outside of every variable in threadgroup memory", 1, 32, "use-after-poison"},
};

static char *run(const face_library *library, const struct fault *fault) {
  uint32_t *y = calloc(1, 4096), *x = calloc(1, 256);
  call c = {.kernel = fault->kernel,
            .buffers = {{y, 4096}, {x, 256}},
            .threadgroup_lengths = {16384},
            .groups = {fault->groups},
            .threads = {fault->threads}};
  char *error = dispatch(library, &c, NULL);
  free(x), free(y);
  return error;
}

/* Whether a child that runs the kernel ends badly, and says why on stderr. */
static bool dies_with(const face_library *library, const struct fault *fault, const char *text) {
  static char said[1 << 16];
  int ends[2];
  if (pipe(ends)) perror("pipe"), exit(1);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    free(run(library, fault));
    exit(0);
  }
  close(ends[1]);
  FILE *out = fdopen(ends[0], "r");
  said[fread(said, 1, sizeof said - 1, out)] = 0;
  fclose(out);
  int status;
  waitpid(child, &status, 0);
  if (!strstr(said, text)) printf("the child says: %s\n", said);
  return status != 0 && strstr(said, text);
}

int main(void) {
  bool asan = dlsym(RTLD_DEFAULT, "__asan_init"), tsan = dlsym(RTLD_DEFAULT, "__tsan_init");
  const char *check = getenv("METALSIM_CHECK");
  bool checked = tsan || (!asan && check && !strcmp(check, "1"));
  face_library *library = compile_file("faults.metal");
  size_t found = 0;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    const struct fault *fault = &faults[i];
    if (asan && fault->asan)
      CHECK(dies_with(library, fault, fault->asan), "%s", fault->kernel);
    else if (checked || fault->kind == DIVERGENCE)
      CHECK(error_has(run(library, fault), fault->text), "%s", fault->kernel);
    else
      continue;
    found++;
  }
  CHECK(face_library_kernel_count(library) == sizeof faults / sizeof *faults, "every kernel is in the table");
  face_library_free(library);
  printf("%zu faults looked for, %d failures\n", found, failures);
  return failures != 0;
}
