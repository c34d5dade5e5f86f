// The cost of a row when there are many. A group of 4+1 with a million rows and one with fifty million take
// turns: pushes with their delta applied to the parity, and pulls. Then the memory of the large one, as the
// kernel counts it.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <unordered_set>

#include "bench/measure.h"
#include "engine/router.h"
#include "engine/shard.h"
#include "engine/sink.h"

using namespace kintsugi;
using namespace kintsugi::bench;

namespace {

constexpr std::uint32_t kDim = 16, kMembers = 4, kParities = 1;
constexpr std::size_t kBatch = 4096;

using Bytes = std::vector<std::uint8_t>;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

/** A request for `keys`, with a gradient for each where `rows` are given. */
Bytes request(const std::vector<std::uint64_t>& keys, const std::vector<float>* rows) {
  std::vector<std::uint32_t> order(keys.size());
  for (std::uint32_t i = 0; i < order.size(); i++) order[i] = i;
  const SectionPart part{0,           kDim,         keys.data(), rows ? rows->data() : nullptr,
                         keys.size(), order.data(), 0,           keys.size()};
  Bytes section(requestBytes({part}));
  if (!encodeRequest(0, {part}, section.data())) fail("a request does not fit");
  return section;
}

class Group {
 public:
  explicit Group(std::size_t rowsPerShard)
      : memory_(std::make_shared<Memory>(0)), sink_(memory_, kMembers, 0, true) {
    TableSpec spec;
    spec.dim = kDim;
    spec.optimizer.lr = 0.01f;
    spec.initializer = {InitializerKind::Uniform, -0.1, 0.1};
    for (std::uint32_t m = 0; m < kMembers; m++) {
      shards_.push_back(std::make_unique<Shard>(memory_, m, kMembers, kParities));
      if (shards_[m]->addTable(spec)) fail("the table was refused");
    }
    const std::vector<float> gradients(kBatch * kDim, 0.5f);
    std::vector<std::uint64_t> keys;
    for (std::size_t from = 0; from < rowsPerShard; from += kBatch) {
      keys.clear();
      for (std::size_t key = from; key < std::min(rowsPerShard, from + kBatch); key++) keys.push_back(key);
      const Bytes section = request(keys, &gradients);
      for (std::uint32_t m = 0; m < kMembers; m++) push(m, section);
    }
  }

  void push(std::uint32_t m, const Bytes& section) {
    if (shards_[m]->push({section.data(), section.size()}) != Status::Applied) fail("a push was refused");
    std::size_t size = 0;
    shards_[m]->flush([&](std::size_t bytes) {
      if (delta_.size() < bytes) delta_.resize(bytes);
      size = bytes;
      return delta_.data();
    });
    BlockPairs again;
    if (sink_.apply(m, {delta_.data(), size}, again) != Status::Applied) fail("a delta was refused");
  }

  void pull(std::uint32_t m, const Bytes& section) {
    const Status status = shards_[m]->pull({section.data(), section.size()}, [&](std::size_t bytes) {
      if (answer_.size() < bytes) answer_.resize(bytes);
      return answer_.data();
    });
    if (status != Status::Applied) fail("a pull was refused");
  }

  std::uint64_t hash() const { return digest(answer_.data(), answer_.size()); }
  std::size_t charged() const { return memory_->used(); }

 private:
  std::shared_ptr<Memory> memory_;
  std::vector<std::unique_ptr<Shard>> shards_;
  Sink sink_;
  Bytes delta_, answer_;
};

/** Requests of distinct random keys, at the same places of every table in proportion to its size. */
struct Requests {
  std::vector<Bytes> pushes, pulls;

  Requests(std::size_t rowsPerShard, std::size_t count) {
    const std::vector<float> gradients(kBatch * kDim, 0.25f);
    std::uint64_t drawn = 0;
    std::vector<std::uint64_t> keys;
    std::unordered_set<std::uint64_t> seen;
    for (std::size_t i = 0; i < count; i++) {
      keys.clear();
      seen.clear();
      while (keys.size() < std::min(kBatch, rowsPerShard / 2)) {
        const std::uint64_t key = mix64(++drawn) % rowsPerShard;
        if (seen.insert(key).second) keys.push_back(key);
      }
      pushes.push_back(request(keys, &gradients));
      pulls.push_back(request(keys, nullptr));
    }
  }
};

std::size_t residentBytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

// Arguments: --smoke, or the rows of the two groups.
int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  const std::size_t small = (smoke ? 16'000 : 1'000'000) / kMembers,
                    large = (smoke ? 64'000 : 50'000'000) / kMembers;
  const std::size_t count = smoke ? 4 : 512;
  const Requests fewKeys(small, count), manyKeys(large, count);
  Group few(small);
  const std::size_t before = residentBytes();
  Group many(large);
  const std::size_t resident = residentBytes() - before;
  const auto turns = [&](Group& group, const std::vector<Bytes>& requests, bool push) {
    auto turn = std::make_shared<std::size_t>(0);
    return [&group, &requests, turn, push, count] {
      const std::size_t at = (*turn)++;
      const auto m = static_cast<std::uint32_t>(at % kMembers);
      if (push) {
        group.push(m, requests[at % count]);
      } else {
        group.pull(m, requests[at % count]);
      }
    };
  };
  const int rounds = smoke ? 1 : 11, passes = static_cast<int>(count);
  Report report;
  const auto rows = static_cast<double>(std::min(kBatch, small / 2));
  for (const bool push : {true, false}) {
    const std::vector<Candidate> candidates = {
        {"few rows", turns(few, push ? fewKeys.pushes : fewKeys.pulls, push)},
        {"many rows", turns(many, push ? manyKeys.pushes : manyKeys.pulls, push)}};
    std::vector<double> values = interleave(candidates, rounds, passes);
    for (double& v : values) v = rows / v / 1e6;
    report.add(push ? "push by table size" : "pull by table size", "M rows/s", candidates, values);
  }
  const double bytes = static_cast<double>(large) * kMembers;
  report.add("memory of a row", "bytes", {{"resident", {}}, {"charged", {}}},
             {static_cast<double>(resident) / bytes, static_cast<double>(many.charged()) / bytes});
  report.print(kernels().name, few.hash() ^ many.hash(), "");
  return 0;
}
