#include "engine/arena.h"

#include <sys/mman.h>

#include "engine/bytes.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace kintsugi {

static constexpr std::size_t kHugePage = std::size_t{2} << 20;
static constexpr std::size_t kSmallestReserve = std::size_t{16} << 20;
/** Below this, 2 MiB pages would waste more memory than they save in address translation. */
static constexpr std::size_t kHugeFrom = std::size_t{4} << 20;

Column::~Column() {
  if (mapping_) munmap(mapping_, mapped_);
}

bool Column::map() {
  if (mapping_) return true;
  for (std::size_t size = reserve_; size >= kSmallestReserve; size /= 2) {
    void* at = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    mapping_ = at;
    mapped_ = size + kHugePage;
    reserve_ = size;
    const std::size_t skip = (kHugePage - reinterpret_cast<std::uintptr_t>(at) % kHugePage) % kHugePage;
    data_ = static_cast<std::uint8_t*>(at) + skip;
    return true;
  }
  return false;
}

bool Column::canGrow(std::size_t bytes) {
  return bytes <= charge_.bytes() || (bytes <= reserve_ && map() && bytes <= reserve_);
}

void Column::grow(std::size_t bytes) {
  if (bytes <= charge_.bytes()) return;
  charge_.set(bytes);
#ifdef MADV_HUGEPAGE
  if (!huge_ && bytes >= kHugeFrom) {
    huge_ = true;
    madvise(data_, reserve_, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace kintsugi
