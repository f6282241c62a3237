/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cpu/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

void tc_machine_name(char *out, size_t size) {
  char name[256] = "";
#if defined(__x86_64__)
  uint32_t words[12] = {0};
  for (uint32_t leaf = 0; leaf < 3; leaf++) {
    uint32_t *w = words + 4 * leaf;
    __get_cpuid(0x80000002u + leaf, w, w + 1, w + 2, w + 3);
  }
  memcpy(name, words, sizeof words);
#elif defined(__APPLE__)
  size_t length = sizeof name - 1;
  sysctlbyname("machdep.cpu.brand_string", name, &length, NULL, 0);
#endif
  const char *start = name + strspn(name, " ");
  struct utsname system;
  if (!*start && uname(&system) == 0) start = system.machine;
  snprintf(out, size, "%s", start);
}

#ifdef __linux__
/* CPUs of the affinity mask; 0 if the kernel has more than the mask holds. */
static int64_t affinity(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/* The quota of the topmost control group that is seen here, a container's own, in whole CPUs, rounded up; 0 if there is none.
 * Version 2 has "quota period" in one file, with "max" for none; version 1 has one file for each, with -1 for none. */
static int64_t quota(void) {
  static const char *const files[][2] = {{"/sys/fs/cgroup/cpu.max", NULL},
                                         {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    long long limit = 0, period = 0;
    for (int j = 0; j < 2 && files[i][j]; j++) {
      FILE *file = fopen(files[i][j], "re");
      if (!file) continue;
      const int fields = j == 0 ? fscanf(file, "%lld %lld", &limit, &period) : fscanf(file, "%lld", &period);
      fclose(file);
      if (fields < 1) break;
    }
    if (limit > 0 && period > 0) return (limit + period - 1) / period;
  }
  return 0;
}

int tc_machine_cpu(void) { return sched_getcpu(); }

void tc_machine_keep_off(int cpu, const pthread_t *threads, int64_t n) {
  cpu_set_t set;
  if (cpu < 0 || sched_getaffinity(0, sizeof set, &set) != 0) return;
  CPU_CLR(cpu, &set);
  if (CPU_COUNT(&set) == 0) return;
  for (int64_t i = 0; i < n; i++) pthread_setaffinity_np(threads[i], sizeof set, &set);
}
#else
static int64_t affinity(void) { return 0; }
static int64_t quota(void) { return 0; }
int tc_machine_cpu(void) { return -1; }
void tc_machine_keep_off(int cpu, const pthread_t *threads, int64_t n) { (void)cpu, (void)threads, (void)n; }
#endif

int64_t tc_machine_cpus(void) {
  int64_t cpus = affinity();
  if (cpus < 1) cpus = sysconf(_SC_NPROCESSORS_ONLN);
  const int64_t limit = quota();
  if (limit > 0 && limit < cpus) cpus = limit;
  return cpus < 1 ? 1 : cpus;
}
