#include "data/lines.h"
#include "data/scan.h"

namespace kintsugi {
namespace {

/** More digits do not fit a double exactly. */
constexpr std::size_t kMostDigits = 15;

/** Negative ones count as 0. */
bool readCount(const std::uint8_t* data, std::size_t begin, std::size_t end, double& out) {
  if (end - begin <= 8) {
    const std::uint64_t word = swar::digits(data, begin, end);
    if (swar::isDecimal(word)) {
      out = swar::decimal(word);
      return true;
    }
  }
  const bool negative = data[begin] == '-';
  const Cell cell{data, begin + negative, end};
  std::uint64_t value = 0;
  if (cell.size() > kMostDigits || !readDigits(cell, value)) return false;
  out = negative ? 0 : static_cast<double>(value);
  return true;
}

template <bool kVector>
Stopped parse(View text, std::size_t from, std::size_t until, CriteoRows& rows, Logarithms& logarithms) {
  Marks<kVector> marks(text, from, '\t', '\t');
  const std::uint8_t* const data = text.data;
  std::size_t start = from;
  std::uint32_t lines = 0;
  for (; start < until; lines++) {
    if (rows.size == rows.capacity) return {Stop::Full, start, lines};
    if (logarithms.capacity - logarithms.count < kCriteoDense) return {Stop::Room, start, lines, kLate};
    const std::size_t late = logarithms.count;
    const auto hard = [&]() -> Stopped {
      logarithms.count = late;
      return {Stop::Hard, start, lines};
    };
    const auto end = [&]() -> Stopped {
      logarithms.count = late;
      return {Stop::End, start, lines};
    };
    std::size_t at = marks.next();
    if (at == kNowhere) return end();
    const unsigned label = data[start] - unsigned{'0'};
    if (at != start + 1 || data[at] != '\t' || label > 1) return hard();
    rows.labels[rows.size] = static_cast<float>(label);
    const std::size_t dense = std::size_t{rows.size} * kCriteoDense;
    for (std::uint32_t i = 0; i < kCriteoDense; i++) {
      const std::size_t begin = at + 1;
      at = marks.next();
      if (at == kNowhere) return end();
      double value = 0;
      if (data[at] != '\t' || !readCount(data, begin, at, value)) return hard();
      logarithms.write(rows.dense, dense + i, value);
    }
    std::uint64_t* const keys = rows.keys + std::size_t{rows.size} * kCriteoKeys;
    for (std::uint32_t i = 1; i <= kCriteoKeys; i++) {
      const std::size_t begin = at + 1;
      at = marks.next();
      if (at == kNowhere) return end();
      std::size_t last = at;
      if (i == kCriteoKeys) {
        if (data[at] != '\n') return hard();
        while (last > begin && data[last - 1] == '\r') last--;
      } else if (data[at] != '\t') {
        return hard();
      }
      if (last - begin > 8) return hard();
      const std::uint64_t word = swar::digits(data, begin, last);
      if (!swar::isHex(word)) return hard();
      keys[i - 1] = swar::hex(word) | std::uint64_t{i} << 32 | (begin == last ? kMissingBit : 0);
    }
    rows.size++;
    start = at + 1;
  }
  return {Stop::End, start, lines};
}

}  // namespace

Stopped parseCriteo(View text, std::size_t from, std::size_t until, CriteoRows& rows, Logarithms& logarithms,
                    bool vector) {
  return vector ? parse<true>(text, from, until, rows, logarithms)
                : parse<false>(text, from, until, rows, logarithms);
}

}  // namespace kintsugi
