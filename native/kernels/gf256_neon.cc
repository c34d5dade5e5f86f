// NEON: products by nibble tables (gf256.h), looked up 16 bytes at a time with TBL. Every AArch64 machine has
// it.
#include "kernels/kernels.h"

#if defined(__aarch64__) && !defined(KINTSUGI_NO_NEON)
#include <arm_neon.h>

#include "kernels/gf256_simd.h"

namespace kintsugi {
namespace {

struct V128 {
  using Bytes = uint8x16_t;
  static constexpr std::size_t kBytes = 16;

  static inline Bytes load(const std::uint8_t* p) { return vld1q_u8(p); }
  static inline void store(std::uint8_t* p, Bytes x) { vst1q_u8(p, x); }
  static inline Bytes table(const std::uint8_t* sixteen) { return vld1q_u8(sixteen); }
  static inline Bytes zero() { return vdupq_n_u8(0); }
  static inline Bytes bitXor(Bytes a, Bytes b) { return veorq_u8(a, b); }
  static inline Bytes low(Bytes x) { return vandq_u8(x, vdupq_n_u8(0x0F)); }
  static inline Bytes high(Bytes x) { return vshrq_n_u8(x, 4); }
  static inline Bytes lookUp(Bytes table, Bytes nibbles) { return vqtbl1q_u8(table, nibbles); }
};

}  // namespace

const Kernels* neonKernels() {
  static const Kernels table = Field<Nibbled<V128>>::table("neon", Nibbled<V128>::encode, kNeonRows);
  return &table;
}

}  // namespace kintsugi

#else

namespace kintsugi {
const Kernels* neonKernels() { return nullptr; }
}  // namespace kintsugi

#endif
