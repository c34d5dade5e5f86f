// Active recoveries of a sink (rules 14 to 17 and 23, 24): for a block, R starts as a copy of P and every
// member that has the block is subtracted; what is left is the sum over the members that lack it. Soft state:
// any change of the group drops all of it. Accumulators live in a dense array with a map from block to place,
// so that a sweep can go on where it was.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/blocks.h"
#include "engine/bytes.h"
#include "engine/memory.h"

namespace kintsugi {

/** The bytes of one block. The system may refuse them, which a vector cannot say. */
class BlockBytes {
 public:
  /** `start`, and zeros after it. False if the system refuses. */
  bool assign(View start, std::size_t size);
  std::uint8_t* data() { return bytes_.get(); }
  const std::uint8_t* begin() const { return bytes_.get(); }
  const std::uint8_t* end() const { return bytes_.get() + size_; }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::size_t size_ = 0;
};

struct Accumulator {
  std::uint64_t block = 0;
  std::uint32_t pending = 0;  // bit per member; a member is exactly one of pending, lacking, done
  std::uint32_t lacking = 0;
  std::uint32_t requesters = 0;
  bool checked = false;
  bool ok = false;  // at completion: the sink includes the block of every lacking member
  BlockBytes bytes;

  bool done(std::uint32_t member) const { return !((pending | lacking) >> member & 1); }
};

class Accumulators {
 public:
  explicit Accumulators(Memory& memory) : charge_(memory) {}

  bool empty() const { return active_.empty(); }
  std::size_t size() const { return active_.size(); }
  std::size_t bytes() const { return charge_.bytes(); }
  Accumulator* find(std::uint64_t block) {
    if (active_.empty()) return nullptr;
    const auto found = places_.find(block);
    return found == places_.end() ? nullptr : &active_[found->second];
  }
  /** With the bytes of `start`, and zeros after them. nullptr if the system refuses memory. */
  Accumulator* create(std::uint64_t block, View start, std::size_t bytes);
  /** Moves the accumulator to the completed ones. This invalidates all pointers to accumulators. */
  void complete(Accumulator& accumulator);
  std::vector<Accumulator> takeCompleted();
  void nextPending(std::uint32_t member, std::size_t max, BlockPairs& out);
  void clear();

 private:
  Charge charge_;
  std::vector<Accumulator> active_;
  std::unordered_map<std::uint64_t, std::size_t> places_;
  std::vector<Accumulator> completed_;
  std::size_t cursors_[32] = {};
};

}  // namespace kintsugi
