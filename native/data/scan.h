// Where cells and lines end: 64 bytes of text at a time become a mask with a bit for every byte that ends
// one. The vector code is what every processor of its kind has (SSE2, NEON).
#pragma once
#include <bit>

#include "engine/bytes.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace kintsugi {

inline constexpr std::size_t kNowhere = ~std::size_t{0};

/** Bit i: p[i] is a newline, or `a`, or `b`. The reference. */
inline std::uint64_t marksScalar(const std::uint8_t* p, std::uint8_t a, std::uint8_t b) {
  std::uint64_t mask = 0;
  for (unsigned i = 0; i < 64; i++) {
    mask |= std::uint64_t{p[i] == '\n' || p[i] == a || p[i] == b} << i;
  }
  return mask;
}

#if defined(__SSE2__)
inline std::uint64_t marksVector(const std::uint8_t* p, std::uint8_t a, std::uint8_t b) {
  const __m128i newline = _mm_set1_epi8('\n'), first = _mm_set1_epi8(static_cast<char>(a)),
                second = _mm_set1_epi8(static_cast<char>(b));
  std::uint64_t mask = 0;
  for (unsigned i = 0; i < 4; i++) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i);
    const __m128i found = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, newline), _mm_cmpeq_epi8(x, first)),
                                       _mm_cmpeq_epi8(x, second));
    mask |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(found))) << (16 * i);
  }
  return mask;
}
#elif defined(__ARM_NEON)
inline std::uint64_t marksVector(const std::uint8_t* p, std::uint8_t a, std::uint8_t b) {
  static const std::uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t newline = vdupq_n_u8('\n'), first = vdupq_n_u8(a), second = vdupq_n_u8(b),
                   bits = vld1q_u8(kBits);
  uint8x16_t parts[4];
  for (unsigned i = 0; i < 4; i++) {
    const uint8x16_t x = vld1q_u8(p + 16 * i);
    const uint8x16_t found =
        vorrq_u8(vorrq_u8(vceqq_u8(x, newline), vceqq_u8(x, first)), vceqq_u8(x, second));
    parts[i] = vandq_u8(found, bits);
  }
  const uint8x16_t sums = vpaddq_u8(vpaddq_u8(parts[0], parts[1]), vpaddq_u8(parts[2], parts[3]));
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}
#else
inline std::uint64_t marksVector(const std::uint8_t* p, std::uint8_t a, std::uint8_t b) {
  return marksScalar(p, a, b);
}
#endif

/** The places of newlines and two other bytes in a text, one after the other. */
template <bool kVector>
class Marks {
 public:
  Marks(View text, std::size_t from, std::uint8_t a, std::uint8_t b)
      : data_(text.data), size_(text.size), block_(from), a_(a), b_(b) {
    load();
  }

  /** kNowhere when there is none left. */
  std::size_t next() {
    while (mask_ == 0) {
      if (size_ - block_ <= 64) return kNowhere;
      block_ += 64;
      load();
    }
    const std::size_t at = block_ + static_cast<unsigned>(std::countr_zero(mask_));
    mask_ &= mask_ - 1;
    return at;
  }

 private:
  void load() {
    if (block_ < size_ && size_ - block_ >= 64) {
      mask_ = marks(data_ + block_);
      return;
    }
    std::uint8_t rest[64] = {};
    const std::size_t left = block_ < size_ ? size_ - block_ : 0;
    if (left) std::memcpy(rest, data_ + block_, left);
    mask_ = marks(rest);
    // Bytes after the end of the text are no marks, also where zero is one.
    mask_ &= (std::uint64_t{1} << left) - 1;
  }
  std::uint64_t marks(const std::uint8_t* p) const {
    return kVector ? marksVector(p, a_, b_) : marksScalar(p, a_, b_);
  }

  const std::uint8_t* data_;
  std::size_t size_, block_;
  std::uint64_t mask_ = 0;
  std::uint8_t a_, b_;
};

}  // namespace kintsugi
