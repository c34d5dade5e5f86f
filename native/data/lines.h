// Lines of text as rows of a batch: the Criteo layout, and lines with a delimiter that a schema describes. A
// line that is taken gives exactly the row that src/data would make. Any other line is left to src/data,
// which takes it or says what is wrong with it.
#pragma once
#include <string>
#include <vector>

#include "data/cells.h"

namespace kintsugi {

enum class Stop : std::uint32_t {
  End = 0,   // no further whole line that begins before the limit
  Full = 1,  // the batch is
  Hard = 2,  // this line is not taken
  Room = 3,  // a list of keys, or of late numbers, is full
};

/** Where parsing stopped: at the beginning of a line. */
struct Stopped {
  Stop why = Stop::End;
  std::size_t at = 0;
  std::uint32_t lines = 0;
  /** After Stop::Room: the sparse column that has no room, or kLate. */
  std::uint32_t column = 0;
};

inline constexpr std::uint32_t kLate = 0xFFFFFFFF;

/** log1p is JavaScript's, so that the same numbers give the same bits in every format: small integers by a
 * table of it, others are left for later. */
struct Logarithms {
  const float* table = nullptr;
  std::size_t size = 0;
  /** Places in the dense values, and x of log1p(x) */
  std::uint32_t* places = nullptr;
  double* numbers = nullptr;
  std::size_t count = 0, capacity = 0;

  void write(float* dense, std::size_t at, double x) {
    const auto whole = static_cast<std::uint32_t>(x < 4e9 ? x : 4e9);
    if (whole < size && whole == x) {
      dense[at] = table[whole];
      return;
    }
    places[count] = static_cast<std::uint32_t>(at);
    numbers[count++] = x;
  }
};

inline constexpr std::uint32_t kCriteoDense = 13, kCriteoKeys = 26;

/** A batch under construction; rows [0, size) are there. */
struct CriteoRows {
  std::uint32_t size = 0, capacity = 0;
  float *labels = nullptr, *dense = nullptr;
  std::uint64_t* keys = nullptr;
};

/** Takes lines of text[from..) that begin before `until`. `logarithms` has room for a row. */
Stopped parseCriteo(View text, std::size_t from, std::size_t until, CriteoRows& rows, Logarithms& logarithms,
                    bool vector);

/**
 * The last three have the number of their column in them, which is its `seed`: up to 8 hexadecimal or up to 9
 * decimal digits below it, or the FNV-1a hash of a text mixed with it.
 */
enum class KeyKind : std::uint8_t { Integer, Hash, String, Hash64, Hex8, Digits9, Fnv };
enum class TransformKind : std::uint8_t { None, Log1p, Normalise, Bucketise };

struct LabelColumn {
  std::uint32_t place = 0;
  /** 1 from this number on; else the column has 0 and 1. */
  bool threshold = false;
  /** The column has any numbers, and they are the labels. */
  bool any = false;
  double atLeast = 0;
};

struct DenseColumn {
  std::uint32_t place = 0;
  TransformKind kind = TransformKind::None;
  double mean = 0, std = 1;
  std::vector<double> boundaries;

  std::size_t width() const { return kind == TransformKind::Bucketise ? boundaries.size() + 1 : 1; }
};

/** A longer line is not taken: MAX_LINE_BYTES of src/data/lines.ts. */
inline constexpr std::size_t kMostLineBytes = 64 * 1024;
inline constexpr std::uint32_t kNoPlace = 0xFFFFFFFF;

struct SparseColumn {
  std::uint32_t place = 0, weights = kNoPlace;
  KeyKind key = KeyKind::String;
  /** `utf8`: a text that is no UTF-8 is not taken; else its bytes are hashed. */
  bool shared = false, multi = false, utf8 = false;
  /** Bytes are one value where `multi`; a separator in them is a byte as any other. */
  bool whole = false;
  std::uint32_t seed = 0, limit = 1;
  /** Not empty where `multi`. */
  std::string separator;
};

/** A schema for the columns of one file; places are below `fields`. */
struct LinePlan {
  std::uint8_t delimiter = '\t';
  std::uint32_t fields = 0;
  std::vector<LabelColumn> labels;
  std::vector<DenseColumn> dense;
  std::vector<SparseColumn> sparse;
  std::uint32_t weight = kNoPlace, time = kNoPlace;

  std::size_t denseWidth() const;
  std::size_t logarithms() const;
};

/** Keys of a sparse column, and where those of each row begin. */
struct KeyList {
  std::uint64_t* keys = nullptr;
  float* weights = nullptr;
  std::uint32_t* offsets = nullptr;
  std::size_t count = 0, capacity = 0;
};

struct SchemaRows {
  std::uint32_t size = 0, capacity = 0;
  float *targets = nullptr, *dense = nullptr, *weights = nullptr;
  double* times = nullptr;
  std::vector<KeyList> lists;
};

class LineParser {
 public:
  explicit LineParser(LinePlan plan);

  const LinePlan& plan() const { return plan_; }
  /** As parseCriteo. A line with a quote is not taken. */
  Stopped parse(View text, std::size_t from, std::size_t until, SchemaRows& rows, Logarithms& logarithms,
                bool vector);

 private:
  template <bool kVector>
  Stopped parseLines(View text, std::size_t from, std::size_t until, SchemaRows& rows,
                     Logarithms& logarithms);
  Stop addRow(SchemaRows& rows, Logarithms& logarithms, std::uint32_t& full);
  bool addNumbers(SchemaRows& rows, Logarithms& logarithms) const;
  Stop addKeys(std::size_t index, KeyList& list) const;
  /** Ends rows from `first` on. */
  void finish(SchemaRows& rows, std::uint32_t first) const;

  LinePlan plan_;
  /** The sparse columns as lines are parsed: numbers are hashed when all lines are there. */
  std::vector<SparseColumn> sparse_;
  /** Keys of their missing values, of columns with one value */
  std::vector<std::uint64_t> missing_;
  /** Sparse columns with several values */
  std::vector<std::uint32_t> lists_;
  std::vector<Cell> cells_;
  /** Keys of each sparse column before the row at hand, and before all of them */
  std::vector<std::size_t> counts_, before_;
};

}  // namespace kintsugi
