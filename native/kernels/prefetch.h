// Rows are at random places of a slab: two stages of prefetch hide most of the latency, far ahead into L2 and
// near into L1. Without the far stage a core runs out of room for misses of L1; without the near one it waits
// for L2. Code between two rows costs as much as the misses do, because it takes the room in the
// core's window that the next rows need: with loops over cache lines, rows of 256 bytes were gathered at half
// the speed. So the usual numbers of lines are constants, and the others take one jump.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kintsugi {

// All of this must be inlined. GCC takes a function that only prefetches for one without effects, and drops
// the call; and a copy that was compiled for one instruction set must not become the one that all files
// share.

/** Distances in rows. */
inline constexpr std::size_t kFar = 32, kNear = 8;

/** Cache lines of a row to fetch: longer rows keep the hardware's own prefetcher busy after the first
 * kilobyte. */
[[gnu::always_inline]] inline std::size_t linesToFetch(std::size_t bytes) {
  return bytes < 1024 ? (bytes + 63) / 64 : 16;
}

template <int Locality, std::size_t Lines>
[[gnu::always_inline]] inline void prefetchRow(const std::uint8_t* row, std::size_t lines) {
  if constexpr (Lines > 0) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < Lines; i++) __builtin_prefetch(row + i * 64, 0, Locality);
    return;
  }
#define KINTSUGI_LINE(n) \
  [[fallthrough]];       \
  case n:                \
    __builtin_prefetch(row + (n - 1) * 64, 0, Locality)
  switch (lines) {
    default:
      KINTSUGI_LINE(16);
      KINTSUGI_LINE(15);
      KINTSUGI_LINE(14);
      KINTSUGI_LINE(13);
      KINTSUGI_LINE(12);
      KINTSUGI_LINE(11);
      KINTSUGI_LINE(10);
      KINTSUGI_LINE(9);
      KINTSUGI_LINE(8);
      KINTSUGI_LINE(7);
      KINTSUGI_LINE(6);
      KINTSUGI_LINE(5);
      KINTSUGI_LINE(4);
      KINTSUGI_LINE(3);
      KINTSUGI_LINE(2);
      KINTSUGI_LINE(1);
      [[fallthrough]];
    case 0:
      return;
  }
#undef KINTSUGI_LINE
}

/** Before the work on row `i` of `count`; `rowAt(j)` is row j, or nullptr where there is none. `Lines` 0:
 * `lines` says how many. */
template <std::size_t Lines, class RowAt>
[[gnu::always_inline]] inline void prefetchAhead(std::size_t lines, std::size_t i, std::size_t count,
                                                 RowAt rowAt) {
  if (i + kFar < count) {
    if (const std::uint8_t* row = rowAt(i + kFar)) prefetchRow<2, Lines>(row, lines);
  }
  if (i + kNear < count) {
    if (const std::uint8_t* row = rowAt(i + kNear)) prefetchRow<3, Lines>(row, lines);
  }
}

/** Distances in keys of a look-up. */
inline constexpr std::size_t kFarKeys = 64, kNearKeys = 8;

/** Before the look-up of key `i`: the buckets of later ones, of which `count` are known. */
[[gnu::always_inline]] inline void prefetchBuckets(const std::uint64_t* tags, const std::uint32_t* slots,
                                                   const std::uint32_t* homes, std::size_t i,
                                                   std::size_t count) {
  if (i + kFarKeys < count) {
    const std::size_t at = std::size_t{homes[i + kFarKeys]} * 8;
    __builtin_prefetch(tags + at, 0, 2);
    __builtin_prefetch(slots + at, 0, 2);
  }
  if (i + kNearKeys < count) {
    const std::size_t at = std::size_t{homes[i + kNearKeys]} * 8;
    __builtin_prefetch(tags + at, 0, 3);
    __builtin_prefetch(slots + at, 0, 3);
  }
}

/** Calls body(n) with a constant: the number of lines of rows of `bytes` where it is a usual one, else 0. One
 * more than a power of two is that of usual rows in a table with a policy. */
template <class Body>
[[gnu::always_inline]] inline void withLines(std::size_t bytes, Body body) {
  switch (linesToFetch(bytes)) {
    case 1:
      return body(std::integral_constant<std::size_t, 1>{});
    case 2:
      return body(std::integral_constant<std::size_t, 2>{});
    case 3:
      return body(std::integral_constant<std::size_t, 3>{});
    case 4:
      return body(std::integral_constant<std::size_t, 4>{});
    case 5:
      return body(std::integral_constant<std::size_t, 5>{});
    case 8:
      return body(std::integral_constant<std::size_t, 8>{});
    case 9:
      return body(std::integral_constant<std::size_t, 9>{});
    default:
      return body(std::integral_constant<std::size_t, 0>{});
  }
}

}  // namespace kintsugi
