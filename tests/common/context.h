/* SPDX-License-Identifier: MIT
 *
 * Contexts for tests: of the backend and ISA that the environment names, and of each ISA that this machine can do.
 */
#ifndef TC_TESTS_CONTEXT_H
#define TC_TESTS_CONTEXT_H

#include <stddef.h>
#include <tc/tc.h>

enum { ISA_NAME_BYTES = 32, ISAS_MAX = 8 };

/* tc_init. Ends the program as skipped if TC_CPU_ISA is a value that this machine can't do, and as failed at any other error. */
tc_context *open_context(void);

/* The values of TC_CPU_ISA that this machine can do (from tc_device_info); gives their number. */
size_t list_isas(char names[ISAS_MAX][ISA_NAME_BYTES]);

/* A CPU context with these kernels; TC_CPU_ISA is as before afterwards. */
tc_context *open_isa(const char *isa);

void close_context(tc_context *ctx);

#endif
