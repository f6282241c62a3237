/* SPDX-License-Identifier: MIT
 *
 * Runs the fuzz target without libFuzzer: on the files that are named, or on random inputs.
 * Usage: test_fuzz [file...]
 */
#include "common/check.h"
#include "common/rng.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUTS = 60000, LONGEST = 64 };

static void run_file(const char *name) {
  static uint8_t data[1 << 16];
  FILE *file = fopen(name, "rb");
  if (!file) give_up("%s can't be read", name);
  size_t size = fread(data, 1, sizeof(data), file);
  fclose(file);
  CHECK(LLVMFuzzerTestOneInput(data, size) == 0);
}

static void run_random(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(INPUTS); i > 0; i--) {
    uint8_t data[LONGEST];
    size_t size = (size_t)rng_between(&r, 0, LONGEST);
    for (size_t b = 0; b < size; b++) data[b] = (uint8_t)rng_bits(&r);
    CHECK(LLVMFuzzerTestOneInput(data, size) == 0);
  }
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) run_file(argv[i]);
  if (argc == 1) run_random();
  return finish("fuzz", 1);
}
