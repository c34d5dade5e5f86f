#include "engine/index.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "engine/blocks.h"
#include "engine/bytes.h"
#include "engine/hash.h"
#include "kernels/kernels.h"
#include "kernels/prefetch.h"

namespace kintsugi {

/** Distance of prefetch, in keys. */
static constexpr std::size_t kAhead = 16;
/** Keys that one call of the kernel looks up. */
static constexpr std::size_t kStretch = 512;
static constexpr std::size_t kHugePage = std::size_t{2} << 20;

void Index::Freer::operator()(void* p) const { std::free(p); }

static void* aligned(std::size_t bytes) {
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : 64;
  const std::size_t size = alignUp(bytes, alignment);
  void* p = std::aligned_alloc(alignment, size);
#ifdef MADV_HUGEPAGE
  if (p && alignment == kHugePage) madvise(p, size, MADV_HUGEPAGE);
#endif
  return p;
}

Index::Arrays Index::allocate(std::size_t buckets) {
  Arrays arrays;
  arrays.tags.reset(static_cast<Bucket*>(aligned(buckets * sizeof(Bucket))));
  arrays.slots.reset(static_cast<Slots*>(aligned(buckets * sizeof(Slots))));
  if (arrays.tags && arrays.slots) arrays.buckets = buckets;
  return arrays;
}

bool Index::makeRoom(std::size_t count) {
  const std::size_t buckets = count ? bucketsFor(count) : buckets_;
  if (buckets == buckets_ || buckets == spare_.buckets) return true;
  spare_ = {};
  spare_ = allocate(buckets);
  return spare_.buckets == buckets;
}

std::size_t Index::bucketsFor(std::size_t count) const {
  std::size_t buckets = buckets_ ? buckets_ : 2;
  while (count * 100 > buckets * 8 * kFullPart) buckets *= 2;
  return buckets;
}

std::size_t Index::growth(std::size_t count) const {
  return count ? (bucketsFor(count) - buckets_) * (sizeof(Bucket) + sizeof(Slots)) : 0;
}

std::uint32_t Index::find(std::uint64_t tag) const {
  if (!buckets_) return kNone;
  for (std::size_t b = indexHash(tag) & (buckets_ - 1);; b = (b + 1) & (buckets_ - 1)) {
    const std::uint64_t* tags = tags_[b].tags;
    for (unsigned i = 0; i < 8; i++) {
      if (tags[i] == tag) return slots_[b].of[i];
    }
    if (!tags[7]) return kNone;
  }
}

void Index::prefetch(std::uint64_t tag) const {
  if (!buckets_) return;
  const std::size_t b = indexHash(tag) & (buckets_ - 1);
  __builtin_prefetch(&tags_[b]);
  __builtin_prefetch(&slots_[b]);
}

// The home buckets of a stretch of keys are known before it is looked up, and those of the next keys, too, so
// that their cache lines are on their way across the border.
void Index::findMany(const std::uint64_t* tags, std::size_t count, std::uint32_t* slots) const {
  if (!buckets_) {
    std::fill_n(slots, count, kNone);
    return;
  }
  std::uint32_t homes[kStretch + kFarKeys];
  const Kernels& kernel = kernels();
  std::size_t known = 0;  // homes of tags[at ..]
  for (std::size_t at = 0; at < count;) {
    const std::size_t end = std::min(count - at, std::size(homes));
    for (; known < end; known++)
      homes[known] = static_cast<std::uint32_t>(indexHash(tags[at + known]) & (buckets_ - 1));
    const std::size_t now = std::min(known, kStretch);
    kernel.findTags(tags_[0].tags, slots_[0].of, buckets_ - 1, tags + at, homes, now, known - now,
                    slots + at);
    std::copy(homes + now, homes + known, homes);
    known -= now;
    at += now;
  }
}

void Index::place(std::uint64_t tag, std::uint32_t slot) {
  for (std::size_t b = indexHash(tag) & (buckets_ - 1);; b = (b + 1) & (buckets_ - 1)) {
    for (unsigned i = 0; i < 8; i++) {
      if (tags_[b].tags[i]) continue;
      tags_[b].tags[i] = tag;
      slots_[b].of[i] = slot;
      return;
    }
  }
}

void Index::rehash(std::size_t buckets) {
  const auto oldTags = std::move(tags_);
  const auto oldSlots = std::move(slots_);
  const std::size_t old = buckets_;
  if (spare_.buckets != buckets) {
    spare_ = {};
    spare_ = allocate(buckets);
    if (!spare_.buckets) std::abort();  // who must not end here calls `makeRoom` first
  }
  Arrays fresh = std::move(spare_);
  spare_ = {};
  buckets_ = buckets;
  tags_ = std::move(fresh.tags);
  slots_ = std::move(fresh.slots);
  std::memset(static_cast<void*>(tags_.get()), 0, buckets * sizeof(Bucket));
  std::memset(static_cast<void*>(slots_.get()), 0, buckets * sizeof(Slots));
  charge_.set(buckets * (sizeof(Bucket) + sizeof(Slots)));
  for (std::size_t b = 0; b < old; b++) {
    for (unsigned i = 0; i < 8 && oldTags[b].tags[i]; i++) place(oldTags[b].tags[i], oldSlots[b].of[i]);
  }
}

void Index::reserve(std::size_t count) {
  if (!count) return;
  const std::size_t buckets = bucketsFor(count);
  if (buckets != buckets_) rehash(buckets);
}

void Index::insert(std::uint64_t tag, std::uint32_t slot) {
  reserve(size_ + 1);
  place(tag, slot);
  size_++;
}

// The table is sized once, and a tag is looked for and placed in one walk.
void Index::build(const std::uint64_t* tags, std::uint32_t count) {
  clear();
  std::size_t live = 0;
  for (std::uint32_t i = 0; i < count; i++) live += tags[i] != 0;
  reserve(live);
  for (std::uint32_t i = 0; i < count; i++) {
    if (i + kAhead < count) prefetch(tags[i + kAhead]);
    if (tags[i]) enter(tags[i], i);
  }
}

std::uint32_t Index::enter(std::uint64_t tag, std::uint32_t slot) {
  for (std::size_t b = indexHash(tag) & (buckets_ - 1);; b = (b + 1) & (buckets_ - 1)) {
    std::uint64_t* tags = tags_[b].tags;
    for (unsigned i = 0; i < 8; i++) {
      if (tags[i] == tag) return slots_[b].of[i];
      if (tags[i]) continue;
      tags[i] = tag;
      slots_[b].of[i] = slot;
      size_++;
      return slot;
    }
  }
}

// The gap is filled by the last tag of its bucket, and if that bucket was full, the last one is filled from
// a later bucket: by the first tag there that would not be found any more. Its own gap is filled in turn.
void Index::remove(std::uint64_t tag, std::uint32_t slot) {
  if (!buckets_) return;
  const std::size_t mask = buckets_ - 1;
  std::size_t b = indexHash(tag) & mask;
  unsigned at = 0;
  for (;; b = (b + 1) & mask) {
    for (at = 0; at < 8 && tags_[b].tags[at] != tag; at++) {
    }
    if (at < 8) break;
    if (!tags_[b].tags[7]) return;
  }
  if (slots_[b].of[at] != slot) return;
  size_--;
  for (;;) {
    std::uint64_t* const tags = tags_[b].tags;
    unsigned last = 7;
    while (!tags[last]) last--;
    tags[at] = tags[last];
    slots_[b].of[at] = slots_[b].of[last];
    tags[last] = 0;
    if (last < 7) return;
    // A tag that passed this bucket because it was full is found no more.
    const std::size_t gap = b;
    for (bool found = false; !found;) {
      const bool passed = tags_[(b + 1) & mask].tags[7] != 0;
      b = (b + 1) & mask;
      for (at = 0; at < 8 && tags_[b].tags[at]; at++) {
        const std::size_t home = indexHash(tags_[b].tags[at]) & mask;
        if (((b - home) & mask) < ((b - gap) & mask)) continue;
        tags_[gap].tags[7] = tags_[b].tags[at];
        slots_[gap].of[7] = slots_[b].of[at];
        found = true;
        break;
      }
      if (!found && !passed) return;
    }
  }
}

void Index::clear() {
  tags_.reset();
  slots_.reset();
  buckets_ = size_ = 0;
  charge_.set(0);
}

}  // namespace kintsugi
