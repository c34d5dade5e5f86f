// Every vector variant against the scalar reference, and the scalar reference against arithmetic written
// another way.
#include <cmath>
#include <iterator>

#include "kernels/gf256.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "test/harness.h"

namespace kintsugi::test {
namespace {

/** Carry-less multiplication and reduction, bit by bit. */
std::uint8_t slowMultiply(unsigned a, unsigned b) {
  unsigned product = 0;
  for (unsigned i = 0; i < 8; i++) {
    if (b >> i & 1) product ^= a << i;
  }
  for (unsigned bit = 15; bit >= 8; bit--) {
    if (product >> bit & 1) product ^= gf::kPolynomial << (bit - 8);
  }
  return static_cast<std::uint8_t>(product);
}

TEST(gfTables) {
  for (unsigned a = 0; a < 256; a++) {
    for (unsigned b = 0; b < 256; b++) {
      CHECK_EQ(gf::multiply(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)), slowMultiply(a, b));
    }
    if (a) CHECK_EQ(gf::multiply(static_cast<std::uint8_t>(a), gf::invert(static_cast<std::uint8_t>(a))), 1);
  }
}

TEST(mulAddAllCoefficients) {
  Random random(seed);
  const std::size_t lengths[] = {0, 1, 7, 15, 16, 63, 64, 65, 127, 128, 200, 1031};
  std::vector<std::uint8_t> src(1200), dst(1200), expected(1200);
  for (unsigned c = 0; c < 256; c++) {
    for (const std::size_t n : lengths) {
      const std::size_t from = random.below(64), to = random.below(64);
      random.fill(src.data(), src.size());
      random.fill(dst.data(), dst.size());
      expected = dst;
      for (std::size_t i = 0; i < n; i++) expected[to + i] ^= slowMultiply(c, src[from + i]);
      kernels().mulAdd(dst.data() + to, src.data() + from, n, static_cast<std::uint8_t>(c));
      CHECK(dst == expected);
    }
  }
}

TEST(mulAddRows) {
  Random random(seed);
  for (const std::size_t stride : {8, 16, 48, 64, 80, 272, 1040}) {
    for (const unsigned c : {0u, 1u, 2u, 142u, 255u}) {
      const std::uint32_t count = 100, slots = 37;
      std::vector<std::uint8_t> base(slots * stride), src(count * stride), list(count * 4 + 1);
      random.fill(base.data(), base.size());
      random.fill(src.data(), src.size());
      std::vector<std::uint8_t> expected = base;
      for (std::uint32_t i = 0; i < count; i++) {
        const std::uint32_t slot = random.below(slots);
        std::memcpy(list.data() + 1 + i * 4, &slot, 4);  // misaligned, as in a section
        for (std::size_t b = 0; b < stride; b++)
          expected[slot * stride + b] ^= slowMultiply(c, src[i * stride + b]);
      }
      kernels().mulAddRows(base.data(), stride, list.data() + 1, count, src.data(),
                           static_cast<std::uint8_t>(c));
      CHECK(base == expected);
    }
  }
}

OptimizerParams paramsOf(OptimizerKind kind) {
  OptimizerParams p;
  p.kind = kind;
  p.lr = 0.05f;
  p.momentum = 0.9f;
  p.eps = 1e-6f;
  p.beta1 = 0.9;
  p.beta2 = 0.999;
  p.weightDecay = 0.1;
  p.beta = 1;
  p.l1 = 0.01;
  p.l2 = 0.1;
  // A parameter without a value here would not be tested. A step does not read the initial state.
  for (const OptimizerParameter& each : optimizerOf(kind).parameters)
    CHECK(!each.name || each.value == optimizerOf(kind).initialState || p.*each.value != 0);
  return p;
}

/** Parameters of a kind alone, and with everything that a table may add to it. */
std::vector<OptimizerParams> variantsOf(OptimizerKind kind) {
  const std::size_t schedules = optimizerOf(kind).fixedRate ? 0 : std::size(kSchedules);
  std::vector<OptimizerParams> all(2 + schedules, paramsOf(kind));
  for (std::size_t i = 1; i < all.size(); i++) all[i].clipNorm = i % 2 ? 1.5 : 1e-3;
  for (std::size_t i = 0; i < schedules; i++) all[2 + i].schedule = {kSchedules[i].kind, 3, 7, 0.3};
  return all;
}

// That the rules are those of the literature is tested through the addon (test/engine/optimizers.test.ts).
TEST(optimizersGiveTheSameBits) {
  Random random(seed);
  for (const Optimizer& optimizer : kOptimizers) {
    for (const std::uint32_t dim : {1u, 3u, 15u, 16u, 17u, 64u, 100u}) {
      for (const OptimizerParams& params : variantsOf(optimizer.kind)) {
        std::vector<float> row(dim + stateFloats(params, dim), 0), reference = row, g(dim);
        for (int step = 0; step < 20; step++) {
          for (float& x : g) x = random.real();
          kernels().updateRow(params, row.data(), row.data() + dim, g.data(), dim);
          updateRowScalar(params, reference.data(), reference.data() + dim, g.data(), dim);
          CHECK(std::memcmp(row.data(), reference.data(), row.size() * 4) == 0);
        }
        for (const float x : row) CHECK(std::isfinite(x));
        for (const float x : row) CHECK(x != 0 || optimizer.kind == OptimizerKind::Ftrl);
        if (params.schedule.kind != ScheduleKind::None) CHECK_EQ(row.back(), 20);
      }
    }
  }
}

TEST(stepCountsBeyondRange) {
  // A whole row may bring any count, and a float holds some; the rate must stay finite.
  for (const OptimizerParams& params : variantsOf(OptimizerKind::Adagrad)) {
    if (params.schedule.kind == ScheduleKind::None) continue;
    for (const float step : {-5.0f, 0.5f, 16777216.0f, 1e9f, std::nanf(""), INFINITY}) {
      float w[1] = {1}, s[2] = {1, step}, g[1] = {1}, other[1] = {1}, t[2] = {1, step};
      kernels().updateRow(params, w, s, g, 1);
      updateRowScalar(params, other, t, g, 1);
      CHECK(std::isfinite(w[0]));
      CHECK(std::memcmp(w, other, sizeof w) == 0);
    }
  }
}

TEST(adamStepBeyondRange) {
  // A whole row may bring any step count; the factors must stay finite.
  OptimizerParams params = paramsOf(OptimizerKind::Adam);
  for (const float step : {-5.0f, 0.0f, 1e9f, std::nanf(""), INFINITY}) {
    float w[1] = {1}, s[3] = {0, 0, step}, g[1] = {1};
    kernels().updateRow(params, w, s, g, 1);
    CHECK(std::isfinite(w[0]));
  }
}

TEST(encodeAgainstBytes) {
  Random random(seed);
  for (const std::uint32_t k : {1u, 2u, 5u, 10u}) {
    for (std::uint32_t r = 1; r <= kMaxEncode; r++) {
      for (const bool firstIsSum : {true, false}) {
        const std::size_t n = 1 + random.below(3000);
        std::vector<std::vector<std::uint8_t>> data(k), parity(r);
        std::vector<const std::uint8_t*> from;
        std::vector<std::uint8_t*> to;
        std::vector<std::uint8_t> coefficients(k * r);
        random.fill(coefficients.data(), coefficients.size());
        for (std::uint32_t i = 0; i < k; i++) {
          if (firstIsSum) coefficients[i] = 1;
          data[i].resize(n);
          random.fill(data[i].data(), n);
          from.push_back(data[i].data());
        }
        for (auto& p : parity) p.assign(n, 0xAB), to.push_back(p.data());
        kernels().encode(from.data(), k, to.data(), r, n, coefficients.data());
        for (std::uint32_t j = 0; j < r; j++) {
          for (std::size_t b = 0; b < n; b++) {
            std::uint8_t sum = 0;
            for (std::uint32_t i = 0; i < k; i++) sum ^= gf::multiply(coefficients[j * k + i], data[i][b]);
            CHECK_EQ(parity[j][b], sum);
          }
        }
      }
    }
  }
}

TEST(encodePastTheCaches) {
  // Large enough for the variant that writes past the caches; the last byte proves that nothing is left out.
  constexpr std::size_t n = (std::size_t{9} << 20) + 64;
  std::vector<std::uint8_t> data(n + 64, 3), parity(n + 64, 9);
  const auto align = [](std::vector<std::uint8_t>& v) {
    return v.data() + (64 - reinterpret_cast<std::uintptr_t>(v.data()) % 64) % 64;
  };
  const std::uint8_t *from[1] = {align(data)}, two = 2;
  std::uint8_t* to[1] = {align(parity)};
  kernels().encode(from, 1, to, 1, n, &two);
  for (std::size_t i = 0; i < n; i++) CHECK_EQ(to[0][i], 6);
}

TEST(stepRowsAgainstOneByOne) {
  Random random(seed);
  for (const Optimizer& optimizer : kOptimizers) {
    const OptimizerKind kind = optimizer.kind;
    for (const std::uint32_t dim : {1u, 7u, 16u, 64u, 100u}) {
      for (const OptimizerParams& params : variantsOf(kind)) {
        const std::uint32_t width = dim + stateFloats(params, dim), stride = (width * 4 + 15) / 16 * 16;
        const std::uint32_t count = 50, slots = 120;
        std::vector<float> slab(slots * stride / 4, 0), expected;
        for (std::uint32_t slot = 0; slot < slots; slot++) {
          for (std::uint32_t i = 0; i < width; i++) slab[slot * stride / 4 + i] = std::fabs(random.real());
        }
        expected = slab;
        std::vector<std::uint32_t> list(count), places(count);
        std::vector<std::uint8_t> gradients(count * dim * 4 + 1), deltas(count * stride), sum;
        random.fill(deltas.data(), deltas.size());
        sum = deltas;
        std::vector<float> g(dim);
        for (std::uint32_t i = 0; i < count; i++) {
          list[i] = (i * 7 + 3) % slots;
          places[i] = (count - 1 - i) | (random.chance(50) ? kAddTo : 0);
          for (float& x : g) x = random.real();
          std::memcpy(gradients.data() + 1 + i * dim * 4, g.data(), dim * 4);  // misaligned, as in a section
          float* row = expected.data() + list[i] * stride / 4;
          std::vector<std::uint8_t> before(stride);
          std::memcpy(before.data(), row, stride);
          updateRowScalar(params, row, row + dim, g.data(), dim);
          std::uint8_t* delta = sum.data() + (count - 1 - i) * stride;
          if (!(places[i] & kAddTo)) std::memset(delta, 0, stride);
          for (std::uint32_t b = 0; b < stride; b++)
            delta[b] ^= before[b] ^ reinterpret_cast<const std::uint8_t*>(row)[b];
        }
        RowSteps steps{reinterpret_cast<std::uint8_t*>(slab.data()),
                       dim,
                       stride,
                       list.data(),
                       gradients.data() + 1,
                       deltas.data(),
                       places.data(),
                       count};
        std::vector<float> plain = slab;
        kernels().stepRows(params, steps);
        CHECK(std::memcmp(slab.data(), expected.data(), slab.size() * 4) == 0);
        CHECK(deltas == sum);
        steps.rows = reinterpret_cast<std::uint8_t*>(plain.data());
        steps.deltas = nullptr;
        steps.places = nullptr;
        kernels().stepRows(params, steps);
        CHECK(std::memcmp(plain.data(), expected.data(), plain.size() * 4) == 0);
      }
    }
  }
}

TEST(findTags) {
  Random random(seed);
  constexpr std::size_t buckets = 16, count = 300, ahead = 40;
  std::vector<std::uint64_t> lines(buckets * 8 + 8, 0);
  std::uint64_t* tags = lines.data();
  while (reinterpret_cast<std::uintptr_t>(tags) % 64) tags++;  // a bucket is a cache line
  std::vector<std::uint32_t> slots(buckets * 8);
  // Tag t lives in the bucket t % 16 or, where that is full, in one of the next; every third one is not
  // there.
  for (std::uint64_t tag = 1; tag <= 110; tag++) {
    if (tag % 3 == 0) continue;
    std::size_t b = tag * tag % 7 % buckets, i = 0;
    while (tags[b * 8 + i]) {
      if (++i == 8) b = (b + 1) % buckets, i = 0;
    }
    tags[b * 8 + i] = tag;
    slots[b * 8 + i] = static_cast<std::uint32_t>(tag * 10);
  }
  std::vector<std::uint64_t> wanted(count + ahead);
  std::vector<std::uint32_t> homes(count + ahead), out(count);
  for (std::size_t i = 0; i < wanted.size(); i++) {
    wanted[i] = 1 + random.below(120);
    homes[i] = static_cast<std::uint32_t>(wanted[i] * wanted[i] % 7 % buckets);
  }
  kernels().findTags(tags, slots.data(), buckets - 1, wanted.data(), homes.data(), count, ahead, out.data());
  for (std::size_t i = 0; i < count; i++) {
    const bool there = wanted[i] <= 110 && wanted[i] % 3 != 0;
    CHECK_EQ(out[i], there ? wanted[i] * 10 : kNoSlot);
  }
}

TEST(hashKeys) {
  Random random(seed);
  for (std::size_t count = 0; count < 200; count++) {
    std::vector<std::uint64_t> keys(count + 1), expected;
    random.fill(reinterpret_cast<std::uint8_t*>(keys.data()), keys.size() * 8);
    for (std::size_t i = 0; i < count; i += 3) keys[i] = i % 2 ? kMissingBit : i;
    for (std::size_t i = 0; i < count; i++) {
      KeyHash hash(77);
      hash.absorb(static_cast<std::uint32_t>(keys[i]));
      hash.absorb(static_cast<std::uint32_t>(keys[i] >> 32));
      expected.push_back(keys[i] == kMissingBit ? 5 : hash.end());
    }
    // The key behind them stays.
    expected.push_back(keys[count]);
    kernels().hashKeys(keys.data(), count, 77, 5);
    CHECK(keys == expected);
  }
}

TEST(rowsComeAndGo) {
  Random random(seed);
  for (const std::size_t bytes : {4, 12, 64, 100, 256, 1100}) {
    const std::size_t stride = (bytes + 15) / 16 * 16;
    const std::uint32_t count = 90, slots = 100;
    std::vector<std::uint8_t> slab(slots * stride), out(count * bytes, 7), back(slots * bytes, 0),
        strided(slots * stride, 5);
    random.fill(slab.data(), slab.size());
    std::vector<std::uint32_t> list(count);
    for (std::uint32_t i = 0; i < count; i++) list[i] = i % 9 ? (i * 7 + 3) % slots : kNoSlot;
    kernels().gatherRows(out.data(), slab.data(), stride, bytes, list.data(), count);
    for (std::uint32_t i = 0; i < count; i++) {
      for (std::size_t b = 0; b < bytes; b++)
        CHECK_EQ(out[i * bytes + b], list[i] == kNoSlot ? 7 : slab[list[i] * stride + b]);
      if (list[i] == kNoSlot) list[i] = (i * 7 + 3) % slots;
    }
    kernels().scatterRows(back.data(), bytes, bytes, list.data(), count, out.data());
    kernels().scatterRows(strided.data(), stride, bytes, list.data(), count, out.data());
    for (std::uint32_t i = 0; i < count; i++) {
      CHECK(std::memcmp(back.data() + list[i] * bytes, out.data() + i * bytes, bytes) == 0);
      CHECK(std::memcmp(strided.data() + list[i] * stride, out.data() + i * bytes, bytes) == 0);
      for (std::size_t b = bytes; b < stride; b++) CHECK_EQ(strided[list[i] * stride + b], 5);
    }
    for (const bool add : {false, true}) {
      std::vector<std::uint8_t> row(stride), delta(stride), content(bytes), expected(stride);
      random.fill(row.data(), bytes);
      random.fill(delta.data(), stride);
      random.fill(content.data(), bytes);
      for (std::size_t b = 0; b < stride; b++)
        expected[b] = (add ? delta[b] : 0) ^ row[b] ^ (b < bytes ? content[b] : 0);
      kernels().replaceRow(row.data(), content.data(), bytes, stride, delta.data(), add);
      CHECK(delta == expected);
      CHECK(std::memcmp(row.data(), content.data(), bytes) == 0);
    }
  }
}

}  // namespace
}  // namespace kintsugi::test
