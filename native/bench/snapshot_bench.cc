// The cost of snapshots: pushes to a shard that never had one, to one that keeps stamps, and to one whose
// snapshot is being read; and the rates of reading a snapshot and of loading rows, against copying as many
// bytes.
#include <cstring>
#include <memory>

#include "bench/measure.h"
#include "engine/router.h"
#include "engine/shard.h"

using namespace kintsugi;
using namespace kintsugi::bench;

namespace {

constexpr std::size_t kBatch = 4096, kPieceBytes = std::size_t{1} << 20,
                      kSegmentBytes = std::size_t{16} << 20;

using Bytes = std::vector<std::uint8_t>;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

struct Rows {
  std::vector<std::uint64_t> keys;
  std::vector<float> values, state;

  std::size_t bytes() const { return keys.size() * 8 + (values.size() + state.size()) * 4; }
};

class Bench {
 public:
  Bench(const char* name, std::uint32_t dim, OptimizerKind kind, std::size_t rows, bool smoke)
      : name_(name), rows_(rows), smoke_(smoke), memory_(std::make_shared<Memory>(0)) {
    spec_.dim = dim;
    spec_.optimizer.kind = kind;
    spec_.optimizer.lr = 0.01f;
    spec_.optimizer.eps = 1e-8f;
    for (std::size_t i = 0; i < (smoke ? 4 : 256); i++) pushes_.push_back(randomPush(i));
  }

  void run(Report& report) {
    plain_ = filled();
    loads(report);  // leaves a second shard with the same rows
    pushes(report);
    whileRead(report);
    plain_.reset();
    stamped_.reset();
  }

  std::uint64_t hash() const { return hash_; }

 private:
  Bytes randomPush(std::uint64_t seed) const {
    std::vector<std::uint64_t> keys(kBatch);
    for (std::size_t i = 0; i < kBatch; i++) keys[i] = mix64(mix64(seed) + i) % rows_;
    const std::vector<float> gradients(kBatch * spec_.dim, 0.25f);
    std::vector<std::uint32_t> order(kBatch);
    for (std::uint32_t i = 0; i < kBatch; i++) order[i] = i;
    const SectionPart part{0, spec_.dim, keys.data(), gradients.data(), kBatch, order.data(), 0, kBatch};
    Bytes section(requestBytes({part}));
    if (!encodeRequest(0, {part}, section.data())) fail("a request does not fit");
    return section;
  }

  std::unique_ptr<Shard> empty() const {
    auto shard = std::make_unique<Shard>(memory_, 0, 1, 1);
    if (shard->addTable(spec_)) fail("the table was refused");
    return shard;
  }

  /** Whole rows of `count` keys. */
  void rowsFrom(std::size_t from, std::size_t count, Rows& rows) const {
    rows.keys.clear();
    for (std::size_t key = from; key < from + count; key++) rows.keys.push_back(key);
    rows.values.assign(count * spec_.dim, 0.5f);
    rows.state.assign(count * (spec_.width() - spec_.dim), 1.0f);
  }

  std::unique_ptr<Shard> filled() const {
    auto shard = empty();
    Rows rows;
    for (std::size_t from = 0; from < rows_; from += kBatch) {
      rowsFrom(from, std::min(kBatch, rows_ - from), rows);
      load(*shard, rows);
    }
    return shard;
  }

  static void load(Shard& shard, const Rows& rows) {
    Status status;
    const LoadedRows loaded{0,
                            rows.keys.data(),
                            rows.values.data(),
                            rows.state.data(),
                            rows.keys.size(),
                            rows.values.size(),
                            rows.state.size()};
    if (shard.loadRows(loaded, status) || status != Status::Applied) fail("rows were refused");
  }

  void push(Shard& shard, std::size_t turn) {
    const Bytes& section = pushes_[turn % pushes_.size()];
    if (shard.push({section.data(), section.size()}) != Status::Applied) fail("a push was refused");
    shard.flush([&](std::size_t bytes) {
      if (delta_.size() < bytes) delta_.resize(bytes);
      return delta_.data();
    });
  }

  /** The next piece of the open snapshot into `to`, whose memory is used again. False when it is over. */
  static bool read(Shard& shard, Rows& to) {
    bool more = false;
    if (shard.readSnapshot(kPieceBytes, [&](const Table& t, std::size_t n, RowArrays& out) {
          more = true;
          to.keys.resize(n);
          to.values.resize(n * t.spec().dim);
          to.state.resize(n * (t.spec().width() - t.spec().dim));
          out = {to.keys.data(), reinterpret_cast<std::uint8_t*>(to.values.data()),
                 reinterpret_cast<std::uint8_t*>(to.state.data())};
          return true;
        })) {
      fail("a snapshot was lost");
    }
    return more;
  }

  std::string title(const char* what) const { return std::string(what) + ", " + name_; }

  void loads(Report& report) {
    std::size_t bytes = 0;
    SnapshotBegun begun;
    double reading = 1e9;
    for (int round = 0; round < (smoke_ ? 1 : 5); round++) {
      if (plain_->beginSnapshot(0, begun)) fail("no snapshot");
      Rows piece;
      std::size_t read_ = 0;
      reading = std::min(reading, seconds([&] {
                           while (read(*plain_, piece)) read_ += piece.bytes();
                         }));
      bytes = read_;
    }
    // A shard whose rows come as segments of files would: in order, then in any order over what is there.
    const std::size_t perSegment = kSegmentBytes / (8 + spec_.width() * std::size_t{4});
    double fresh = 1e9, again = 0;
    Rows rows;
    // The best of some rounds: memory that this machine has never used costs more than all the rest.
    for (int round = 0; round < (smoke_ ? 1 : 3); round++) {
      stamped_ = empty();
      double time = 0;
      for (std::size_t from = 0; from < rows_; from += perSegment) {
        rowsFrom(from, std::min(perSegment, rows_ - from), rows);
        time += seconds([&] { load(*stamped_, rows); });
      }
      fresh = std::min(fresh, time);
    }
    const std::size_t some = std::min<std::size_t>(rows_, perSegment * 16);
    for (std::size_t from = 0; from < some; from += perSegment) {
      rowsFrom(from, std::min(perSegment, some - from), rows);
      for (std::uint64_t& key : rows.keys) key = mix64(key) % rows_;
      again += seconds([&] { load(*stamped_, rows); });
    }
    std::vector<std::uint8_t> from(kSegmentBytes, 1);
    std::uint8_t* to = memory(bytes, 0);
    double copied = 1e9;
    for (int round = 0; round < (smoke_ ? 1 : 5); round++) {
      copied = std::min(copied, seconds([&] {
                          for (std::size_t at = 0; at + kSegmentBytes <= bytes; at += kSegmentBytes)
                            std::memcpy(to + at, from.data(), kSegmentBytes);
                        }));
    }
    hash_ ^= digest(to, std::min<std::size_t>(bytes, 1 << 20));
    std::free(to);
    const double n = static_cast<double>(rows_), size = static_cast<double>(bytes);
    const double part = static_cast<double>(some) / n;
    const std::vector<Candidate> candidates = {
        {"read a snapshot", {}}, {"load new rows", {}}, {"load over rows", {}}, {"memcpy", {}}};
    report.add(title("rows"), "GB/s", candidates,
               {size / reading / 1e9, size / fresh / 1e9, size * part / again / 1e9, size / copied / 1e9});
    report.add(title("rows, number"), "M rows/s", candidates,
               {n / reading / 1e6, n / fresh / 1e6, n * part / again / 1e6, n / copied / 1e6});
  }

  /** Both shards have the same rows and get the same pushes. */
  void pushes(Report& report) {
    plain_ = filled();  // one that never had a snapshot
    const auto turns = [&](Shard& shard) {
      auto turn = std::make_shared<std::size_t>(0);
      return [&shard, turn, this] { push(shard, (*turn)++); };
    };
    // Two shards are never equally fast: what counts is how the difference changes with the first snapshot.
    for (const bool stamps : {false, true}) {
      SnapshotBegun begun;
      if (stamps && stamped_->beginSnapshot(0, begun)) fail("no snapshot");
      stamped_->endSnapshot();
      const std::vector<Candidate> candidates = {
          {"no snapshots", turns(*plain_)},
          {stamps ? "the other, with stamps" : "the other, no snapshots either", turns(*stamped_)}};
      std::vector<double> values = interleave(candidates, smoke_ ? 1 : 101, smoke_ ? 1 : 32);
      for (double& v : values) v = kBatch / v / 1e6;
      report.add(title(stamps ? "push, stamps" : "push, before"), "M rows/s", candidates, values);
    }
  }

  /** A piece of 1 MiB is read after each push. */
  void whileRead(Report& report) {
    double without = 0, with = 0, reading = 0;
    std::size_t kept = 0, count = 0, turn = 0;
    for (int round = 0; round < (smoke_ ? 1 : 3); round++) {
      SnapshotBegun begun;
      if (stamped_->beginSnapshot(0, begun)) fail("no snapshot");
      Rows piece;
      for (bool more = true; more; count++, turn++) {
        without += seconds([&] { push(*plain_, turn); });
        with += seconds([&] { push(*stamped_, turn); });
        kept = std::max(kept, stamped_->snapshotBytes());
        reading += seconds([&] { more = read(*stamped_, piece); });
      }
    }
    const double n = static_cast<double>(count);
    report.add(title("push while a snapshot is read"), "M rows/s", {{"no snapshots", {}}, {"snapshot", {}}},
               {kBatch * n / without / 1e6, kBatch * n / with / 1e6});
    report.add(title("a snapshot that is read while pushes go on"), "ms and MiB",
               {{"ms per piece", {}}, {"MiB kept at most", {}}, {"pieces", {}}},
               {reading / n * 1e3, static_cast<double>(kept) / (1 << 20), n / (smoke_ ? 1 : 3)});
  }

  const char* name_;
  std::size_t rows_;
  bool smoke_;
  std::shared_ptr<Memory> memory_;
  TableSpec spec_;
  std::vector<Bytes> pushes_;
  std::unique_ptr<Shard> plain_, stamped_;
  Bytes delta_;
  std::uint64_t hash_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  Report report;
  std::uint64_t hash = 0;
  for (const bool wide : {false, true}) {
    Bench bench(wide ? "adagrad dim 64" : "sgd dim 16", wide ? 64 : 16,
                wide ? OptimizerKind::Adagrad : OptimizerKind::Sgd,
                smoke  ? 20'000
                : wide ? 1'000'000
                       : 4'000'000,
                smoke);
    bench.run(report);
    hash ^= bench.hash();
  }
  report.print(kernels().name, hash, "");
  return 0;
}
