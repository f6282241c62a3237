/* SPDX-License-Identifier: MIT
 *
 * Contexts for tests: of the backend and ISA that the environment names, and of each ISA that this machine can do.
 */
#ifndef TC_TESTS_CONTEXT_H
#define TC_TESTS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <tc/tc.h>

enum { ISA_NAME_BYTES = 32, ISAS_MAX = 8 };

/* tc_init. Ends the program as skipped if the machine lacks the ISA of TC_CPU_ISA or a GPU, and as failed at any other error. */
tc_context *open_context(void);

/* The values of TC_CPU_ISA that this machine can do (from tc_device_info); gives their number. */
size_t list_isas(char names[ISAS_MAX][ISA_NAME_BYTES]);

/* A CPU context with these kernels; TC_CPU_ISA is as before afterwards. */
tc_context *open_isa(const char *isa);

void close_context(tc_context *ctx);

bool on_metal(tc_context *ctx);

/* Memory that a buffer wraps starts at a multiple of this, and ends at one: 1 on the CPU, a page on Metal. */
size_t wrap_unit(tc_context *ctx);

#endif
