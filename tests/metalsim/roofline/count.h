/* SPDX-License-Identifier: MIT
 *
 * Counts what a step of a plan does on the face, from one threadgroup of each kind (tiles inside, at edges, parts of K, phases),
 * since those of one kind count the same. But in windows, reads that padding saves depend on the place: there it's the mean of four.
 */
#ifndef TC_TESTS_ROOFLINE_COUNT_H
#define TC_TESTS_ROOFLINE_COUNT_H

#include <face.h>

#include "metal/plan.h"

typedef struct step_count {
  face_counters counters; /* of all threadgroups */
  uint64_t needed;        /* bytes that tiles of this shape have to read and write, each element once for each tile; 0: no tiles */
} step_count;

/* operands: as for step_run. False, and a failed check, if a kernel did something wrong. */
bool step_count_all(const tc_plan_step *step, const face_binding operands[TC_ROLES], step_count *count);

#endif
