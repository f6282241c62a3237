/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_MACHINE_H
#define TC_CPU_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* The CPU's own name, or the architecture's where it has none. */
void tc_machine_name(char *out, size_t size);

/* CPUs that this process may use: its affinity mask, and the CPU quota of its container. */
int64_t tc_machine_cpus(void);

#endif
