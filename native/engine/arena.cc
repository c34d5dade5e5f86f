#include "engine/arena.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "engine/bytes.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace kintsugi {

static constexpr std::size_t kHugePage = std::size_t{2} << 20;
/** A mapping is an entry in a list that the kernel limits to some 65,000, so small columns do without. */
static constexpr std::size_t kMappedFrom = std::size_t{1} << 20;
/** Below this, 2 MiB pages would waste more memory than they save in address translation. */
static constexpr std::size_t kHugeFrom = std::size_t{4} << 20;
/** Small rows do not straddle cache lines. */
static constexpr std::size_t kAlignment = 64;

static std::uint8_t* alignedTo(void* p, std::size_t alignment) {
  return reinterpret_cast<std::uint8_t*>(alignUp(reinterpret_cast<std::uintptr_t>(p), alignment));
}

/** `room` bytes of addresses from a multiple of 2 MiB on, so that 2 MiB pages stay whole when page tables
 * move. */
static std::uint8_t* mapAligned(std::size_t room, int protection) {
  const std::size_t size = room + kHugePage;
  void* at = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::uint8_t*>(at);
  std::uint8_t* data = alignedTo(at, kHugePage);
  if (data != start) munmap(start, static_cast<std::size_t>(data - start));
  munmap(data + room, static_cast<std::size_t>(start + size - (data + room)));
  return data;
}

Column::~Column() { release(); }

void Column::release() {
  if (heap_) {
    std::free(heap_);
  } else if (data_) {
    munmap(data_, room_);
  }
}

bool Column::makeRoom(std::size_t bytes) {
  if (bytes <= room_) return true;
  const std::size_t room = std::bit_ceil(bytes);
  return room < kMappedFrom ? growOnHeap(room) : growMapping(room);
}

// By calloc, because fresh memory is zero already and need not be touched.
bool Column::growOnHeap(std::size_t room) {
  void* heap = std::calloc(1, room + kAlignment);
  if (!heap) return false;
  std::uint8_t* data = alignedTo(heap, kAlignment);
  if (bytes()) std::memcpy(data, data_, bytes());
  release();
  heap_ = heap;
  data_ = data;
  room_ = room;
  return true;
}

bool Column::growMapping(std::size_t room) {
#ifdef MREMAP_FIXED
  if (data_ && !heap_) {
    // In place where the addresses behind are free.
    if (mremap(data_, room_, room, 0) == MAP_FAILED) {
      std::uint8_t* data = mapAligned(room, PROT_NONE);
      if (!data) return false;
      // A failed mremap may already have unmapped `data`, and another thread may have mapped these addresses
      // since. So they are not unmapped here. They stay reserved only if the kernel has no room for another
      // mapping.
      if (mremap(data_, room_, room, MREMAP_MAYMOVE | MREMAP_FIXED, data) == MAP_FAILED) return false;
      data_ = data;
    }
    room_ = room;
    return true;
  }
#endif
  std::uint8_t* data = mapAligned(room, PROT_READ | PROT_WRITE);
  if (!data) return false;
  if (bytes()) std::memcpy(data, data_, bytes());
  release();
  heap_ = nullptr;
  data_ = data;
  room_ = room;
  huge_ = false;
  return true;
}

void Column::grow(std::size_t bytes) {
  if (bytes <= charge_.bytes()) return;
  charge_.set(bytes);
#ifdef MADV_HUGEPAGE
  if (!huge_ && bytes >= kHugeFrom) {
    huge_ = true;
    madvise(data_, room_, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace kintsugi
