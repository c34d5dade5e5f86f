// Small open-addressing maps for the work of one call or one batch. They keep their memory between uses and
// are emptied by raising a generation number, so that a small batch after a large one costs what the small
// one needs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/hash.h"

namespace kintsugi {

template <class Key>
class ScratchMap {
 public:
  /** Empties the map; room for `count` keys comes at once. */
  void reset(std::size_t count) {
    size_ = 0;
    if (++generation_ == 0) {
      entries_.clear();
      generation_ = 1;
    }
    if (entries_.size() < count * 2) entries_.assign(roomFor(count), Entry{});
  }

  std::size_t size() const { return size_; }

  /** The number of `key`: what it got when first added, counting from 0. `added` says whether that was now.
   */
  std::uint32_t add(Key key, bool& added) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    Entry& entry = locate(key);
    added = entry.generation != generation_;
    if (added) entry = {key, static_cast<std::uint32_t>(size_++), generation_};
    return entry.value;
  }

 private:
  struct Entry {
    Key key{};
    std::uint32_t value = 0;
    std::uint32_t generation = 0;
  };

  static std::size_t roomFor(std::size_t count) {
    std::size_t room = 16;
    while (room < count * 2) room *= 2;
    return room;
  }

  Entry& locate(Key key) {
    const std::size_t mask = entries_.size() - 1;
    std::size_t i = indexHash(key) & mask;
    while (entries_[i].generation == generation_ && entries_[i].key != key) i = (i + 1) & mask;
    return entries_[i];
  }

  void grow() {
    std::vector<Entry> old(roomFor(size_ + 1) * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.generation == generation_) locate(entry.key) = entry;
    }
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  std::uint32_t generation_ = 1;  // never that of an unused entry
};

}  // namespace kintsugi
