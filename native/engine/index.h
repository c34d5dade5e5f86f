// Key to slot: open addressing with buckets of eight tags, one cache line each, at most 65 % full. A tag is
// key + 1, so 0 means free and key 0 is legal. A bucket fills from the front and its last tag tells whether
// the search may stop; `remove` keeps it so. Not coded by parity: it is rebuilt from the keys column.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/memory.h"

namespace kintsugi {

class Index {
 public:
  explicit Index(Memory& memory) : charge_(memory) {}
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return charge_.bytes(); }
  /** Slot of a tag, or kNone. */
  std::uint32_t find(std::uint64_t tag) const;
  /** slots[i] = find(tags[i]), with prefetch. */
  void findMany(const std::uint64_t* tags, std::size_t count, std::uint32_t* slots) const;
  /** The tag must not be there. Grows by itself; call `reserve` first to grow at most once. */
  void insert(std::uint64_t tag, std::uint32_t slot);
  /** The slot of a tag, which is `slot` if it was not there. `reserve` came before. */
  std::uint32_t enter(std::uint64_t tag, std::uint32_t slot);
  /** Removes a tag, if its slot is `slot`. */
  void remove(std::uint64_t tag, std::uint32_t slot);
  /** Before `enter` of this tag. */
  void prefetch(std::uint64_t tag) const;
  void reserve(std::size_t count);
  /** Finds the memory that `reserve(count)` or a `build` of so many tags would need, without a visible
   * change. False if the system refuses. */
  bool makeRoom(std::size_t count);
  /** Enters tags[i] -> i for all of a keys column; zeros are free slots, and of equal tags the first one
   * stays. */
  void build(const std::uint64_t* tags, std::uint32_t count);
  /** Keys that it may have without growing. */
  std::size_t capacity() const { return buckets_ * 8 * kFullPart / 100; }
  /** Bytes that `reserve(count)` would add. */
  std::size_t growth(std::size_t count) const;
  void clear();

 private:
  struct Freer {
    void operator()(void* p) const;
  };
  struct alignas(64) Bucket {
    std::uint64_t tags[8];
  };
  struct Slots {
    std::uint32_t of[8];
  };

  /** Memory for the buckets of an index. */
  struct Arrays {
    std::unique_ptr<Bucket[], Freer> tags;
    std::unique_ptr<Slots[], Freer> slots;
    std::size_t buckets = 0;
  };

  /** The index grows where more of its places, in a hundred, would be taken. */
  static constexpr std::size_t kFullPart = 65;
  static Arrays allocate(std::size_t buckets);
  std::size_t bucketsFor(std::size_t count) const;
  void rehash(std::size_t buckets);
  void place(std::uint64_t tag, std::uint32_t slot);

  Charge charge_;
  std::unique_ptr<Bucket[], Freer> tags_;
  std::unique_ptr<Slots[], Freer> slots_;
  std::size_t buckets_ = 0;  // a power of two, or 0
  Arrays spare_;             // from `makeRoom`, for the next `rehash`
  std::size_t size_ = 0;
};

}  // namespace kintsugi
