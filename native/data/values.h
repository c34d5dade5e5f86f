// Cells as they become values of a batch: keys, labels, and numbers with their transforms.
#pragma once
#include <cmath>

#include "data/lines.h"

namespace kintsugi {

/** Largest number that a row takes: a larger one does not fit a float32. */
inline constexpr double kMaxFloat = 3.4e38;

/** The values of a cell with several, from the left. */
class Values {
 public:
  Values() = default;
  Values(const Cell& cell, const std::string& separator)
      : data_(cell.data), at_(cell.begin), end_(cell.end), separator_(&separator), over_(cell.empty()) {}

  bool next(Cell& out) {
    if (over_) return false;
    const std::size_t end = find();
    out = {data_, at_, end};
    over_ = end == end_;
    at_ = over_ ? end_ : end + separator_->size();
    // A separator at the very end has an empty value after it.
    return true;
  }
  std::size_t count() const {
    Values rest = *this;
    std::size_t values = 0;
    for (Cell value; rest.next(value);) values++;
    return values;
  }

 private:
  std::size_t find() {
    const std::size_t n = separator_->size();
    for (std::size_t at = at_; end_ - at >= n; at++) {
      const void* found = std::memchr(data_ + at, (*separator_)[0], end_ - at - n + 1);
      if (!found) return end_;
      at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - data_);
      if (std::memcmp(data_ + at, separator_->data(), n) == 0) return at;
    }
    return end_;
  }

  const std::uint8_t* data_ = nullptr;
  std::size_t at_ = 0, end_ = 0;
  const std::string* separator_ = nullptr;
  bool over_ = true;
};

/** The key of a number. False: no value has it. */
inline bool finishKey(const SparseColumn& column, std::uint64_t& key) {
  if (column.key == KeyKind::Hash) key &= ~kMissingBit;
  if (column.key == KeyKind::Hash64 && isReserved(key)) return false;
  if (column.shared) return true;
  KeyHash hash(column.seed);
  hash.absorb(static_cast<std::uint32_t>(key));
  hash.absorb(static_cast<std::uint32_t>(key >> 32));
  key = hash.end();
  return true;
}

/** The keys of numbers are hashes, and many of them are made at a time (`hashKeys`). */
inline bool isHashedLate(const SparseColumn& column) {
  return !column.shared &&
         (column.key == KeyKind::Integer || column.key == KeyKind::Hash || column.key == KeyKind::Hash64);
}

/** The column with its numbers as keys, where they are hashed late. */
inline SparseColumn beforeHash(SparseColumn column) {
  column.shared |= isHashedLate(column);
  return column;
}

inline bool isNumbered(KeyKind key) { return key == KeyKind::Hex8 || key == KeyKind::Digits9; }

/** FNV-1a of 64 bits, mixed with the number of a column. */
inline std::uint64_t fnvKey(const SparseColumn& column, const Cell& cell) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (std::size_t i = cell.begin; i < cell.end; i++) hash = (hash ^ cell.data[i]) * 0x100000001B3;
  hash ^= (std::uint64_t{column.seed} << 32) * 0x9E3779B97F4A7C15;
  return hash == ~std::uint64_t{0} ? 0 : hash;
}

/** The key of a missing value, in a column with one value. */
inline std::uint64_t missingKey(const SparseColumn& column) {
  if (column.key == KeyKind::Fnv) return fnvKey(column, {});
  const std::uint64_t seed = column.seed;
  return (isNumbered(column.key) ? seed << 32 : seed) | kMissingBit;
}

/** The key of digits below the number of their column. */
inline bool readNumbered(const SparseColumn& column, const Cell& cell, std::uint64_t& out) {
  const bool hex = column.key == KeyKind::Hex8;
  if (cell.size() > (hex ? 8 : 9) || !(hex ? readHash(cell, out) : readDigits(cell, out))) return false;
  out |= std::uint64_t{column.seed} << 32;
  return true;
}

/** The key of a text. `nul`: it may have zero bytes. */
inline bool readKey(const SparseColumn& column, const Cell& cell, std::uint64_t& out, bool nul = false) {
  if (isNumbered(column.key)) return readNumbered(column, cell, out);
  if (column.key == KeyKind::String || column.key == KeyKind::Fnv) {
    // src/data says what is wrong with a text that has NUL, or that should be UTF-8.
    std::uint8_t all = 0;
    bool zero = false;
    for (std::size_t i = cell.begin; i < cell.end; i++) {
      all |= cell.data[i];
      zero |= cell.data[i] == 0;
    }
    if (zero && !nul) return false;
    if (column.utf8 && all >= 0x80 && !isUtf8(cell.first(), cell.size())) return false;
    if (column.key == KeyKind::Fnv) {
      out = fnvKey(column, cell);
      return true;
    }
    KeyHash hash(column.seed);
    hash.text(cell.first(), cell.size());
    out = hash.end();
    return true;
  }
  if (column.key == KeyKind::Integer ? !readInteger(cell, out) : !readHash(cell, out)) return false;
  return finishKey(column, out);
}

/** A label that is a number. */
inline bool writeLabel(const LabelColumn& column, double value, float& out) {
  if (column.threshold) {
    out = value >= column.atLeast ? 1 : 0;
    return true;
  }
  out = static_cast<float>(value);
  return column.any ? std::abs(value) <= kMaxFloat : value == 0 || value == 1;
}

inline bool readLabel(const LabelColumn& column, const Cell& cell, float& out) {
  double value = 0;
  if (cell.size() == 1 && (cell.first()[0] | 1) == '1') {
    value = cell.first()[0] - '0';
  } else if (cell.is("true", 4) || cell.is("True", 4)) {
    value = 1;
  } else if (!cell.is("false", 5) && !cell.is("False", 5) && !readDecimal(cell, value)) {
    return false;
  }
  return writeLabel(column, value, out);
}

/** A finite number as inputs of the model, from dense[here] on, which are 0. False: it fits no float32. */
inline bool writeDense(const DenseColumn& column, double value, float* dense, std::size_t here,
                       Logarithms& logarithms) {
  if (std::abs(value) > kMaxFloat) return false;
  switch (column.kind) {
    case TransformKind::None:
      dense[here] = static_cast<float>(value);
      break;
    case TransformKind::Log1p:
      logarithms.write(dense, here, value > 0 ? value : 0);
      break;
    case TransformKind::Normalise:
      dense[here] = static_cast<float>((value - column.mean) / column.std);
      break;
    case TransformKind::Bucketise:
      std::size_t bucket = 0;
      for (const double boundary : column.boundaries) bucket += value >= boundary;
      dense[here + bucket] = 1;
      break;
  }
  return true;
}

}  // namespace kintsugi
