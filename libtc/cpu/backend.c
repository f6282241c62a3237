/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/machine.h"
#include "status.h"

/* ---- Choice of the ISA ---- */

static const tc_cpu_isa *isa_named(const char *name) {
  for (int i = 0; i < tc_cpu_isa_count; i++) {
    if (strcmp(tc_cpu_isas[i].name, name) == 0 && tc_cpu_isas[i].supported()) return &tc_cpu_isas[i];
  }
  return NULL;
}

static const char *refusal_of(const tc_cpu_isa *isa) { return isa->refusal ? isa->refusal() : NULL; }

/* The last one that may be used without being named. What the operating system refuses is passed over, with a note if verbose. */
static const tc_cpu_isa *best_isa(bool verbose) {
  int i = tc_cpu_isa_count - 1;
  for (;; i--) {
    const tc_cpu_isa *isa = &tc_cpu_isas[i];
    if (isa->only_if_named || !isa->supported()) continue;
    const char *refusal = refusal_of(isa);
    if (!refusal) return isa;
    if (verbose) fprintf(stderr, "tc: %s kernels aren't used, the operating system refuses them, %s\n", isa->name, refusal);
  }
}

static void list_isas(char *out, size_t size) {
  size_t length = 0;
  for (int i = 0; i < tc_cpu_isa_count; i++) {
    if (tc_cpu_isas[i].supported())
      length += (size_t)snprintf(out + length, size - length, "%s%s", length ? "," : "", tc_cpu_isas[i].name);
  }
}

/* Takes the wanted ISA, or the best one if none is wanted, and fills in what the info says of them. */
static tc_status_t choose_isa(tc_cpu *cpu, const char *wanted, bool verbose) {
  tc_device_info *info = &cpu->info;
  const tc_cpu_isa *isa = wanted ? isa_named(wanted) : best_isa(verbose);
  const char *refusal = isa && wanted ? refusal_of(isa) : NULL;
  list_isas(info->isas, sizeof info->isas);
  TC_REQUIRE(isa, TC_ERROR_ENVIRONMENT, "TC_CPU_ISA=%.64s is none of the kernels that this machine can run, %s", wanted,
             info->isas);
  TC_REQUIRE(!refusal, TC_ERROR_ENVIRONMENT, "TC_CPU_ISA=%.64s is refused by this machine's operating system, %s", wanted, refusal);
  cpu->kernels = isa->kernels;
  cpu->split = isa->split;
  snprintf(info->isa_reason, sizeof info->isa_reason, wanted ? "TC_CPU_ISA=%s" : "best of %s", wanted ? wanted : info->isas);
  snprintf(info->isa, sizeof info->isa, "%s", isa->name);
  snprintf(info->kernel, sizeof info->kernel, "%s", isa->split ? isa->split->name : isa->kernels->gemm_name);
  return TC_OK;
}

/* ---- Life ---- */

static bool cpu_available(void) { return true; }

static tc_status_t cpu_open(const tc_environment *environment, void **state) {
  TC_REQUIRE(environment->conv_path != TC_CONV_PATH_COL, TC_ERROR_ENVIRONMENT,
             "TC_CONV_PATH=col can't be done by the cpu backend, implicit can");
  tc_cpu *cpu = calloc(1, sizeof *cpu);
  TC_REQUIRE(cpu, TC_ERROR_MEMORY, "no memory for a CPU context");
  const tc_status_t status = choose_isa(cpu, environment->cpu_isa, environment->verbose);
  if (status != TC_OK) {
    free(cpu);
    return status;
  }
  int64_t threads = environment->threads ? environment->threads : tc_machine_cpus();
  if (threads > TC_THREADS_MAX) threads = TC_THREADS_MAX;
  tc_pool_init(&cpu->pool, threads);
  cpu->info.backend = TC_BACKEND_CPU;
  tc_machine_name(cpu->info.device, sizeof cpu->info.device);
  *state = cpu;
  return TC_OK;
}

static void cpu_close(void *state) {
  tc_cpu *cpu = state;
  tc_pool_destroy(&cpu->pool);
  tc_workspaces_free(cpu);
  free(cpu);
}

static void cpu_set_threads(void *state, int64_t n) { tc_pool_set_threads(&((tc_cpu *)state)->pool, n); }

static void cpu_trim(void *state) { tc_workspaces_free(state); }

static void cpu_after_fork(void *state) { tc_pool_after_fork(&((tc_cpu *)state)->pool); }

static void cpu_device_info(void *state, tc_device_info *out) {
  const tc_cpu *cpu = state;
  *out = cpu->info;
  out->threads = cpu->pool.threads;
}

/* ---- Memory of buffers ---- */

enum { ALIGNMENT = 64 };

/* calloc leaves the zeroing of large blocks to the operating system, and aligned_alloc doesn't. */
static tc_status_t cpu_memory_alloc(void *state, size_t bytes, tc_memory *out) {
  (void)state;
  out->owned = bytes <= SIZE_MAX - ALIGNMENT ? calloc(1, bytes + ALIGNMENT) : NULL;
  TC_REQUIRE(out->owned, TC_ERROR_MEMORY, "no memory for bytes = %zu", bytes);
  out->data = (char *)out->owned + (ALIGNMENT - (uintptr_t)out->owned % ALIGNMENT) % ALIGNMENT;
  return TC_OK;
}

static tc_status_t cpu_memory_wrap(void *state, void *ptr, size_t bytes, tc_memory *out) {
  (void)state, (void)bytes;
  *out = (tc_memory){ptr, NULL};
  return TC_OK;
}

static void cpu_memory_free(tc_memory *memory) { free(memory->owned); }

const tc_backend tc_backend_cpu = {
    .id = TC_BACKEND_CPU,
    .name = "cpu",
    .available = cpu_available,
    .open = cpu_open,
    .close = cpu_close,
    .device_info = cpu_device_info,
    .set_threads = cpu_set_threads,
    .trim = cpu_trim,
    .after_fork = cpu_after_fork,
    .memory_alloc = cpu_memory_alloc,
    .memory_wrap = cpu_memory_wrap,
    .memory_free = cpu_memory_free,
    .gemm = tc_cpu_gemm,
    .conv2d_forward = tc_cpu_conv2d_forward,
    .conv2d_backward_input = tc_cpu_conv2d_backward_input,
    .conv2d_backward_weight = tc_cpu_conv2d_backward_weight,
};
