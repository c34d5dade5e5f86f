#include "engine/batch.h"

#include <algorithm>
#include <bit>
#include <new>

namespace kintsugi {

/** A batch larger than this gives its memory back at the flush. */
static constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

bool OpenBatch::expect(std::size_t more) {
  const std::size_t rows = rowSlots_.size() + more;
  if (rows > rows_) {
    const std::size_t room = std::max(rows, rows_ * 2);
    std::unique_ptr<std::uint8_t[]> larger(new (std::nothrow) std::uint8_t[room * stride_]);
    if (!larger) return false;
    if (!rowSlots_.empty()) std::memcpy(larger.get(), deltas(), rowSlots_.size() * stride_);
    deltas_ = std::move(larger);
    rows_ = room;
  }
  if (rows * 2 > cellCount_) growCells(rows);
  return true;
}

void OpenBatch::growCells(std::size_t rows) {
  const std::size_t count = std::bit_ceil(std::max<std::size_t>(rows, 16) * 2);
  if (cells_.size() < count) cells_.resize(count);
  std::fill_n(cells_.begin(), count, kNoSlot);
  cellCount_ = static_cast<std::uint32_t>(count);
  cellShift_ = static_cast<std::uint32_t>(32 - std::countr_zero(count));
  for (std::uint32_t place = 0; place < rowSlots_.size(); place++) {
    std::uint32_t i = cellOf(rowSlots_[place]);
    while (cells_[i] != kNoSlot) i = (i + 1) & (cellCount_ - 1);
    cells_[i] = place;
  }
}

void OpenBatch::changeKeys(const std::vector<std::uint32_t>& slots,
                           const std::vector<std::uint64_t>& changed) {
  std::vector<bool> there(slots.size());
  for (std::size_t i = 0; i < keySlots_.size(); i++) {
    const auto found = std::lower_bound(slots.begin(), slots.end(), keySlots_[i]);
    if (found == slots.end() || *found != keySlots_[i]) continue;
    const auto place = static_cast<std::size_t>(found - slots.begin());
    keyXor_[i] ^= changed[place];
    there[place] = true;
  }
  for (std::size_t i = 0; i < slots.size(); i++) {
    if (!there[i]) addKey(slots[i], changed[i]);
  }
}

static std::uint8_t* put(std::uint8_t* to, const void* from, std::size_t bytes) {
  const std::size_t padded = alignUp(bytes, 8);
  if (bytes) std::memcpy(to, from, bytes);
  std::memset(to + bytes, 0, padded - bytes);
  return to + padded;
}

std::uint8_t* OpenBatch::write(std::uint8_t* head, std::uint8_t* arrays, std::uint32_t table,
                               std::uint32_t extent) const {
  const auto keys = static_cast<std::uint32_t>(keySlots_.size()),
             rows = static_cast<std::uint32_t>(rowSlots_.size());
  const std::uint32_t header[6] = {table, stride_, extent, keys, rows, 0};
  std::memcpy(head, header, sizeof header);
  arrays = put(arrays, keySlots_.data(), keySlots_.size() * 4);
  arrays = put(arrays, keyXor_.data(), keyXor_.size() * 8);
  arrays = put(arrays, rowSlots_.data(), rowSlots_.size() * 4);
  const std::size_t bytes = rowSlots_.size() * stride_;
  if (bytes) std::memcpy(arrays, deltas(), bytes);
  return arrays + bytes;
}

void OpenBatch::clear() {
  keySlots_.clear();
  keyXor_.clear();
  rowSlots_.clear();
  cellCount_ = 0;  // `expect` makes them anew, as many as the next batch needs
  if (rows_ * stride_ <= kKeptBytes) return;
  deltas_.reset();
  rows_ = 0;
}

}  // namespace kintsugi
