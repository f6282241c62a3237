/* SPDX-License-Identifier: MIT
 *
 * A C++ program outside of the tree: 2 x 2 ones times 2 x 2 ones are 2 x 2 twos. Prints the library's version.
 */
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tc/tc.h>

namespace {

const std::uint16_t one = 0x3C00, two = 0x4000;

class Buffer {
public:
  Buffer(tc_context *ctx, std::vector<std::uint16_t> &values) : ctx_(ctx) {
    if (tc_buffer_wrap(ctx, values.data(), values.size() * sizeof(std::uint16_t), &buffer_) != TC_OK) std::puts(tc_last_error());
  }
  ~Buffer() { tc_buffer_free(ctx_, buffer_); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  tc_buffer *get() const { return buffer_; }

private:
  tc_context *ctx_;
  tc_buffer *buffer_ = nullptr;
};

bool multiply_ones(tc_context *ctx) {
  std::vector<std::uint16_t> ones(4, one), product(4);
  Buffer a(ctx, ones), b(ctx, ones), c(ctx, product);
  tc_gemm_desc desc = TC_GEMM_DESC_INIT;
  desc.M = desc.N = desc.K = 2;
  return tc_gemm(ctx, &desc, a.get(), b.get(), c.get()) == TC_OK && product == std::vector<std::uint16_t>(4, two);
}

} // namespace

int main() {
  tc_context *ctx = nullptr;
  if (tc_init(&ctx) != TC_OK || tc_api_version() != TC_API_VERSION || !multiply_ones(ctx)) {
    std::puts(tc_last_error());
    return 1;
  }
  std::puts(tc_version());
  return tc_shutdown(ctx) == TC_OK ? 0 : 1;
}
