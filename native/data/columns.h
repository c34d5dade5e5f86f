// Columns of typed values as rows of a batch, by the plan of a schema. A row that is taken gives exactly what
// src/data would make of its cells; at any other row it stops.
#pragma once
#include <vector>

#include "data/lines.h"

namespace kintsugi {

enum class CellType : std::uint8_t {
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F32,
  F64,
  Text,   // UTF-8
  Bytes,  // any
};

/** A text, in the layout of DuckDB: up to 12 bytes stand in it, of a longer one 4 and where it is. */
struct alignas(8) TextValue {
  std::uint32_t size;
  std::uint8_t bytes[12];

  Cell cell() const {
    // A cell that is here begins behind its size, so that eight bytes before its end can be read.
    if (size <= sizeof bytes) return {reinterpret_cast<const std::uint8_t*>(this), 4, 4 + std::size_t{size}};
    return {loadAt<const std::uint8_t*>(bytes + 4), 0, size};
  }
};
static_assert(sizeof(TextValue) == 16);

/** Values of a list: children [offset, offset + length). */
struct ListValue {
  std::uint64_t offset, length;
};

/** A part of a column: cells, or lists of them. */
struct CellVector {
  CellType type = CellType::I32;
  bool list = false;
  /** Cells, or children of the lists */
  const void* data = nullptr;
  /** Bit i: value i is not null; nullptr: none is. */
  const std::uint64_t* valid = nullptr;
  const ListValue* lists = nullptr;
  const std::uint64_t* listValid = nullptr;
};

inline bool isValid(const std::uint64_t* bits, std::size_t at) {
  return bits == nullptr || ((bits[at / 64] >> (at % 64)) & 1) != 0;
}

/** A longer text is not taken: MAX_CELL_BYTES of src/data/parquet-pages.ts. */
inline constexpr std::uint32_t kMostCellBytes = 1 << 16;
/** A longer list is not taken: MAX_LIST_VALUES there. */
inline constexpr std::uint64_t kMostListValues = 1 << 16;

class ColumnParser {
 public:
  /** The places of the plan are those of the vectors. */
  explicit ColumnParser(LinePlan plan) : plan_(std::move(plan)) {}

  const LinePlan& plan() const { return plan_; }
  /** Takes rows [from, until) of the vectors. `at` of the result is the row where it stopped. */
  Stopped parse(const std::vector<CellVector>& vectors, std::size_t from, std::size_t until, SchemaRows& rows,
                Logarithms& logarithms) const;

 private:
  LinePlan plan_;
};

}  // namespace kintsugi
