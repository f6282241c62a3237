/* SPDX-License-Identifier: MIT
 *
 * A GPU whose arithmetic isn't what the kernels rely on is found out when it is opened: no call gives wrong results on it.
 */
#include "host.h"

#include <stdlib.h>

static void flushed_halves(void) {
  tc_context *ctx = (tc_context *)&ctx;
  CHECK_STATUS(tc_init_backend(TC_BACKEND_METAL, &ctx), TC_ERROR_DEVICE);
  CHECK(ctx == NULL);
  CHECK_CONTAINS(tc_last_error(), "probe");
  CHECK_CONTAINS(tc_last_error(), "subnormal");
  check_nothing_lives();
}

int main(int argc, char **argv) {
  static const test tests[] = {{"flushed_halves", flushed_halves}};
  setenv("METALSIM_SUBNORMAL", "none", 1);
  return run_tests("probe", tests, COUNT(tests), argc, argv);
}
