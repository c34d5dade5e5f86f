// Lines of data files: the vector code and the scalar code take the same lines and write the same bytes, all
// inside the arrays they were given, and what was not a whole row leaves nothing behind.
#include "data/lines.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using fuzz::Bytes;
using fuzz::Input;

constexpr std::uint32_t kRows = 5;
const float kTable[] = {0, 0.6931472f, 1.0986123f, 1.3862944f};

/** The output of a run. */
struct Outcome {
  Stopped stopped;
  std::uint32_t rows = 0;
  std::vector<float> floats;
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> numbers;
  bool operator==(const Outcome& other) const {
    return stopped.why == other.stopped.why && stopped.at == other.stopped.at &&
           stopped.lines == other.stopped.lines && stopped.column == other.stopped.column &&
           rows == other.rows && keys == other.keys && numbers == other.numbers &&
           floats.size() == other.floats.size() &&
           (floats.empty() || std::memcmp(floats.data(), other.floats.data(), floats.size() * 4) == 0);
  }
};

/** Where it stopped is the beginning of a line, and it took the lines before. */
void checkPlace(const Bytes& text, std::size_t from, const Stopped& stopped) {
  CHECK(stopped.at >= from && stopped.at <= text.size());
  std::uint32_t lines = 0;
  for (std::size_t i = from; i < stopped.at; i++) lines += text[i] == '\n';
  CHECK_EQ(lines, stopped.lines);
  CHECK(stopped.at == from || text[stopped.at - 1] == '\n');
}

Outcome runCriteo(const Bytes& text, std::size_t from, std::size_t until, bool vector) {
  std::vector<float> labels(kRows), dense(kRows * kCriteoDense);
  Outcome out;
  out.keys.resize(kRows * kCriteoKeys);
  std::vector<std::uint32_t> places(2 * kCriteoDense);
  std::vector<double> late(places.size());
  Logarithms logarithms{kTable, std::size(kTable), places.data(), late.data(), 0, late.size()};
  CriteoRows rows{0, kRows, labels.data(), dense.data(), out.keys.data()};
  out.stopped = parseCriteo(fuzz::view(text), from, until, rows, logarithms, vector);
  out.rows = rows.size;
  CHECK_EQ(rows.size, out.stopped.lines);
  labels.resize(rows.size);
  // The numbers of a row that was not taken may be there.
  dense.resize(rows.size * kCriteoDense);
  out.keys.resize(rows.size * kCriteoKeys);
  out.floats = labels;
  out.floats.insert(out.floats.end(), dense.begin(), dense.end());
  out.numbers.assign(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(logarithms.count));
  for (const std::uint32_t place : out.numbers) CHECK(place < rows.size * kCriteoDense);
  checkPlace(text, from, out.stopped);
  return out;
}

LinePlan readPlan(Input& in) {
  LinePlan plan;
  plan.delimiter = in.below(2) ? '\t' : ',';
  plan.fields = 1 + in.below(8);
  const auto place = [&] { return in.below(plan.fields); };
  for (std::uint32_t n = in.below(3); n; n--)
    plan.labels.push_back({place(), in.below(2) == 1, in.below(2) == 1, 2.5});
  for (std::uint32_t n = in.below(4); n; n--) {
    DenseColumn column{place(), static_cast<TransformKind>(in.below(4)), 1, 2, {}};
    if (column.kind == TransformKind::Bucketise) column.boundaries = {-1, 0.5, 10};
    plan.dense.push_back(column);
  }
  for (std::uint32_t n = in.below(4); n; n--) {
    SparseColumn column;
    column.place = place();
    column.key = static_cast<KeyKind>(in.below(7));
    column.shared = in.below(2) == 1;
    column.multi = in.below(2) == 1;
    column.utf8 = in.below(2) == 1;
    column.seed = in.u8();
    column.separator = in.below(2) ? "|" : "ab";
    column.limit = 1 + in.below(4);
    if (column.multi && in.below(2)) column.weights = place();
    plan.sparse.push_back(column);
  }
  if (in.below(4) == 0) plan.weight = place();
  if (in.below(4) == 0) plan.time = place();
  return plan;
}

Outcome runPlan(const LinePlan& plan, const Bytes& text, std::size_t from, std::size_t until, bool vector) {
  LineParser parser(plan);
  const std::size_t width = plan.denseWidth();
  std::vector<float> targets(kRows * plan.labels.size()), dense(kRows * width), weights(kRows);
  std::vector<double> times(kRows), late(plan.logarithms() + 1);
  std::vector<std::uint32_t> places(late.size());
  std::vector<std::vector<std::uint64_t>> keys(plan.sparse.size(), std::vector<std::uint64_t>(kRows));
  std::vector<std::vector<float>> shares(plan.sparse.size(), std::vector<float>(kRows));
  std::vector<std::vector<std::uint32_t>> offsets(plan.sparse.size(), std::vector<std::uint32_t>(kRows + 1));
  Logarithms logarithms{kTable, std::size(kTable), places.data(), late.data(), 0, late.size()};
  SchemaRows rows;
  rows.capacity = kRows;
  rows.targets = targets.data();
  rows.dense = dense.data();
  rows.weights = weights.data();
  rows.times = times.data();
  for (std::size_t i = 0; i < plan.sparse.size(); i++)
    rows.lists.push_back({keys[i].data(), shares[i].data(), offsets[i].data(), 0, kRows});
  Outcome out;
  out.stopped = parser.parse(fuzz::view(text), from, until, rows, logarithms, vector);
  out.rows = rows.size;
  CHECK_EQ(rows.size, out.stopped.lines);
  for (std::size_t i = 0; i < plan.sparse.size(); i++) {
    const KeyList& list = rows.lists[i];
    CHECK_EQ(list.count, std::size_t{offsets[i][rows.size]});
    CHECK(list.count <= kRows);
    for (std::uint32_t row = 0; row < rows.size; row++) CHECK(offsets[i][row] <= offsets[i][row + 1]);
    if (!plan.sparse[i].multi) CHECK_EQ(list.count, std::size_t{rows.size});
    out.keys.insert(out.keys.end(), keys[i].begin(),
                    keys[i].begin() + static_cast<std::ptrdiff_t>(list.count));
    out.numbers.insert(out.numbers.end(), offsets[i].begin(), offsets[i].begin() + rows.size + 1);
    for (std::size_t j = 0; j < list.count; j++) out.floats.push_back(shares[i][j]);
  }
  CHECK(logarithms.count <= logarithms.capacity);
  for (std::size_t i = 0; i < logarithms.count; i++) CHECK(places[i] < rows.size * width);
  out.floats.insert(out.floats.end(), targets.begin(),
                    targets.begin() + static_cast<std::ptrdiff_t>(rows.size * plan.labels.size()));
  out.floats.insert(out.floats.end(), dense.begin(),
                    dense.begin() + static_cast<std::ptrdiff_t>(rows.size * width));
  checkPlace(text, from, out.stopped);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const bool criteo = in.below(3) == 0;
  const std::size_t from = in.below(4), cut = in.below(4);
  LinePlan plan;
  if (!criteo) plan = readPlan(in);
  Bytes text = in.rest();
  // A row of the Criteo layout is 40 fields: a few of them repeat the line before.
  if (criteo && text.size() > 1 && text.back() != '\n') {
    const Bytes once = text;
    for (int i = 0; i < 40; i++) {
      text.push_back('\t');
      text.push_back(once[static_cast<std::size_t>(i) % once.size()]);
    }
    text.push_back('\n');
  }
  if (from > text.size()) return 0;
  const std::size_t until = cut ? text.size() : text.size() / 2;
  const auto run = [&](bool vector) {
    return criteo ? runCriteo(text, from, until, vector) : runPlan(plan, text, from, until, vector);
  };
  CHECK(run(true) == run(false));
  return 0;
}
