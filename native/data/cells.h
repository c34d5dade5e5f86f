// Values of cells of text: integers, hexadecimal digits, decimal numbers, and the hash of a text. A function
// that answers false does not take the cell. It may be wrong, or only unusual: src/data decides.
#pragma once
#include "engine/bytes.h"
#include "kernels/key_hash.h"

namespace kintsugi {

namespace swar {

inline constexpr std::uint64_t kZeros = 0x3030303030303030, kHigh = 0x8080808080808080,
                               kLow = 0x7F7F7F7F7F7F7F7F;

inline constexpr std::uint64_t each(std::uint8_t byte) { return 0x0101010101010101 * byte; }

/** Masks of the last n of 8 bytes, n <= 8. */
inline constexpr std::uint64_t kLast[9] = {0,
                                           0xFF00000000000000,
                                           0xFFFF000000000000,
                                           0xFFFFFF0000000000,
                                           0xFFFFFFFF00000000,
                                           0xFFFFFFFFFF000000,
                                           0xFFFFFFFFFFFF0000,
                                           0xFFFFFFFFFFFFFF00,
                                           0xFFFFFFFFFFFFFFFF};

/** data[begin..end), at most 8 bytes, with zeros ('0') before them: eight digits, the first one lowest. */
inline std::uint64_t digits(const std::uint8_t* data, std::size_t begin, std::size_t end) {
  const std::uint64_t last = kLast[end - begin];
  std::uint64_t word = 0;
  if (end >= 8) {
    word = loadAt<std::uint64_t>(data + end - 8);
  } else if (end > begin) {
    std::memcpy(reinterpret_cast<std::uint8_t*>(&word) + 8 - (end - begin), data + begin, end - begin);
  }
  return (word & last) | (kZeros & ~last);
}

/** Bytes of `word` that are 0 to 9: their high bits. */
inline std::uint64_t decimalBits(std::uint64_t word) {
  const std::uint64_t x = word ^ kZeros;
  return ~(((x & kLow) + each(0x76)) | x) & kHigh;
}

inline bool isDecimal(std::uint64_t word) { return decimalBits(word) == kHigh; }

/** The number of eight decimal digits. */
inline std::uint32_t decimal(std::uint64_t word) {
  word -= kZeros;
  word = word * 10 + (word >> 8);
  const std::uint64_t pairs = 0x000000FF000000FF;
  return static_cast<std::uint32_t>(
      ((word & pairs) * 0x000F424000000064 + ((word >> 16) & pairs) * 0x0000271000000001) >> 32);
}

inline bool isHex(std::uint64_t word) {
  // a to f, of either case, become 1 to 6.
  const std::uint64_t x = (word | each(0x20)) ^ each(0x60), low = x & kLow;
  const std::uint64_t letters = (low + kLow) & ~(low + each(0x79)) & ~x & kHigh;
  return (decimalBits(word) | letters) == kHigh;
}

/** The number of eight hexadecimal digits. */
inline std::uint32_t hex(std::uint64_t word) {
  word = (word & each(0x0F)) + 9 * ((word >> 6) & each(1));
  word = (word << 4 | word >> 8) & 0x00FF00FF00FF00FF;
  word = (word << 8 | word >> 16) & 0x0000FFFF0000FFFF;
  return static_cast<std::uint32_t>(word << 16 | word >> 32);
}

}  // namespace swar

/** Bytes of a text, [begin, end) of `data`. */
struct Cell {
  const std::uint8_t* data = nullptr;
  std::size_t begin = 0, end = 0;

  std::size_t size() const { return end - begin; }
  const std::uint8_t* first() const { return data + begin; }
  bool empty() const { return begin == end; }
  bool is(const char* text, std::size_t n) const { return size() == n && std::memcmp(first(), text, n) == 0; }
};

/** Up to 20 decimal digits without a sign, below 2^64. */
inline bool readDigits(const Cell& cell, std::uint64_t& out) {
  const std::size_t n = cell.size();
  if (n >= 1 && n <= 8) {
    const std::uint64_t word = swar::digits(cell.data, cell.begin, cell.end);
    out = swar::decimal(word);
    return swar::isDecimal(word);
  }
  if (n < 1 || n > 20) return false;
  std::uint64_t value = 0;
  for (std::size_t i = cell.begin; i < cell.end; i++) {
    const unsigned digit = cell.data[i] - unsigned{'0'};
    if (digit > 9 || value > (~std::uint64_t{0} - digit) / 10) return false;
    value = value * 10 + digit;
  }
  out = value;
  return true;
}

/** Keys that no value has: that of a missing value, and the one that tables reserve, which is also -1. */
inline bool isReserved(std::uint64_t key) { return key == kMissingBit || key == ~std::uint64_t{0}; }

/** An integer from -2^63 to 2^64 - 1; a negative one becomes its two's complement. */
inline bool readInteger(const Cell& cell, std::uint64_t& out) {
  if (cell.empty() || *cell.first() != '-') return readDigits(cell, out) && !isReserved(out);
  if (!readDigits({cell.data, cell.begin + 1, cell.end}, out) || out > kMissingBit) return false;
  out = -out;
  return !isReserved(out);
}

/** 1 to 16 hexadecimal digits. */
inline bool readHash(const Cell& cell, std::uint64_t& out) {
  const std::size_t n = cell.size();
  if (n < 1 || n > 16) return false;
  const std::size_t middle = n > 8 ? cell.end - 8 : cell.begin;
  const std::uint64_t low = swar::digits(cell.data, middle, cell.end);
  if (!swar::isHex(low)) return false;
  out = swar::hex(low);
  if (n <= 8) return true;
  const std::uint64_t high = swar::digits(cell.data, cell.begin, middle);
  out |= std::uint64_t{swar::hex(high)} << 32;
  return swar::isHex(high);
}

/** As `readDecimal`, which leaves any but short integers to it. */
bool readAnyDecimal(const Cell& cell, double& out);

/** [+-] digits, perhaps with a point, perhaps with an exponent; the double that is nearest to it. */
inline bool readDecimal(const Cell& cell, double& out) {
  const std::size_t n = cell.size();
  if (n >= 1 && n <= 8) {
    const std::uint64_t word = swar::digits(cell.data, cell.begin, cell.end);
    if (swar::isDecimal(word)) {
      out = swar::decimal(word);
      return true;
    }
  }
  return readAnyDecimal(cell, out);
}

/** Whether bytes are UTF-8 as TextDecoder takes it. */
bool isUtf8(const std::uint8_t* bytes, std::size_t size);

}  // namespace kintsugi
