// Instruction sets that an x86-64 processor and its system allow, asked of the processor itself. The
// compilers' own `__builtin_cpu_supports` reads a table of their run-time library, and zig's library has an
// empty one: its builds would run the scalar kernels everywhere.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>

namespace kintsugi {

class Cpu {
 public:
  Cpu() {
    std::uint32_t a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    // The system must save the wide registers, too, when it switches threads.
    if (!has(c, 27) || !has(c, 28)) return;  // OSXSAVE, AVX
    std::uint32_t saved = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    avx2_ = (saved & 0x06) == 0x06 && has(b, 5);
    avx512_ = (saved & 0xe6) == 0xe6 && has(b, 16) && has(b, 30) && has(b, 31) && has(c, 8);
  }

  bool avx2() const { return avx2_; }
  /** F, BW, VL, and GFNI. */
  bool avx512() const { return avx2_ && avx512_; }

 private:
  static bool has(std::uint32_t bits, int bit) { return (bits >> bit & 1) != 0; }

  bool avx2_ = false;
  bool avx512_ = false;
};

}  // namespace kintsugi
#endif
