/* SPDX-License-Identifier: MIT
 *
 * Runs a plan's steps on the face, as the host would on a GPU.
 */
#ifndef TC_TESTS_KERNELS_DISPATCH_H
#define TC_TESTS_KERNELS_DISPATCH_H

#include <face.h>

#include "metal/plan.h"

/* The library of the embedded text, or of that in the file that TC_TEST_METAL_SOURCE names. Ends the program if it doesn't compile. */
void kernels_open(void);
void kernels_close(void);

/* operands: by role; workspace memory is made here, with NaN in it. False, and a failed check, if a kernel did something wrong. */
bool plan_run(const tc_plan *plan, const face_binding operands[TC_ROLES]);

/* One step, workspace memory among the operands. counters may be NULL. */
bool step_run(const tc_plan_step *step, const face_binding operands[TC_ROLES], face_counters *counters);

/* One dispatch of a kernel without function constants. */
bool kernel_run(const char *name, const face_binding *buffers, size_t count, uint32_t threads);

#endif
