/* SPDX-License-Identifier: MIT
 * The Metal backend of a library that was built without it. */
#include "backend.h"
#include "status.h"

static bool available(void) { return false; }

static tc_status_t not_built(const tc_environment *environment, void **state) {
  (void)environment, (void)state;
  return tc_fail(TC_ERROR_UNSUPPORTED,
                 "the metal backend (asked for by argument or TC_BACKEND) is not built into this library, cpu is");
}

const tc_backend tc_backend_metal = {.id = TC_BACKEND_METAL, .name = "metal", .available = available, .open = not_built};
