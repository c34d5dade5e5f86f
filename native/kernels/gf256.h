// GF(2^8) with polynomial 0x11D: single-byte arithmetic by table. These tables are the scalar reference;
// every vector variant is tested against them. They are computed by the compiler, so there is no
// initialisation order to get wrong.
#pragma once
#include <cstdint>

namespace kintsugi::gf {

inline constexpr unsigned kPolynomial = 0x11D;

/** Multiplication by a constant is linear, so c * x = c * (low nibble) + c * (high nibble): two tables of
 * sixteen entries per coefficient, for instruction sets that look up sixteen bytes at once. */
struct alignas(32) Nibbles {
  std::uint8_t low[16], high[16];
};

struct Tables {
  Nibbles nibbles[256];
  std::uint8_t product[256][256];
  std::uint8_t inverse[256];  // inverse[0] is 0 and means nothing
};

extern const Tables kTables;

inline std::uint8_t multiply(std::uint8_t a, std::uint8_t b) { return kTables.product[a][b]; }
inline std::uint8_t invert(std::uint8_t a) { return kTables.inverse[a]; }

}  // namespace kintsugi::gf
