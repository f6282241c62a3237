/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_MACHINE_H
#define TC_CPU_MACHINE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* The CPU's own name, or the architecture's where it has none. */
void tc_machine_name(char *out, size_t size);

/* CPUs that this process may use: its affinity mask, and the CPU quota of its container. */
int64_t tc_machine_cpus(void);

/* The CPU that the calling thread is on, or -1. */
int tc_machine_cpu(void);

/* Lets threads run on all CPUs that the caller may use but this one; does nothing where none is left, or no such thing exists. */
void tc_machine_keep_off(int cpu, const pthread_t *threads, int64_t n);

#endif
