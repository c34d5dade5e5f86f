// The checksum of pages of parquet: CRC-32 as gzip has it, eight bytes at a time.
#pragma once
#include <array>

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

}  // namespace kintsugi
