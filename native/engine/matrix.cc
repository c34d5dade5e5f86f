#include "engine/matrix.h"

#include <utility>

#include "kernels/gf256.h"

namespace kintsugi {

// Cauchy entry of the disjoint points x_j = j and y_i = kMaxParities + i.
static std::uint8_t cauchy(std::uint32_t parity, std::uint32_t member) {
  return gf::invert(static_cast<std::uint8_t>(parity ^ (kMaxParities + member)));
}

std::uint8_t coefficient(std::uint32_t parity, std::uint32_t member) {
  const auto scaled = [](std::uint32_t j, std::uint32_t i) {
    return gf::multiply(cauchy(j, i), gf::invert(cauchy(0, i)));  // first row: ones
  };
  return gf::multiply(scaled(parity, member), gf::invert(scaled(parity, 0)));  // first column: ones
}

// Gauss-Jordan on [matrix | identity].
bool invertMatrix(std::vector<std::uint8_t>& m, std::uint32_t n) {
  std::vector<std::uint8_t> inverse(std::size_t{n} * n, 0);
  for (std::uint32_t i = 0; i < n; i++) inverse[i * n + i] = 1;
  for (std::uint32_t c = 0; c < n; c++) {
    std::uint32_t pivot = c;
    while (pivot < n && !m[pivot * n + c]) pivot++;
    if (pivot == n) return false;
    for (std::uint32_t x = 0; x < n; x++) {
      std::swap(m[pivot * n + x], m[c * n + x]);
      std::swap(inverse[pivot * n + x], inverse[c * n + x]);
    }
    const std::uint8_t factor = gf::invert(m[c * n + c]);
    for (std::uint32_t x = 0; x < n; x++) {
      m[c * n + x] = gf::multiply(m[c * n + x], factor);
      inverse[c * n + x] = gf::multiply(inverse[c * n + x], factor);
    }
    for (std::uint32_t row = 0; row < n; row++) {
      const std::uint8_t g = m[row * n + c];
      if (row == c || !g) continue;
      for (std::uint32_t x = 0; x < n; x++) {
        m[row * n + x] ^= gf::multiply(g, m[c * n + x]);
        inverse[row * n + x] ^= gf::multiply(g, inverse[c * n + x]);
      }
    }
  }
  m = inverse;
  return true;
}

}  // namespace kintsugi
