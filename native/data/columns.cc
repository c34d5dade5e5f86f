#include "data/columns.h"

#include <charconv>
#include <cmath>
#include <type_traits>

#include "data/values.h"
#include "kernels/kernels.h"

namespace kintsugi {
namespace {

/** A cell of text that is UTF-8, or of bytes. */
template <bool kUtf8>
struct Written {
  TextValue value;
};

/** Calls `take` with the cells of a vector. */
template <class Take>
void visit(const CellVector& vector, Take&& take) {
  const auto as = [&]<class T>(T) { take(static_cast<const T*>(vector.data)); };
  switch (vector.type) {
    case CellType::Bool:
      return as(bool{});
    case CellType::I8:
      return as(std::int8_t{});
    case CellType::I16:
      return as(std::int16_t{});
    case CellType::I32:
      return as(std::int32_t{});
    case CellType::I64:
      return as(std::int64_t{});
    case CellType::U8:
      return as(std::uint8_t{});
    case CellType::U16:
      return as(std::uint16_t{});
    case CellType::U32:
      return as(std::uint32_t{});
    case CellType::U64:
      return as(std::uint64_t{});
    case CellType::F32:
      return as(float{});
    case CellType::F64:
      return as(double{});
    case CellType::Text:
      return as(Written<true>{});
    case CellType::Bytes:
      return as(Written<false>{});
  }
}

template <class T>
inline constexpr bool kIsText = std::is_same_v<T, Written<true>> || std::is_same_v<T, Written<false>>;

/** The empty text is a missing value. */
template <class T>
bool isEmpty(const T& value) {
  if constexpr (kIsText<T>)
    return value.value.size == 0;
  else
    return false;
}

/** A cell as a finite number. */
template <class T>
bool toNumber(const T& value, double& out) {
  if constexpr (kIsText<T>) {
    return value.value.size <= kMostCellBytes && readDecimal(value.value.cell(), out);
  } else {
    out = static_cast<double>(value);
    if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
    return true;
  }
}

/** The key of an integer. It is the same value as its text, but for a hash: a number is the hash itself. */
template <class T>
bool integerKey(const SparseColumn& column, T value, std::uint64_t& out) {
  const bool isHash = column.key == KeyKind::Hash || column.key == KeyKind::Hash64;
  if (column.key == KeyKind::Integer || isHash) {
    if constexpr (std::is_signed_v<T>) {
      if (isHash && value < 0) return false;
    }
    out = static_cast<std::uint64_t>(value);
    return (isHash || !isReserved(out)) && finishKey(column, out);
  }
  char text[24];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return readKey(column,
                 {reinterpret_cast<const std::uint8_t*>(text), 0, static_cast<std::size_t>(end - text)}, out);
}

/** The largest integer up to which a double holds every one. */
constexpr double kMostSafe = 9007199254740991.0;

template <class T>
bool toKey(const SparseColumn& column, const T& value, std::uint64_t& out) {
  if constexpr (kIsText<T>) {
    const bool nul = std::is_same_v<T, Written<false>>;
    return value.value.size <= kMostCellBytes && readKey(column, value.value.cell(), out, nul);
  } else if constexpr (std::is_same_v<T, bool>) {
    const Cell text = value ? Cell{reinterpret_cast<const std::uint8_t*>("true"), 0, 4}
                            : Cell{reinterpret_cast<const std::uint8_t*>("false"), 0, 5};
    return readKey(column, text, out);
  } else if constexpr (std::is_floating_point_v<T>) {
    // Another number would have to be written as JavaScript does.
    if (!(std::abs(static_cast<double>(value)) <= kMostSafe) || value != std::trunc(value)) return false;
    return integerKey(column, static_cast<std::int64_t>(value), out);
  } else {
    return integerKey(column, value, out);
  }
}

bool keyAt(const SparseColumn& column, const CellVector& vector, std::size_t at, std::uint64_t& out) {
  bool taken = false;
  visit(vector, [&](const auto* cells) {
    taken = isValid(vector.valid, at) && !isEmpty(cells[at]) && toKey(column, cells[at], out);
  });
  return taken;
}

bool numberAt(const CellVector& vector, std::size_t at, double& out) {
  bool taken = false;
  visit(vector, [&](const auto* cells) { taken = isValid(vector.valid, at) && toNumber(cells[at], out); });
  return taken;
}

/** The values of a cell of a column with several. A text is cut at the separator. */
class CellValues {
 public:
  CellValues() = default;
  CellValues(const CellVector& vector, std::size_t row, const SparseColumn& column) : vector_(&vector) {
    if (vector.list) {
      if (!isValid(vector.listValid, row)) return;
      at_ = vector.lists[row].offset;
      count_ = vector.lists[row].length;
      isTooLong_ = count_ > kMostListValues;
      return;
    }
    if (!isValid(vector.valid, row)) return;
    isText_ = vector.type == CellType::Text || (vector.type == CellType::Bytes && !column.whole);
    if (!isText_) {
      at_ = row;
      count_ = vector.type != CellType::Bytes || text(row).size > 0 ? 1 : 0;
      return;
    }
    const TextValue& value = text(row);
    isTooLong_ = value.size > kMostCellBytes;
    cut_ = Values(value.cell(), column.separator);
    count_ = isTooLong_ ? 0 : cut_.count();
  }

  std::size_t count() const { return count_; }
  bool isTooLong() const { return isTooLong_; }

  /** Goes on to the next value, which is there. */
  void next() {
    if (isText_)
      cut_.next(cell_);
    else
      index_ = at_++;
  }
  bool key(const SparseColumn& column, std::uint64_t& out) const {
    if (!isText_) return keyAt(column, *vector_, index_, out);
    return !cell_.empty() && readKey(column, cell_, out, vector_->type == CellType::Bytes);
  }
  bool number(double& out) const {
    return isText_ ? readDecimal(cell_, out) : numberAt(*vector_, index_, out);
  }

 private:
  const TextValue& text(std::size_t row) const { return static_cast<const TextValue*>(vector_->data)[row]; }

  const CellVector* vector_ = nullptr;
  bool isText_ = false, isTooLong_ = false;
  std::size_t at_ = 0, index_ = 0, count_ = 0;
  Values cut_;
  Cell cell_;
};

/** Rows [from, until) of vectors on their way into rows of a batch. */
class Passage {
 public:
  Passage(const LinePlan& plan, const std::vector<CellVector>& vectors, std::size_t from, std::size_t count,
          SchemaRows& rows, Logarithms& logarithms)
      : plan_(plan), vectors_(vectors), from_(from), count_(count), rows_(rows), logarithms_(logarithms) {}

  /** Returns how many rows were taken before one that is not. `full`: the sparse column without room. */
  std::size_t take(std::uint32_t& full) {
    for (std::size_t i = 0; i < plan_.labels.size(); i++) takeLabels(i);
    std::size_t at = 0;
    for (const DenseColumn& column : plan_.dense) {
      takeDense(column, at);
      at += column.width();
    }
    if (plan_.weight != kNoPlace) {
      takeNumbers(plan_.weight, [&](std::size_t row, double value) {
        rows_.weights[row] = static_cast<float>(value);
        return value >= 0;
      });
    }
    if (plan_.time != kNoPlace) {
      takeNumbers(plan_.time, [&](std::size_t row, double value) {
        rows_.times[row] = value;
        return true;
      });
    }
    full = kNoPlace;
    for (std::size_t i = 0; i < plan_.sparse.size(); i++) {
      const SparseColumn& column = plan_.sparse[i];
      KeyList& list = rows_.lists[i];
      if (!column.multi)
        takeKeys(column, list);
      else if (!takeLists(column, list))
        full = static_cast<std::uint32_t>(i);
    }
    finish();
    return count_;
  }

 private:
  /** This row and all after it are not taken. */
  void stopAt(std::size_t row) { count_ = row < count_ ? row : count_; }

  /** `use(row of the batch, number)` for every cell; the first that is no number, or false, is not taken. */
  template <class Use>
  void takeNumbers(std::uint32_t place, Use&& use) {
    const CellVector& vector = vectors_[place];
    if (vector.list) return stopAt(0);
    visit(vector, [&](const auto* cells) {
      for (std::size_t i = 0; i < count_; i++) {
        double value = 0;
        if (!isValid(vector.valid, from_ + i) || !toNumber(cells[from_ + i], value) ||
            !use(rows_.size + i, value))
          return stopAt(i);
      }
    });
  }

  void takeLabels(std::size_t index) {
    const LabelColumn& column = plan_.labels[index];
    const CellVector& vector = vectors_[column.place];
    float* const targets = rows_.targets + rows_.size * plan_.labels.size() + index;
    const std::size_t step = plan_.labels.size();
    if (vector.type == CellType::Text && !vector.list) {
      const auto* cells = static_cast<const TextValue*>(vector.data) + from_;
      for (std::size_t i = 0; i < count_; i++) {
        const bool there = isValid(vector.valid, from_ + i) && cells[i].size <= kMostCellBytes;
        if (!there || !readLabel(column, cells[i].cell(), targets[i * step])) return stopAt(i);
      }
      return;
    }
    takeNumbers(column.place, [&](std::size_t row, double value) {
      return writeLabel(column, value, targets[(row - rows_.size) * step]);
    });
  }

  void takeDense(const DenseColumn& column, std::size_t at) {
    const CellVector& vector = vectors_[column.place];
    if (vector.list) return stopAt(0);
    const std::size_t width = plan_.denseWidth();
    visit(vector, [&](const auto* cells) {
      for (std::size_t i = 0; i < count_; i++) {
        if (!isValid(vector.valid, from_ + i) || isEmpty(cells[from_ + i])) continue;
        double value = 0;
        if (!toNumber(cells[from_ + i], value) ||
            !writeDense(column, value, rows_.dense, (rows_.size + i) * width + at, logarithms_))
          return stopAt(i);
      }
    });
  }

  /** Room for a key of each row was looked for before. */
  void takeKeys(const SparseColumn& column, KeyList& list) {
    const CellVector& vector = vectors_[column.place];
    if (vector.list) return stopAt(0);
    const std::uint64_t missing = missingKey(column);
    std::uint64_t* const keys = list.keys + list.count;
    const bool late = isHashedLate(column);
    const SparseColumn first = beforeHash(column);
    const std::uint64_t none = late ? kMissingBit : missing;
    visit(vector, [&](const auto* cells) {
      for (std::size_t i = 0; i < count_; i++) {
        keys[i] = none;
        if (!isValid(vector.valid, from_ + i) || isEmpty(cells[from_ + i])) continue;
        if (!toKey(first, cells[from_ + i], keys[i])) return stopAt(i);
      }
    });
    if (late) kernels().hashKeys(keys, count_, column.seed, missing);
    for (std::size_t i = 0; i < count_; i++)
      list.offsets[rows_.size + i + 1] = static_cast<std::uint32_t>(list.count + i + 1);
  }

  /** False: the list has no room, and the rows before the one that needs it are taken. */
  bool takeLists(const SparseColumn& column, KeyList& list) {
    const bool hasRoom = takeValues(column, list);
    const std::size_t taken = count_ == 0 ? list.count : list.offsets[rows_.size + count_];
    if (isHashedLate(column))
      kernels().hashKeys(list.keys + list.count, taken - list.count, column.seed, kMissingBit);
    return hasRoom;
  }

  /** As `takeLists`; numbers are keys before their hash. */
  bool takeValues(const SparseColumn& whole, KeyList& list) {
    const SparseColumn column = beforeHash(whole);
    const bool weighted = column.weights != kNoPlace;
    std::size_t count = list.count;
    for (std::size_t i = 0; i < count_; i++) {
      CellValues values(vectors_[column.place], from_ + i, column);
      CellValues weights;
      if (weighted) weights = CellValues(vectors_[column.weights], from_ + i, column);
      if (values.isTooLong() || weights.isTooLong() || (weighted && weights.count() != values.count())) {
        stopAt(i);
        break;
      }
      const std::size_t kept = values.count() < column.limit ? values.count() : column.limit;
      if (list.capacity - count < kept) {
        stopAt(i);
        return false;
      }
      if (!takeCell(column, values, weights, values.count() - kept, list, count)) {
        stopAt(i);
        break;
      }
      count += kept;
      list.offsets[rows_.size + i + 1] = static_cast<std::uint32_t>(count);
    }
    return true;
  }

  static bool takeCell(const SparseColumn& column, CellValues& values, CellValues& weights,
                       std::size_t skipped, KeyList& list, std::size_t at) {
    const bool weighted = column.weights != kNoPlace;
    for (std::size_t i = 0; i < values.count(); i++) {
      values.next();
      if (weighted) weights.next();
      if (i < skipped) continue;
      if (!values.key(column, list.keys[at])) return false;
      if (weighted) {
        double number = 1;
        if (!weights.number(number)) return false;
        list.weights[at] = static_cast<float>(number);
      }
      at++;
    }
    return true;
  }

  /** Rows that were not taken leave nothing: dense values of the next row begin as 0. */
  void finish() {
    const std::size_t width = plan_.denseWidth(), size = rows_.size + count_;
    const std::size_t end = size * width, written = (rows_.size + most_) * width;
    std::fill(rows_.dense + end, rows_.dense + (written > end ? written : end), 0.0f);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < logarithms_.count; i++) {
      if (logarithms_.places[i] >= end) continue;
      logarithms_.places[kept] = logarithms_.places[i];
      logarithms_.numbers[kept++] = logarithms_.numbers[i];
    }
    logarithms_.count = kept;
    rows_.size = static_cast<std::uint32_t>(size);
    for (KeyList& list : rows_.lists) list.count = size == 0 ? 0 : list.offsets[size];
  }

  const LinePlan& plan_;
  const std::vector<CellVector>& vectors_;
  const std::size_t from_;
  std::size_t count_;
  const std::size_t most_ = count_;
  SchemaRows& rows_;
  Logarithms& logarithms_;
};

}  // namespace

Stopped ColumnParser::parse(const std::vector<CellVector>& vectors, std::size_t from, std::size_t until,
                            SchemaRows& rows, Logarithms& logarithms) const {
  const std::size_t perRow = plan_.logarithms();
  while (from < until) {
    if (rows.size == rows.capacity) return {Stop::Full, from};
    std::size_t count = std::min<std::size_t>(until - from, rows.capacity - rows.size);
    if (perRow > 0) count = std::min(count, (logarithms.capacity - logarithms.count) / perRow);
    if (count == 0) return {Stop::Room, from, 0, kLate};
    for (std::size_t i = 0; i < plan_.sparse.size(); i++) {
      const KeyList& list = rows.lists[i];
      if (plan_.sparse[i].multi) continue;
      count = std::min(count, list.capacity - list.count);
      if (count == 0) return {Stop::Room, from, 0, static_cast<std::uint32_t>(i)};
    }
    std::uint32_t full = kNoPlace;
    const std::size_t taken = Passage(plan_, vectors, from, count, rows, logarithms).take(full);
    from += taken;
    if (taken == count) continue;
    if (full != kNoPlace) return {Stop::Room, from, 0, full};
    return {Stop::Hard, from};
  }
  return {Stop::End, from};
}

}  // namespace kintsugi
