#include "data/lines.h"
#include "data/scan.h"
#include "data/values.h"
#include "kernels/kernels.h"

namespace kintsugi {
std::size_t LinePlan::denseWidth() const {
  std::size_t width = 0;
  for (const DenseColumn& column : dense) width += column.width();
  return width;
}

std::size_t LinePlan::logarithms() const {
  std::size_t count = 0;
  for (const DenseColumn& column : dense) count += column.kind == TransformKind::Log1p;
  return count;
}

LineParser::LineParser(LinePlan plan) : plan_(std::move(plan)), cells_(plan_.fields) {
  for (const SparseColumn& column : plan_.sparse) {
    sparse_.push_back(beforeHash(column));
    missing_.push_back(isHashedLate(column) ? kMissingBit : missingKey(column));
    if (column.multi) lists_.push_back(static_cast<std::uint32_t>(sparse_.size() - 1));
  }
}

bool LineParser::addNumbers(SchemaRows& rows, Logarithms& logarithms) const {
  const std::size_t row = rows.size;
  for (std::size_t i = 0; i < plan_.labels.size(); i++) {
    float& target = rows.targets[row * plan_.labels.size() + i];
    if (!readLabel(plan_.labels[i], cells_[plan_.labels[i].place], target)) return false;
  }
  std::size_t at = row * plan_.denseWidth();
  for (const DenseColumn& column : plan_.dense) {
    const Cell& cell = cells_[column.place];
    const std::size_t here = at;
    at += column.width();
    if (cell.empty()) continue;
    double value = 0;
    if (!readDecimal(cell, value) || !writeDense(column, value, rows.dense, here, logarithms)) return false;
  }
  double value = 0;
  if (plan_.weight != kNoPlace) {
    if (!readDecimal(cells_[plan_.weight], value) || !(value >= 0)) return false;
    rows.weights[row] = static_cast<float>(value);
  }
  if (plan_.time != kNoPlace) {
    if (!readDecimal(cells_[plan_.time], value)) return false;
    rows.times[row] = value;
  }
  return true;
}

Stop LineParser::addKeys(std::size_t index, KeyList& list) const {
  const SparseColumn& column = sparse_[index];
  const Cell& cell = cells_[column.place];
  if (!column.multi) {
    std::uint64_t key = missing_[index];
    if (!cell.empty() && !readKey(column, cell, key)) return Stop::Hard;
    if (list.count == list.capacity) return Stop::Room;
    list.keys[list.count++] = key;
    return Stop::End;
  }
  Values values(cell, column.separator);
  const Cell none;
  Values weights(column.weights == kNoPlace ? none : cells_[column.weights], column.separator);
  const std::size_t count = values.count();
  if (column.weights != kNoPlace && weights.count() != count) return Stop::Hard;
  const std::size_t kept = count < column.limit ? count : column.limit;
  if (list.capacity - list.count < kept) return Stop::Room;
  Cell value, weight;
  for (std::size_t i = 0; values.next(value); i++) {
    if (column.weights != kNoPlace) weights.next(weight);
    if (i < count - kept) continue;
    if (value.empty() || !readKey(column, value, list.keys[list.count])) return Stop::Hard;
    double number = 1;
    if (column.weights != kNoPlace) {
      if (!readDecimal(weight, number)) return Stop::Hard;
      list.weights[list.count] = static_cast<float>(number);
    }
    list.count++;
  }
  return Stop::End;
}

/** All of a row or nothing. */
Stop LineParser::addRow(SchemaRows& rows, Logarithms& logarithms, std::uint32_t& full) {
  const std::size_t late = logarithms.count;
  counts_.clear();
  Stop stop = addNumbers(rows, logarithms) ? Stop::End : Stop::Hard;
  for (std::size_t i = 0; i < rows.lists.size() && stop == Stop::End; i++) {
    counts_.push_back(rows.lists[i].count);
    stop = addKeys(i, rows.lists[i]);
    if (stop == Stop::Room) full = static_cast<std::uint32_t>(i);
  }
  if (stop == Stop::End) {
    rows.size++;
    for (const std::uint32_t i : lists_) {
      rows.lists[i].offsets[rows.size] = static_cast<std::uint32_t>(rows.lists[i].count);
    }
    return stop;
  }
  logarithms.count = late;
  for (std::size_t i = 0; i < counts_.size(); i++) rows.lists[i].count = counts_[i];
  return stop;
}

void LineParser::finish(SchemaRows& rows, std::uint32_t first) const {
  for (std::size_t i = 0; i < rows.lists.size(); i++) {
    KeyList& list = rows.lists[i];
    const SparseColumn& column = plan_.sparse[i];
    if (isHashedLate(column)) {
      const std::size_t from = before_[i];
      kernels().hashKeys(list.keys + from, list.count - from, column.seed, missingKey(column));
    }
    if (column.multi) continue;
    for (std::uint32_t row = first; row < rows.size; row++) {
      list.offsets[row + 1] = static_cast<std::uint32_t>(before_[i] + (row - first) + 1);
    }
  }
}

template <bool kVector>
Stopped LineParser::parseLines(View text, std::size_t from, std::size_t until, SchemaRows& rows,
                               Logarithms& logarithms) {
  Marks<kVector> marks(text, from, plan_.delimiter, '"');
  const std::uint8_t* const data = text.data;
  const std::size_t room = plan_.logarithms();
  std::size_t start = from;
  std::uint32_t lines = 0;
  for (; start < until; lines++) {
    if (rows.size == rows.capacity) return {Stop::Full, start, lines};
    if (logarithms.capacity - logarithms.count < room) return {Stop::Room, start, lines, kLate};
    std::size_t begin = start, at = 0;
    std::uint32_t field = 0;
    for (;; field++) {
      at = marks.next();
      if (at == kNowhere) return {Stop::End, start, lines};
      if (data[at] == '"' || field == plan_.fields) return {Stop::Hard, start, lines};
      cells_[field] = {data, begin, at};
      if (data[at] == '\n') break;
      begin = at + 1;
    }
    if (field + 1 != plan_.fields || at - start > kMostLineBytes) return {Stop::Hard, start, lines};
    for (std::size_t& end = cells_[field].end; end > start && data[end - 1] == '\r';) end--;
    std::uint32_t full = 0;
    const Stop stop = addRow(rows, logarithms, full);
    if (stop != Stop::End) return {stop, start, lines, full};
    start = at + 1;
  }
  return {Stop::End, start, lines};
}

Stopped LineParser::parse(View text, std::size_t from, std::size_t until, SchemaRows& rows,
                          Logarithms& logarithms, bool vector) {
  before_.clear();
  for (const KeyList& list : rows.lists) before_.push_back(list.count);
  const std::uint32_t first = rows.size;
  const Stopped stopped = vector ? parseLines<true>(text, from, until, rows, logarithms)
                                 : parseLines<false>(text, from, until, rows, logarithms);
  finish(rows, first);
  return stopped;
}

}  // namespace kintsugi
