/* SPDX-License-Identifier: MIT
 * Writes what metal/embed.py put into it to stdout: `embedded source` or `embedded library`. */
#include <stdio.h>
#include <string.h>

#include "metal/embedded.h"

int main(int argc, char **argv) {
  const tc_embedded *what = argc == 2 && !strcmp(argv[1], "source") ? &tc_metal_source : &tc_metal_library;
  return fwrite(what->data, 1, what->bytes, stdout) != what->bytes;
}
