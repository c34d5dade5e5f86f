// Checksums of data files. Pages of parquet: CRC-32 as gzip has it, eight bytes at a time. Frames of zstd:
// XXH64 of their content (RFC 8878, section 3.1.1), of which a frame has the lower half.
#pragma once
#include <algorithm>
#include <array>
#include <bit>

#include "engine/bytes.h"

namespace kintsugi {

/** Table i: the CRC of a byte that i zero bytes follow. */
inline constexpr auto kCrcTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; byte++) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    tables[0][byte] = crc;
  }
  for (std::size_t i = 1; i < tables.size(); i++) {
    for (std::size_t byte = 0; byte < 256; byte++) {
      const std::uint32_t before = tables[i - 1][byte];
      tables[i][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}();

inline std::uint32_t crc32(View bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  const std::uint8_t *at = bytes.data, *const end = at + bytes.size;
  for (; end - at >= 8; at += 8) {
    const std::uint64_t word = loadAt<std::uint64_t>(at) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; i++) crc ^= kCrcTables[7 - i][word >> (8 * i) & 0xFF];
  }
  for (; at < end; at++) crc = crc >> 8 ^ kCrcTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

/** XXH64 with seed 0 of bytes that come in pieces. All zeros: nothing has come. */
class Xxh64 {
 public:
  void add(View bytes) {
    if (total_ == 0) sums_ = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    const std::uint8_t *at = bytes.data, *const end = at + bytes.size;
    std::size_t kept = total_ % kStripe;
    total_ += bytes.size;
    if (kept > 0) {
      const std::size_t more = std::min(kStripe - kept, bytes.size);
      std::copy_n(at, more, rest_.data() + kept);
      at += more;
      kept += more;
      if (kept < kStripe) return;
      stripe(rest_.data());
    }
    for (; end - at >= static_cast<std::ptrdiff_t>(kStripe); at += kStripe) stripe(at);
    std::copy(at, end, rest_.data());
  }

  std::uint64_t digest() const {
    std::uint64_t hash = kPrime5;
    if (total_ >= kStripe) {
      hash =
          std::rotl(sums_[0], 1) + std::rotl(sums_[1], 7) + std::rotl(sums_[2], 12) + std::rotl(sums_[3], 18);
      for (const std::uint64_t sum : sums_) hash = (hash ^ round(0, sum)) * kPrime1 + kPrime4;
    }
    hash += total_;
    const std::uint8_t *at = rest_.data(), *const end = at + total_ % kStripe;
    for (; end - at >= 8; at += 8)
      hash = std::rotl(hash ^ round(0, loadAt<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
    if (end - at >= 4) {
      hash = std::rotl(hash ^ loadAt<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
      at += 4;
    }
    for (; at < end; at++) hash = std::rotl(hash ^ *at * kPrime5, 11) * kPrime1;
    hash = (hash ^ hash >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
  }

 private:
  static constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                                 kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                                 kPrime5 = 0x27D4EB2F165667C5;
  static constexpr std::size_t kStripe = 32;

  static std::uint64_t round(std::uint64_t sum, std::uint64_t lane) {
    return std::rotl(sum + lane * kPrime2, 31) * kPrime1;
  }

  void stripe(const std::uint8_t* at) {
    for (std::size_t i = 0; i < sums_.size(); i++) sums_[i] = round(sums_[i], loadAt<std::uint64_t>(at, i));
  }

  std::uint64_t total_ = 0;
  std::array<std::uint64_t, 4> sums_{};
  std::array<std::uint8_t, kStripe> rest_{};
};

}  // namespace kintsugi
