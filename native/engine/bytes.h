// Reading and writing little-endian numbers at any address. Sections arrive inside larger messages, so
// nothing in them can be assumed to be aligned; the compiler turns these copies into plain moves.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace kintsugi {

static_assert(std::endian::native == std::endian::little, "the wire and the slabs are little-endian");

template <class T>
inline T loadAt(const std::uint8_t* p, std::size_t i = 0) {
  T value;
  std::memcpy(&value, p + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
inline void storeAt(std::uint8_t* p, std::size_t i, T value) {
  std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

inline constexpr std::size_t alignUp(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/** Bytes that somebody else owns. */
struct View {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

/** Where an answer goes: called once with the size, returns memory to fill, or nullptr to give up. */
using Allocate = std::function<std::uint8_t*(std::size_t)>;

}  // namespace kintsugi
