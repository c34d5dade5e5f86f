#include "engine/accumulators.h"

#include <algorithm>
#include <new>
#include <utility>

namespace kintsugi {

/** Bytes of memory that an accumulator costs besides its content, about. */
static constexpr std::size_t kOverhead = 128;

bool BlockBytes::assign(View start, std::size_t size) {
  bytes_.reset(new (std::nothrow) std::uint8_t[size]);
  if (!bytes_) return false;
  size_ = size;
  std::copy_n(start.data, start.size, bytes_.get());
  std::fill(bytes_.get() + start.size, bytes_.get() + size, std::uint8_t{0});
  return true;
}

Accumulator* Accumulators::create(std::uint64_t block, View start, std::size_t bytes) {
  BlockBytes content;
  if (!content.assign(start, bytes)) return nullptr;
  places_[block] = active_.size();
  Accumulator& accumulator = active_.emplace_back();
  accumulator.block = block;
  accumulator.bytes = std::move(content);
  charge_.set(charge_.bytes() + bytes + kOverhead);
  return &accumulator;
}

void Accumulators::complete(Accumulator& accumulator) {
  const std::size_t place = static_cast<std::size_t>(&accumulator - active_.data());
  places_.erase(accumulator.block);
  completed_.push_back(std::move(accumulator));
  if (place + 1 != active_.size()) {
    active_[place] = std::move(active_.back());
    places_[active_[place].block] = place;
  }
  active_.pop_back();
}

std::vector<Accumulator> Accumulators::takeCompleted() {
  for (const Accumulator& a : completed_) charge_.set(charge_.bytes() - a.bytes.size() - kOverhead);
  return std::exchange(completed_, {});
}

void Accumulators::nextPending(std::uint32_t member, std::size_t max, BlockPairs& out) {
  std::size_t& cursor = cursors_[member];
  for (std::size_t seen = 0; seen < active_.size() && max; seen++) {
    if (cursor >= active_.size()) cursor = 0;
    const Accumulator& accumulator = active_[cursor++];
    if (!(accumulator.pending >> member & 1)) continue;
    append(out, blockOf(accumulator.block));
    max--;
  }
}

void Accumulators::clear() {
  active_.clear();
  places_.clear();
  completed_.clear();
  charge_.set(0);
}

}  // namespace kintsugi
