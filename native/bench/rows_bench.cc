// Rows at random places of a large arena: what a parity, a push, a pull and a look-up cost, each against the
// simplest thing that touches the same bytes.
#include <array>
#include <cstring>
#include <memory>

#include "bench/measure.h"
#include "engine/index.h"
#include "engine/memory.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

using namespace kintsugi;
using namespace kintsugi::bench;

namespace {

constexpr std::size_t kBatch = 4096, kBatches = 1024;  // enough that rows are not met again in the caches
constexpr std::size_t kTurn = 256;                     // batches that a candidate does in its turn

struct Setup {
  bool smoke;
  std::size_t arenaBytes, gatherBytes, keys;
  int rounds;
};

/** kBatches lists of random slots. */
std::vector<std::uint32_t> slotLists(std::size_t slots, std::uint64_t seed) {
  std::vector<std::uint32_t> list(kBatch * kBatches);
  std::size_t size = 1;
  while (size * 2 <= slots) size *= 2;
  for (std::size_t i = 0; i < list.size(); i++)
    list[i] = static_cast<std::uint32_t>(mix64(mix64(seed) + i) & (size - 1));
  return list;
}

/** Calls `work(first row)` for the next batch, another one each time. */
template <class Work>
std::function<void()> batches(Work work) {
  auto turn = std::make_shared<std::size_t>(0);
  return [turn, work] { work((*turn)++ % kBatches * kBatch); };
}

void finish(Report& report, const std::string& name, const std::vector<Candidate>& candidates, const Setup& s,
            std::size_t rows) {
  std::vector<double> values = interleave(candidates, s.rounds, s.smoke ? 1 : static_cast<int>(kTurn));
  for (double& v : values) v = static_cast<double>(rows) / v / 1e6;
  report.add(name, "M rows/s", candidates, values);
}

void deltas(Report& report, const Setup& s, std::uint8_t* arena) {
  for (const std::size_t stride : {64, 256, 512, 1024}) {
    const auto slots = slotLists(s.arenaBytes / stride, stride);
    std::uint8_t* source = memory(kBatch * stride, 3);
    const auto* list = slots.data();
    const Kernels& kernel = kernels();
    const auto apply = [=, &kernel](std::uint8_t c) {
      return batches([=, &kernel](std::size_t at) {
        kernel.mulAddRows(arena, stride, reinterpret_cast<const std::uint8_t*>(list + at), kBatch, source, c);
      });
    };
    finish(report, "delta apply " + std::to_string(stride) + " B",
           {{"xor", apply(1)}, {"multiply", apply(142)}, {"memcpy", batches([=, &kernel](std::size_t at) {
                                                            kernel.gatherRows(source, arena, stride, stride,
                                                                              list + at, kBatch);
                                                          })}},
           s, kBatch);
    std::free(source);
  }
}

void steps(Report& report, const Setup& s, std::uint8_t* arena, OptimizerKind kind, const char* name) {
  constexpr std::uint32_t dim = 64;
  OptimizerParams params;
  params.kind = kind;
  params.lr = 0.01f;
  params.eps = 1e-8f;
  const std::uint32_t stride = (dim + stateFloats(kind, dim)) * 4;
  // As floats that any optimizer keeps finite.
  auto* floats = reinterpret_cast<float*>(arena);
  for (std::size_t i = 0; i < s.arenaBytes / 4; i++) floats[i] = static_cast<float>(i & 1023) / 1024.0f;
  std::uint8_t* gradients = memory(kBatch * dim * 4, 0);
  auto* g = reinterpret_cast<float*>(gradients);
  for (std::size_t i = 0; i < kBatch * dim; i++) g[i] = static_cast<float>(i % 97) / 97.0f - 0.5f;
  std::uint8_t* out = memory(kBatch * stride, 0);
  const auto slots = slotLists(s.arenaBytes / stride, 7);
  std::vector<std::uint32_t> places(kBatch);
  for (std::uint32_t i = 0; i < kBatch; i++) places[i] = i;
  const auto run = [&](bool delta) {
    return batches([=, &slots, &places](std::size_t at) {
      RowSteps all{arena,         dim,   stride, slots.data() + at, gradients, delta ? out : nullptr,
                   places.data(), kBatch};
      kernels().stepRows(params, all);
    });
  };
  finish(report, name, {{"with delta", run(true)}, {"without", run(false)}}, s, kBatch);
  std::free(gradients);
  std::free(out);
}

// Both copy from the same arena to the same places. A warm destination is one megabyte that is written again
// and again and stays in the caches: what is compared is reading. A cold one is memory that was not written
// for a while, as the answers of a server are.
void gather(Report& report, const Setup& s) {
  constexpr std::size_t stride = 256, bytes = kBatch * stride;
  std::uint8_t* arena = memory(s.gatherBytes, 5);
  const std::size_t coldBytes = (s.smoke ? 2 : 256) * bytes;
  std::uint8_t* out = memory(coldBytes, 0);
  const auto slots = slotLists(s.gatherBytes / stride, 11);
  for (const bool cold : {true, false}) {
    const std::size_t places = cold ? coldBytes / bytes : 1, sequential = s.gatherBytes / bytes;
    const auto turns = std::make_shared<std::array<std::size_t, 2>>();
    finish(report, cold ? "gather 256 B, cold destination" : "gather 256 B, warm destination",
           {{"gather",
             [&, places] {
               const std::size_t i = (*turns)[0]++;
               kernels().gatherRows(out + i % places * bytes, arena, stride, stride,
                                    slots.data() + i % kBatches * kBatch, kBatch);
             }},
            {"sequential memcpy",
             [=] {
               const std::size_t i = (*turns)[1]++;
               std::memcpy(out + i % places * bytes, arena + i % sequential * bytes, bytes);
             }}},
           s, kBatch);
  }
  std::free(arena);
  std::free(out);
}

std::uint64_t lookUps(Report& report, const Setup& s) {
  Memory budget(0);
  Index index(budget);
  for (std::size_t i = 0; i < s.keys; i++) index.insert(i + 1, static_cast<std::uint32_t>(i));
  std::vector<std::uint64_t> wanted(kBatch * kBatches);
  for (std::size_t i = 0; i < wanted.size(); i++) wanted[i] = mix64(i) % s.keys + 1;
  std::vector<std::uint32_t> slots(kBatch);
  std::uint64_t sum = 0;
  finish(report, "index look-up",
         {{"batched", batches([&](std::size_t at) {
             index.findMany(wanted.data() + at, kBatch, slots.data());
             sum += slots[at % kBatch];
           })},
          {"one by one", batches([&](std::size_t at) {
             for (std::size_t i = 0; i < kBatch; i++) sum += index.find(wanted[at + i]);
           })}},
         s, kBatch);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  Setup s{};
  s.smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  s.arenaBytes = std::size_t{s.smoke ? 4u : 1024u} << 20;
  s.gatherBytes = std::size_t{s.smoke ? 4u : 4096u} << 20;
  // 65 % of the slots of 2^21 buckets (2^10 for a smoke run).
  s.keys = static_cast<std::size_t>((s.smoke ? 1 << 13 : 1 << 24) * 0.65) - 1;
  s.rounds = s.smoke ? 1 : 31;
  Report report;
  std::uint8_t* arena = memory(s.arenaBytes, 2);
  deltas(report, s, arena);
  steps(report, s, arena, OptimizerKind::Sgd, "sgd");
  steps(report, s, arena, OptimizerKind::Adagrad, "adagrad");
  const std::uint64_t hash = digest(arena, std::min<std::size_t>(s.arenaBytes, 1 << 20));
  std::free(arena);
  gather(report, s);
  lookUps(report, s);
  report.print(kernels().name, hash, "");
  return 0;
}
