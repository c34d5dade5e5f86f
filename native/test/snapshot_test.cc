// Snapshots and loaded rows: random histories of pushes between the pieces of a snapshot, against copies that
// were taken from a model at once; and chains of a full snapshot and what changed since, which a second shard
// loads.
#include <algorithm>
#include <set>

#include "test/support.h"

namespace kintsugi::test {
namespace {

using Content = std::map<std::uint64_t, std::vector<float>>;  // rows by key
using Contents = std::map<std::uint32_t, Content>;            // by table

struct Piece {
  std::uint32_t table = 0;
  std::vector<std::uint64_t> keys;
  std::vector<float> values, state;
  std::vector<std::uint64_t> removed;
};

/** False when the snapshot is over. */
bool readPiece(Shard& shard, std::size_t maxBytes, Piece& piece) {
  bool called = false;
  CHECK(!shard.readSnapshot(maxBytes, [&](const Table& table, std::size_t rows, RowArrays& to) {
    CHECK(!called && (rows > 0) != (to.removedCount > 0));
    called = true;
    piece.table = table.spec().id;
    piece.keys.resize(rows);
    piece.values.resize(rows * table.spec().dim);
    piece.state.resize(rows * (table.spec().width() - table.spec().dim));
    piece.removed.resize(to.removedCount);
    to.keys = piece.keys.data();
    to.values = reinterpret_cast<std::uint8_t*>(piece.values.data());
    to.state = reinterpret_cast<std::uint8_t*>(piece.state.data());
    to.removed = piece.removed.data();
    return true;
  }));
  return called;
}

std::size_t bytesOf(const Piece& piece) {
  return (piece.keys.size() + piece.removed.size()) * 8 + (piece.values.size() + piece.state.size()) * 4;
}

void addTo(Contents& contents, const Piece& piece, const Table& table) {
  const std::uint32_t dim = table.spec().dim, state = table.spec().width() - dim;
  for (std::size_t i = 0; i < piece.keys.size(); i++) {
    std::vector<float> row(piece.values.begin() + static_cast<std::ptrdiff_t>(i * dim),
                           piece.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * dim));
    row.insert(row.end(), piece.state.begin() + static_cast<std::ptrdiff_t>(i * state),
               piece.state.begin() + static_cast<std::ptrdiff_t>((i + 1) * state));
    CHECK((contents[piece.table].emplace(piece.keys[i], std::move(row)).second));  // each key once
  }
}

LoadedRows loaded(const Piece& piece) {
  return {piece.table,       piece.keys.data(),   piece.values.data(), piece.state.data(),
          piece.keys.size(), piece.values.size(), piece.state.size()};
}

Status load(Shard& shard, const Piece& piece) {
  Status status;
  if (!piece.removed.empty()) {
    LoadedRows gone;
    gone.table = piece.table;
    gone.keys = piece.removed.data();
    gone.keyCount = piece.removed.size();
    CHECK(!shard.unloadRows(gone, status));
    CHECK(status == Status::Applied && shard.totalsAreRight());
  }
  CHECK(!shard.loadRows(loaded(piece), status));
  return status;
}

bool sameRow(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

/** All rows that a shard has now, by a snapshot of all of it. */
Contents contentsOf(Shard& shard) {
  SnapshotBegun begun;
  CHECK(!shard.beginSnapshot(0, begun));
  Contents all;
  Piece piece;
  std::uint64_t rows = 0, bytes = 0;
  while (readPiece(shard, 1 << 16, piece)) {
    addTo(all, piece, *shard.table(piece.table));
    rows += piece.keys.size();
    bytes += bytesOf(piece);
  }
  CHECK_EQ(rows, begun.rows);
  CHECK_EQ(bytes, begun.bytes);
  return all;
}

void checkSame(const Contents& a, const Contents& b) {
  CHECK_EQ(a.size(), b.size());
  for (const auto& [table, rows] : a) {
    CHECK(b.contains(table));
    CHECK_EQ(rows.size(), b.at(table).size());
    for (const auto& [key, row] : rows) {
      CHECK(b.at(table).contains(key));
      CHECK(sameRow(row, b.at(table).at(key)));
    }
  }
}

std::vector<TableSpec> specs() {
  return {tableSpec(1, 1, OptimizerKind::Sgd, InitializerKind::Uniform),
          scheduled(tableSpec(2, 7, OptimizerKind::Adagrad, InitializerKind::Normal)),
          tableSpec(5, 64, OptimizerKind::Adam, InitializerKind::Uniform),
          tableSpec(9, 700, OptimizerKind::Adam, InitializerKind::Zeros)};  // rows wider than a block
}

class History {
 public:
  explicit History(std::uint64_t seed)
      : random_(seed),
        memory_(std::make_shared<Memory>(0)),
        shard_(std::make_unique<Shard>(memory_, 0, 1, 1)) {
    for (const TableSpec& spec : specs()) {
      tables_.push_back({spec, TableModel(spec), {}});
      // The last table comes later, when a snapshot may be open.
      if (spec.id != 9) CHECK(!shard_->addTable(spec));
    }
  }

  Shard& shard() { return *shard_; }
  Random& random() { return random_; }
  std::shared_ptr<Memory> memory() { return memory_; }

  void addLast() { CHECK(!shard_->addTable(tables_.back().spec)); }

  void push(bool flush) {
    const std::uint32_t mode = random_.chance(30);
    const bool deletes = random_.chance(8);
    std::vector<PartData> parts;
    for (Tracked& t : tables_) {
      if (!shard_->table(t.spec.id) || random_.chance(30)) continue;
      parts.push_back(rowsFor(t, mode, deletes && random_.chance(50)));
      t.model.push(mode, parts.back());
      for (const std::uint64_t key : parts.back().keys) {
        if (!parts.back().width) {
          t.keys.erase(key);
        } else {
          t.keys.insert(key);
        }
      }
    }
    const Bytes section = encode(mode, parts, true);
    CHECK(shard_->push(view(section)) == Status::Applied);
    CHECK(shard_->totalsAreRight());
    if (!flush) return;
    if (random_.chance(50)) {
      flushed(*shard_);
    } else {
      shard_->dropBatch();
    }
  }

  void loadSome() {
    if (shard_->dirty()) flushed(*shard_);
    Tracked& t = tables_[random_.below(3)];
    const PartData data = rowsFor(t, 1);
    Piece piece{t.spec.id, data.keys, {}, {}, {}};
    for (std::size_t i = 0; i < data.keys.size(); i++) {
      const float* row = data.rows.data() + i * data.width;
      piece.values.insert(piece.values.end(), row, row + t.spec.dim);
      piece.state.insert(piece.state.end(), row + t.spec.dim, row + data.width);
    }
    CHECK(load(*shard_, piece) == Status::Applied);
    CHECK(!shard_->dirty() && shard_->totalsAreRight());
    t.model.push(1, data);
    t.keys.insert(data.keys.begin(), data.keys.end());
  }

  /** The shard dies and comes back with the keys of some rows taken back: their slots are free. */
  void recoverWithHoles() {
    flushed(*shard_);
    auto back = std::make_unique<Shard>(memory_, 0, 1, 1);
    for (Tracked& t : tables_) {
      if (!shard_->table(t.spec.id)) continue;
      CHECK(!back->addTable(t.spec));
      const std::uint32_t extent = shard_->table(t.spec.id)->extent();
      CHECK(!back->adopt(t.spec.id, extent));
      SnapshotBegun begun;
      if (extent) CHECK(back->beginSnapshot(0, begun));  // absent blocks
      BlockPairs blocks;
      for (const ColumnKind kind : {kKeys, kRows}) {
        for (std::uint32_t b = 0; b < shard_->table(t.spec.id)->shape(kind).blocks(extent); b++)
          append(blocks, {t.spec.id * 2 + kind, b});
      }
      ReadResult result;
      Bytes bytes =
          answerOf([&](const Allocate& allocate) { CHECK(!shard_->read(list(blocks), result, allocate)); });
      makeHoles(t, extent, bytes);
      std::uint32_t installed = 0;
      CHECK(!back->install(list(blocks), view(bytes), installed));
      CHECK_EQ(installed, blocks.size() / 2);
    }
    CHECK(back->totalsAreRight());
    shard_ = std::move(back);
  }

  Contents contents() const {
    Contents all;
    for (const Tracked& t : tables_) {
      for (const std::uint64_t key : t.keys) all[t.spec.id][key] = t.model.row(key);
    }
    return all;
  }

 private:
  struct Tracked {
    TableSpec spec;
    TableModel model;
    std::set<std::uint64_t> keys;
  };

  PartData rowsFor(const Tracked& t, std::uint32_t mode, bool deletes = false) {
    PartData data{t.spec.id, deletes ? 0 : mode ? t.spec.width() : t.spec.dim, {}, {}};
    const std::uint32_t count = random_.below(t.spec.dim > 64 ? 4 : 60);
    const std::uint32_t range = t.spec.dim > 64 ? 30 : 1500;
    const std::uint32_t from = random_.below(range);
    for (std::uint32_t i = 0; i < count; i++) {
      // Near each other, so that some blocks change and others do not; and some twice in a push.
      data.keys.push_back(random_.chance(10) ? random_.below(range) : from + random_.below(40));
      for (std::uint32_t x = 0; x < data.width; x++) data.rows.push_back(random_.real());
    }
    return data;
  }

  void makeHoles(Tracked& t, std::uint32_t extent, Bytes& bytes) {
    const std::size_t keyBytes = shard_->table(t.spec.id)->shape(kKeys).bytes(extent);
    const ColumnShape& rows = shard_->table(t.spec.id)->shape(kRows);
    for (std::uint32_t slot = 0; slot < extent; slot++) {
      if (!random_.chance(20)) continue;
      const std::uint64_t tag = loadAt<std::uint64_t>(bytes.data(), slot);
      if (!tag) continue;
      t.keys.erase(tag - 1);
      t.model.forget(tag - 1);
      storeAt<std::uint64_t>(bytes.data(), slot, 0);
      std::uint8_t* row = bytes.data() + keyBytes + std::size_t{slot / rows.slotsPerBlock} * rows.blockBytes +
                          std::size_t{slot % rows.slotsPerBlock} * rows.stride;
      std::memset(row, 0, rows.stride);
    }
  }

  Random random_;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<Shard> shard_;
  std::vector<Tracked> tables_;
};

/** A shard that follows another one by its chain of snapshots. */
class Follower {
 public:
  Follower() : shard_(std::make_shared<Memory>(0), 0, 1, 1) {
    for (const TableSpec& spec : specs()) CHECK(!shard_.addTable(spec));
  }
  std::uint32_t since() const { return since_; }
  void take(std::uint32_t stamp, const std::vector<Piece>& pieces, const Contents& expected) {
    for (const Piece& piece : pieces) CHECK(load(shard_, piece) == Status::Applied);
    since_ = stamp;
    checkSame(contentsOf(shard_), expected);
  }

 private:
  Shard shard_;
  std::uint32_t since_ = 0;
};

struct Taken {
  std::vector<Piece> pieces;
  std::uint64_t rows = 0, bytes = 0;
};

/** Reads the open snapshot to its end while the history goes on. False if it was given up on the way. */
bool readAll(History& h, Taken& taken) {
  Shard& shard = h.shard();
  const std::uint32_t end = h.random().chance(25) ? h.random().below(20) : kNone;
  while (true) {
    for (std::uint32_t n = h.random().below(3); n; n--) {
      if (h.random().chance(20)) {
        h.loadSome();
      } else {
        h.push(h.random().chance(50));
      }
    }
    if (taken.pieces.size() == end) {
      shard.endSnapshot();
      CHECK_EQ(shard.snapshotBytes(), 0u);
      return false;
    }
    const std::size_t maxBytes = 1 + h.random().below(h.random().chance(50) ? 500 : 40000);
    Piece piece;
    if (!readPiece(shard, maxBytes, piece)) return true;
    const TableSpec& spec = shard.table(piece.table)->spec();
    const std::size_t row = 8 + spec.width() * 4;
    CHECK(bytesOf(piece) <= maxBytes || piece.keys.size() + piece.removed.size() == 1);
    CHECK_EQ(bytesOf(piece), piece.keys.size() * row + piece.removed.size() * 8);
    CHECK_EQ(h.memory()->used(), shard.bytes());
    taken.rows += piece.keys.size();
    taken.bytes += bytesOf(piece);
    taken.pieces.push_back(std::move(piece));
  }
}

TEST(snapshotsAreOneInstant) {
  std::size_t removed = 0;
  for (std::uint64_t round = 0; round < 6; round++) {
    History h(seed * 100 + round);
    for (int i = 0; i < 20; i++) h.push(true);
    if (round % 2) h.recoverWithHoles();
    auto follower = std::make_unique<Follower>();
    std::map<std::uint32_t, Contents> at;  // content when each snapshot began
    at[0] = {};
    std::uint32_t complete = 0;
    for (std::uint32_t n = 1; n <= 14; n++) {
      if (n == 3) h.addLast();
      for (std::uint32_t i = h.random().below(4); i; i--) h.push(true);
      if (h.shard().dirty()) flushed(h.shard());
      const std::uint32_t since = h.random().chance(70) ? follower->since() : h.random().below(n + 2);
      const Contents now = h.contents();
      SnapshotBegun begun, second;
      CHECK(!h.shard().beginSnapshot(since, begun));
      CHECK_EQ(begun.stamp, n);
      CHECK_EQ(begun.since, since < n ? since : 0);
      CHECK(h.shard().beginSnapshot(since, second));  // one at a time
      at[n] = now;
      Taken taken;
      if (!readAll(h, taken)) continue;
      CHECK_EQ(h.shard().snapshotBytes(), 0u);
      CHECK_EQ(taken.rows, begun.rows);
      CHECK_EQ(taken.bytes, begun.bytes);
      Contents got;
      for (const Piece& piece : taken.pieces) addTo(got, piece, *h.shard().table(piece.table));
      // Added to the content when `since` began, the snapshot gives the content now, and nothing else.
      Contents sum = at[begun.since];
      for (const Piece& piece : taken.pieces) {
        for (const std::uint64_t key : piece.removed) {
          CHECK(!got[piece.table].count(key));
          removed += sum[piece.table].erase(key);
        }
      }
      for (const auto& [table, rows] : got) {
        for (const auto& [key, row] : rows) sum[table][key] = row;
      }
      checkSame(sum, now);
      if (!begun.since) follower = std::make_unique<Follower>();
      if (begun.since == follower->since()) {
        follower->take(n, taken.pieces, now);
        complete++;
      }
    }
    CHECK(complete >= 2);
    if (h.shard().dirty()) flushed(h.shard());
    checkSame(contentsOf(h.shard()), h.contents());
  }
  CHECK(removed > 0);
}

TEST(valuesByKey) {
  Shard shard(std::make_shared<Memory>(0), 0, 1, 1);
  const TableSpec spec = tableSpec(2, 7, OptimizerKind::Adagrad, InitializerKind::Normal);
  CHECK(!shard.addTable(spec));
  Random random(seed);
  Piece piece{2, {}, {}, {}, {}};
  for (std::uint64_t key = 0; key < 900; key += 3) {
    piece.keys.push_back(key);
    for (std::uint32_t x = 0; x < spec.width(); x++)
      (x < spec.dim ? piece.values : piece.state).push_back(random.real());
  }
  CHECK(load(shard, piece) == Status::Applied);
  std::vector<std::uint64_t> keys;
  for (int i = 0; i < 500; i++) keys.push_back(random.below(900));
  for (const bool initial : {false, true}) {
    std::vector<float> into(keys.size() * spec.dim, -3), expected(spec.dim);
    std::vector<std::uint8_t> found(keys.size(), 2);
    std::size_t count = 0, there = 0;
    CHECK(!shard.readValues({2, keys.data(), into.data(), found.data(), keys.size(), into.size(), initial},
                            count));
    for (std::size_t i = 0; i < keys.size(); i++) {
      const bool has = keys[i] % 3 == 0;
      there += has;
      CHECK_EQ(found[i], has ? 1 : 2);
      expected.assign(spec.dim, -3);
      if (has) {
        std::memcpy(expected.data(), piece.values.data() + keys[i] / 3 * spec.dim, spec.dim * 4);
      } else if (initial) {
        initialValues(spec, keys[i], expected.data());
      }
      CHECK(std::memcmp(expected.data(), into.data() + i * spec.dim, spec.dim * 4) == 0);
    }
    CHECK_EQ(count, there);
    CHECK(shard.readValues({2, keys.data(), into.data(), nullptr, keys.size(), into.size() - 1, initial},
                           count));  // lengths
    CHECK(shard.readValues({3, keys.data(), into.data(), nullptr, keys.size(), into.size(), initial}, count));
  }
  const std::uint64_t reserved = ~std::uint64_t{0};
  float row[7];
  std::size_t count;
  CHECK(std::string_view(shard.readValues({2, &reserved, row, nullptr, 1, 7, true}, count).code) ==
        "KEY_RESERVED");
}

}  // namespace
}  // namespace kintsugi::test
