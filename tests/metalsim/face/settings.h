// SPDX-License-Identifier: MIT
// The METALSIM_* environment, and what kind of process this is.
#pragma once

#include <cstdint>
#include <string>

namespace face {

enum class build {
  plain,
  address,
  checked
}; // how kernels are compiled: as they are, with AddressSanitizer, with every access reported

struct settings {
  std::string cache, clang;
  build kind;
  bool permuted; // lane map
  bool flush_half, flush_float;
  uint64_t seed;
};

const settings &get_settings(); // read at the first call

} // namespace face
