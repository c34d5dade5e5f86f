// The row kernels with NEON; what they do is in rows_simd.h.
#include "kernels/rows.h"

#if defined(__aarch64__) && !defined(KINTSUGI_NO_NEON)
#include <arm_neon.h>

#include "kernels/rows_simd.h"

namespace kintsugi {
namespace {

struct V128 {
  using F = float32x4_t;
  static constexpr std::uint32_t kLanes = 4;

  // By bytes: a row of a section starts at any address.
  static inline F load(const void* p, std::uint32_t n) {
    if (n == kLanes) return vreinterpretq_f32_u8(vld1q_u8(static_cast<const std::uint8_t*>(p)));
    float lanes[kLanes] = {};
    std::memcpy(lanes, p, n * sizeof(float));
    return vld1q_f32(lanes);
  }
  static inline void store(void* p, F x, std::uint32_t n) {
    if (n == kLanes) return vst1q_u8(static_cast<std::uint8_t*>(p), vreinterpretq_u8_f32(x));
    float lanes[kLanes];
    vst1q_f32(lanes, x);
    std::memcpy(p, lanes, n * sizeof(float));
  }
  static inline F set1(float x) { return vdupq_n_f32(x); }
  static inline F zero() { return vdupq_n_f32(0); }
  static inline F add(F a, F b) { return vaddq_f32(a, b); }
  static inline F sub(F a, F b) { return vsubq_f32(a, b); }
  static inline F mul(F a, F b) { return vmulq_f32(a, b); }
  static inline F div(F a, F b) { return vdivq_f32(a, b); }
  static inline F sqrt(F a) { return vsqrtq_f32(a); }
  static inline F bitXor(F a, F b) {
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
  }
  static inline F whereAbove(F a, F b, F x) {
    return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(a, b), vreinterpretq_u32_f32(x)));
  }
  static inline unsigned findInBucket(const std::uint64_t* bucket, std::uint64_t tag) {
    const uint64x2_t wanted = vdupq_n_u64(tag);
    const auto pair = [&](unsigned i) { return vmovn_u64(vceqq_u64(vld1q_u64(bucket + i), wanted)); };
    const uint16x4_t first = vmovn_u32(vcombine_u32(pair(0), pair(2))),
                     second = vmovn_u32(vcombine_u32(pair(4), pair(6)));
    static constexpr std::uint16_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(vcombine_u16(first, second), vld1q_u16(kBits)));
  }
};

}  // namespace

extern constinit const RowKernels kNeonRows = Rows<V128>::table();

}  // namespace kintsugi

#endif
