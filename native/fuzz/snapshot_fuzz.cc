// Histories of pushes, loaded rows and snapshots, against a map. Loaded rows are hostile: arrays that do not
// fit, keys that repeat, the reserved key. A refused call changes nothing; a snapshot holds what the map
// held when it began, each key once, and with what was there before it gives all of it.
#include <map>

#include "engine/shard.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;

using Rows = std::map<std::uint64_t, std::vector<float>>;

constexpr std::uint32_t kTables = 3;
constexpr std::uint64_t kReserved = ~std::uint64_t{0};

TableSpec specOf(std::uint32_t table) {
  switch (table) {
    case 0:
      return tableSpec(0, 3, OptimizerKind::Adagrad, InitializerKind::Uniform);
    case 1:
      return tableSpec(1, 1, OptimizerKind::Sgd, InitializerKind::Zeros);
    default:
      return tableSpec(2, 600, OptimizerKind::Adam, InitializerKind::Zeros);  // a row is a block
  }
}

class Story {
 public:
  Story(const std::uint8_t* data, std::size_t size)
      : in_(data, size),
        memory_(std::make_shared<Memory>(in_.below(4) ? 0 : 128 << 10)),
        shard_(memory_, 0, 1, 1) {
    for (std::uint32_t t = 0; t < kTables; t++) CHECK(!shard_.addTable(specOf(t)));
  }

  void run() {
    while (!in_.empty()) {
      switch (in_.below(6)) {
        case 0:
        case 1:
          push();
          break;
        case 2:
          load();
          break;
        case 3:
          begin();
          break;
        case 4:
          read(1 + in_.u16());
          break;
        default:
          if (in_.below(8) == 0) end();
          shard_.dropBatch();
      }
      CHECK_EQ(memory_->used(), shard_.bytes());
    }
    while (open_) read(4096);
    shard_.dropBatch();
    since_ = 0;
    begin();
    while (open_) read(4096);
  }

 private:
  std::uint64_t key() {
    const std::uint8_t k = in_.u8();
    return k == 0xFF ? kReserved - 1 - in_.below(2) : k;  // near each other, and now and then the largest
  }

  void push() {
    const std::uint32_t table = in_.below(kTables), width = specOf(table).width();
    test::PartData part{table, width, {}, {}};
    for (std::uint32_t n = in_.below(12); n; n--) {
      part.keys.push_back(key());
      if (part.keys.back() == kReserved) part.keys.pop_back();
    }
    for (std::size_t i = 0; i < part.keys.size() * width; i++) part.rows.push_back(next());
    const Status status = shard_.push(view(test::encode(1, {part}, true)));
    if (status == Status::MemoryLimit) return;
    CHECK(status == Status::Applied);
    store(table, part.keys, [&](std::size_t i) {
      return std::vector<float>(part.rows.begin() + static_cast<std::ptrdiff_t>(i * width),
                                part.rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
    });
  }

  void load() {
    const std::uint32_t table = in_.below(kTables + 1), odd = in_.below(16);
    const TableSpec spec = specOf(table % kTables);
    const std::uint32_t state = spec.width() - spec.dim;
    std::vector<std::uint64_t> keys;
    for (std::uint32_t n = in_.below(12); n; n--) {
      keys.push_back(key());
      if (keys.back() == kReserved && odd != 3) keys.pop_back();
    }
    std::vector<float> values(keys.size() * spec.dim + (odd == 1)), states(keys.size() * state + (odd == 2));
    for (float& x : values) x = next();
    for (float& x : states) x = next();
    const bool reserved = std::find(keys.begin(), keys.end(), kReserved) != keys.end();
    const LoadedRows rows{table,       keys.data(),   values.data(), states.data(),
                          keys.size(), values.size(), states.size()};
    const std::size_t used = memory_->used();
    Status status = Status::Absent;
    if (shard_.loadRows(rows, status)) {
      CHECK(shard_.dirty());
      return;
    }
    if (status != Status::Applied) {
      CHECK_EQ(memory_->used(), used);
      if (table >= kTables)
        CHECK(status == Status::UnknownTable);
      else if (odd == 1 || odd == 2)
        CHECK(status == Status::DimMismatch);
      else if (reserved)
        CHECK(status == Status::KeyReserved);
      else
        CHECK(status == Status::MemoryLimit);
      return;
    }
    CHECK(table < kTables && odd != 1 && odd != 2 && !reserved && !shard_.dirty());
    store(table, keys, [&](std::size_t i) {
      std::vector<float> row(values.begin() + static_cast<std::ptrdiff_t>(i * spec.dim),
                             values.begin() + static_cast<std::ptrdiff_t>((i + 1) * spec.dim));
      row.insert(row.end(), states.begin() + static_cast<std::ptrdiff_t>(i * state),
                 states.begin() + static_cast<std::ptrdiff_t>((i + 1) * state));
      return row;
    });
  }

  template <class RowAt>
  void store(std::uint32_t table, const std::vector<std::uint64_t>& keys, RowAt rowAt) {
    for (std::size_t i = 0; i < keys.size(); i++) now_[table][keys[i]] = rowAt(i);
    CHECK_EQ(shard_.table(table)->index().size(), now_[table].size());
  }

  void begin() {
    const std::uint32_t since = in_.below(8) == 0 ? in_.u8() : since_;
    SnapshotBegun begun;
    if (shard_.beginSnapshot(since, begun)) {
      CHECK(open_ || shard_.dirty());
      return;
    }
    CHECK(!open_ && begun.stamp == stamp_ + 1);
    open_ = true;
    chained_ = since == 0 || since == since_ || since > stamp_;
    if (since == 0 || since > stamp_) {
      for (Rows& rows : sum_) rows.clear();
      since_ = 0;
    }
    stamp_ = begun.stamp;
    left_ = begun.rows;
    for (std::uint32_t t = 0; t < kTables; t++) {
      then_[t] = now_[t];
      seen_[t].clear();
    }
  }

  void read(std::size_t maxBytes) {
    bool any = false;
    std::vector<std::uint64_t> keys;
    std::vector<float> values, state;
    const Fault fault =
        shard_.readSnapshot(maxBytes, [&](const Table& from, std::size_t rows, RowArrays& to) {
          any = true;
          const TableSpec& spec = from.spec();
          const std::uint32_t stateFloats = spec.width() - spec.dim;
          CHECK(rows == 1 || rows * (8 + spec.width() * std::size_t{4}) <= maxBytes);
          if (in_.below(16) == 15) return false;  // the caller has no memory: these rows come again
          keys.resize(rows);
          values.resize(rows * spec.dim);
          state.resize(rows * stateFloats);
          to = {keys.data(), reinterpret_cast<std::uint8_t*>(values.data()),
                reinterpret_cast<std::uint8_t*>(state.data())};
          table_ = spec.id;
          return true;
        });
    CHECK(static_cast<bool>(fault) == !open_);
    if (fault) return;
    if (!any) return finished();
    const TableSpec spec = specOf(table_);
    const std::uint32_t stateFloats = spec.width() - spec.dim;
    CHECK(keys.size() <= left_);
    left_ -= keys.size();
    for (std::size_t i = 0; i < keys.size(); i++) {
      std::vector<float> row(values.begin() + static_cast<std::ptrdiff_t>(i * spec.dim),
                             values.begin() + static_cast<std::ptrdiff_t>((i + 1) * spec.dim));
      row.insert(row.end(), state.begin() + static_cast<std::ptrdiff_t>(i * stateFloats),
                 state.begin() + static_cast<std::ptrdiff_t>((i + 1) * stateFloats));
      CHECK(then_[table_].contains(keys[i]) && then_[table_][keys[i]] == row);
      CHECK(seen_[table_].emplace(keys[i], std::move(row)).second);
    }
  }

  void finished() {
    CHECK(left_ == 0);
    CHECK_EQ(shard_.snapshotBytes(), 0u);
    open_ = false;
    if (!chained_) return;
    since_ = stamp_;
    for (std::uint32_t t = 0; t < kTables; t++) {
      for (const auto& [key, row] : seen_[t]) sum_[t][key] = row;
      CHECK(sum_[t] == then_[t]);
    }
  }

  void end() {
    shard_.endSnapshot();
    open_ = false;
  }

  float next() { return static_cast<float>(++drawn_ % 1000003); }

  Input in_;
  std::shared_ptr<Memory> memory_;
  Shard shard_;
  Rows now_[kTables], then_[kTables], seen_[kTables], sum_[kTables];
  bool open_ = false, chained_ = false;
  std::uint32_t stamp_ = 0, since_ = 0, table_ = 0;
  std::uint64_t left_ = 0, drawn_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Story(data, size).run();
  return 0;
}
