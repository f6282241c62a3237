// SPDX-License-Identifier: MIT
// What a compiled library and its specialised functions are made of.
#pragma once

#include "face.h"
#include "source.h"

#include <memory>

namespace face {

// A loaded copy of a compiled library, with one set of values of its function constants. Never unloaded.
struct module {
  void *handle;
  uintptr_t begin, end; // its addresses: constants of the program lie here
};

} // namespace face

struct face_library {
  std::string object; // the path of the compiled library
  face::translation source;
  std::vector<face_kernel> kernels;
  std::vector<std::vector<face_argument>> arguments; // of each kernel
  std::vector<std::vector<face_constant>> constants;
  std::vector<size_t> threadgroup_bytes;
};

struct face_function {
  const face_library *library;
  size_t kernel; // of the library
  std::vector<face_argument> arguments;
  const face::module *loaded;
  void (*entry)();
};

namespace face {

// Compiles or finds the object of a source; throws std::runtime_error with the compiler's text.
std::string compile(std::string_view source, int version, translation &out);

} // namespace face
