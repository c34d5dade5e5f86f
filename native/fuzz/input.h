// Shared by all fuzz targets: reading choices from the fuzzer's bytes. Past the end everything is zero, so
// every input is a valid one and shorter inputs are simpler stories.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "engine/bytes.h"
#include "test/support.h"

namespace kintsugi::fuzz {

using test::answerOf;
using test::Bytes;
using test::flushed;
using test::list;
using test::scheduled;
using test::tableSpec;
using test::view;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint16_t u16() { return number<std::uint16_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  std::uint32_t below(std::uint32_t n) { return u8() % n; }
  /** A copy of its own size, so that the sanitizer sees the first byte read beyond it. */
  Bytes bytes(std::size_t size) {
    const std::size_t take = std::min(size, left_);
    Bytes copy(data_, data_ + take);
    advance(take);
    return copy;
  }
  Bytes rest() { return bytes(left_); }
  /** `size` bytes that repeat the next few of the input: bulk content does not have to be invented. */
  Bytes filled(std::size_t size) {
    const Bytes pattern = bytes(4);
    Bytes all(size);
    for (std::size_t i = 0; i < size && !pattern.empty(); i++) all[i] = pattern[i % pattern.size()];
    return all;
  }

 private:
  template <class T>
  T number() {
    T value = 0;
    const std::size_t take = std::min(sizeof(T), left_);
    if (take) std::memcpy(&value, data_, take);
    advance(take);
    return value;
  }
  void advance(std::size_t n) {
    data_ += n;
    left_ -= n;
  }

  const std::uint8_t* data_;
  std::size_t left_;
};

/** Blocks of few tables, mostly near the beginning, sometimes anywhere. */
inline BlockPairs readBlocks(Input& in) {
  BlockPairs blocks;
  for (std::uint32_t n = in.below(9); n; n--) {
    const std::uint32_t where = in.u8();
    const bool wild = where >= 0xF0;
    blocks.push_back(wild ? in.u32() : where % 8);
    blocks.push_back(wild ? in.u32() : in.below(12));
  }
  return blocks;
}

}  // namespace kintsugi::fuzz
