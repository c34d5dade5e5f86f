// The hash that makes keys of texts, and of numbers in tables that several columns share.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kintsugi {

/** The high bit of a key: only the key of a missing value has it. */
inline constexpr std::uint64_t kMissingBit = std::uint64_t{1} << 63;

/** The hash of src/data/keys.ts, bit for bit. */
class KeyHash {
 public:
  /** The second half of the state at the beginning; the first one is the seed. */
  static constexpr std::uint32_t kBegin = 0x5BD1E995u;
  /** The words that end a hash are this one and those above it. */
  static constexpr std::uint32_t kEnd = 0x2545F491u, kEndWords = 4;
  static constexpr std::uint32_t kFirst = 0x9E3779B1u, kSecond = 0x85EBCA6Bu;

  explicit KeyHash(std::uint32_t seed) : first_(seed) {}

  /** Takes a word into a state. */
  static void absorb(std::uint32_t& first, std::uint32_t& second, std::uint32_t word) {
    const std::uint32_t mixed = (first ^ word) * kFirst;
    first = std::rotl(mixed, 13) + second;
    const std::uint32_t other = (second ^ first) * kSecond;
    second = std::rotl(other, 17);
  }
  /** The key that a state is, when the words that end it were taken. */
  static std::uint64_t key(std::uint32_t first, std::uint32_t second) {
    return (std::uint64_t{second} << 32 | first) & ~kMissingBit;
  }

  void absorb(std::uint32_t word) { absorb(first_, second_, word); }
  void text(const std::uint8_t* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; i++) absorb(bytes[i]);
    absorb(static_cast<std::uint32_t>(size) ^ 0x80000000u);
  }
  std::uint64_t end() {
    for (std::uint32_t word = 0; word < kEndWords; word++) absorb(kEnd + word);
    return key(first_, second_);
  }

 private:
  std::uint32_t first_, second_ = kBegin;
};

}  // namespace kintsugi
