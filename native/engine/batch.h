// The open batch of one table: deltas since the last flush. XOR deltas of the same row add, so a row that is
// pushed a hundred times between two flushes travels once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/bytes.h"
#include "engine/scratch.h"

namespace kintsugi {

class OpenBatch {
 public:
  explicit OpenBatch(std::uint32_t stride) : stride_(stride) {}

  bool empty() const { return keySlots_.empty() && rowSlots_.empty(); }

  /** Before adding `rows` rows: at most one move of what is there. */
  void expect(std::size_t rows) {
    const std::size_t bytes = rowXor_.size() + rows * stride_;
    if (rowXor_.capacity() < bytes) rowXor_.reserve(std::max(bytes, rowXor_.capacity() * 2));
  }

  void addKey(std::uint32_t slot, std::uint64_t changed) {
    keySlots_.push_back(slot);
    keyXor_.push_back(changed);
  }

  /** delta ^= before ^ after */
  void addRow(std::uint32_t slot, const std::uint8_t* before, const std::uint8_t* after) {
    bool added;
    const std::size_t at = std::size_t{positions_.add(slot, added)} * stride_;
    if (added) {
      rowSlots_.push_back(slot);
      rowXor_.resize(at + stride_);
    }
    std::uint8_t* delta = rowXor_.data() + at;
    for (std::uint32_t i = 0; i < stride_; i += 8) {
      const auto change = loadAt<std::uint64_t>(before + i) ^ loadAt<std::uint64_t>(after + i);
      storeAt(delta + i, 0, loadAt<std::uint64_t>(delta + i) ^ change);
    }
  }

  /** Size of the arrays in a DELTA section. */
  std::size_t bytes() const {
    return alignUp(keySlots_.size() * 4, 8) + keySlots_.size() * 8 + alignUp(rowSlots_.size() * 4, 8) +
           rowXor_.size();
  }

  /** Writes the header of the table and its arrays (padding included) and returns the end of the arrays. */
  std::uint8_t* write(std::uint8_t* head, std::uint8_t* arrays, std::uint32_t table,
                      std::uint32_t extent) const {
    const auto keys = static_cast<std::uint32_t>(keySlots_.size()),
               rows = static_cast<std::uint32_t>(rowSlots_.size());
    const std::uint32_t header[6] = {table, stride_, extent, keys, rows, 0};
    std::memcpy(head, header, sizeof header);
    arrays = put(arrays, keySlots_.data(), keySlots_.size() * 4);
    arrays = put(arrays, keyXor_.data(), keyXor_.size() * 8);
    arrays = put(arrays, rowSlots_.data(), rowSlots_.size() * 4);
    return put(arrays, rowXor_.data(), rowXor_.size());
  }

  void clear() {
    keySlots_.clear();
    keyXor_.clear();
    rowSlots_.clear();
    if (rowXor_.capacity() > kKeptBytes) rowXor_ = {};
    rowXor_.clear();
    positions_.reset(0);
  }

 private:
  /** A batch larger than this gives its memory back at the flush. */
  static constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

  static std::uint8_t* put(std::uint8_t* to, const void* from, std::size_t bytes) {
    const std::size_t padded = alignUp(bytes, 8);
    if (bytes) std::memcpy(to, from, bytes);
    std::memset(to + bytes, 0, padded - bytes);
    return to + padded;
  }

  std::uint32_t stride_;
  std::vector<std::uint32_t> keySlots_;
  std::vector<std::uint64_t> keyXor_;
  std::vector<std::uint32_t> rowSlots_;
  std::vector<std::uint8_t> rowXor_;
  ScratchMap<std::uint32_t> positions_;
};

}  // namespace kintsugi
