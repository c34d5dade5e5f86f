// Whole stories of a group (test/group.h), written by the fuzzer. Every byte chooses what happens next:
// pushes, flushes, deltas taken back, lost members and parities that are rebuilt piece by piece in any order,
// with traffic in between. At the end everything is brought home, every row is compared with the model bit
// for bit, and every parity block with the sum of its members.
#include "test/group.h"

#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;
using test::PartData;

constexpr std::uint32_t kKeySpace = 1200;

class Story : public test::Group {
 public:
  Story(Input& in, std::uint32_t k, std::uint32_t r)
      : Group(k, r,
              {scheduled(tableSpec(0, 4, OptimizerKind::Adagrad, InitializerKind::Uniform)),
               tableSpec(5, 520, OptimizerKind::Momentum, InitializerKind::Zeros)}),
        in_(in) {}

  void run() {
    for (int steps = 0; !in_.empty() && steps < 80; steps++) step();
    // The rest of the input is zero from here on: a plain order of events that must come to an end.
    for (int rounds = 0; lackingNow() > 0; rounds++) {
      CHECK(rounds < 10000);
      for (std::uint32_t m = 0; m < k_; m++) recoverSome(m, 64);
      for (auto& sink : sinks_) fill(*sink, 64);
    }
    for (std::uint32_t m = 0; m < k_; m++) flush(m);
    for (std::uint32_t m = 0; m < k_; m++) compare(m, {kKeySpace + 1});  // never pushed
    for (auto& sink : sinks_) checkParity(*sink, [](std::uint32_t) {});
  }

 private:
  /** With accumulators in flight a roll-back drops them first (rule 13). */
  int timesOf(Sink& sink) override {
    if (!rollingBack_) return 1;
    sink.dropAccumulators();
    return 3;
  }

  void step() {
    const std::uint32_t what = in_.below(12), m = in_.below(k_);
    if (what < 4) return push(m);
    if (what < 6) return flush(m);
    if (what == 6) return rollBack(m);
    if (what == 7) return lose(m);
    if (what == 8) return loseSink(in_.below(r_));
    if (what == 9) return fill(*sinks_[in_.below(r_)], 1 + in_.below(4));
    return recoverSome(m, 1 + in_.below(6));
  }

  /** So many lack something, counted as the code counts them: members and parities of one group. */
  std::uint32_t lackingNow() const {
    std::uint32_t count = 0;
    for (std::uint32_t m = 0; m < k_; m++) count += absent(m) > 0;
    for (const auto& sink : sinks_) count += !sink->complete();
    return count;
  }

  void push(std::uint32_t m) {
    const std::uint32_t shape = in_.u8(), mode = shape >> 7;
    std::vector<PartData> parts;
    for (const TableSpec& spec : specs_) {
      if (shape >> (spec.id ? 1 : 0) & 1) continue;
      PartData part;
      part.table = spec.id;
      part.width = (shape & 36) == 36 ? 0 : mode ? spec.width() : spec.dim;
      // Another rate for each table, none in a quarter of the pushes.
      if (part.width && !mode && shape >> 3 & 3)
        part.lr = rateBits(static_cast<float>((shape >> 2 & 7) - 2 + spec.id) * 0.125f);
      readRows(part, spec.dim > 100 ? 40 : kKeySpace);
      parts.push_back(part);
    }
    pushParts(m, mode, parts);
  }

  /** Runs of keys, so that few bytes fill several blocks; they may overlap, and 2^64-2 is the last key there
   * is. */
  void readRows(PartData& part, std::uint32_t space) {
    for (std::uint32_t runs = in_.below(4); runs; runs--) {
      const std::uint32_t first = in_.u16() % (space + 1), length = 1 + in_.u8() % (space / 5);
      const float value = static_cast<float>(in_.u8()) - 100;
      for (std::uint32_t i = 0; i < length; i++) {
        const std::uint64_t key = first + i;
        part.keys.push_back(key % (space + 1) == space ? ~std::uint64_t{1} : key % (space + 1));
        for (std::uint32_t x = 0; x < part.width; x++) part.rows.push_back(value + static_cast<float>(x % 3));
      }
    }
  }

  void rollBack(std::uint32_t m) {
    rollingBack_ = true;
    flush(m);
    rollingBack_ = false;
  }

  void lose(std::uint32_t m) {
    if (!absent(m) && lackingNow() < r_) replaceMember(m);
  }

  void loseSink(std::uint32_t j) {
    if (sinks_[j]->complete() && lackingNow() < r_) replaceSink(j);
  }

  void fill(Sink& sink, std::size_t max) {
    for (std::uint32_t m = 0; m < k_; m++) include(sink, m, max);
  }

  void recoverSome(std::uint32_t m, std::size_t max) {
    for (const ColumnKind kind : {kKeys, kRows}) {
      BlockPairs wanted;
      members_[m].shard->nextAbsent(kind, max, wanted);
      if (wanted.empty()) continue;
      for (std::uint32_t j = 0; j < r_; j++) {
        askParity(j, m, wanted, [&](std::uint32_t other) {
          if (in_.below(4) == 3) push(other);
        });
        deliver(j);
      }
    }
  }

  Input& in_;
  bool rollingBack_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const std::uint32_t k = 1 + in.below(3), r = 1 + in.below(2);
  Story(in, k, r).run();
  return 0;
}
