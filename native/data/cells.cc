#include "data/cells.h"

#include <charconv>
#include <cmath>

namespace kintsugi {
namespace {

/** Powers of ten that a double holds exactly. */
constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr std::uint64_t kMostExact = std::uint64_t{1} << 53;
constexpr std::size_t kMostDigits = 19;

/** A number whose form is known, by the library. */
bool readSlow(const char* begin, const char* end, double& out) {
#if (defined(__cpp_lib_to_chars) && __cpp_lib_to_chars >= 201611L) || \
    (defined(_LIBCPP_VERSION) && _LIBCPP_VERSION >= 200000)
  const auto [last, error] = std::from_chars(begin, end, out);
  return error == std::errc() && last == end && std::isfinite(out);
#else
  return begin == end && out != 0;
#endif
}

}  // namespace

bool readAnyDecimal(const Cell& cell, double& out) {
  const std::uint8_t *at = cell.first(), *const end = cell.data + cell.end;
  const bool negative = at < end && *at == '-';
  if (at < end && (*at == '-' || *at == '+')) at++;
  const std::uint8_t* const begin = at;
  std::uint64_t mantissa = 0;
  const auto run = [&] {
    const std::uint8_t* const from = at;
    for (; at < end && *at - unsigned{'0'} <= 9; at++) mantissa = mantissa * 10 + (*at - '0');
    return static_cast<std::size_t>(at - from);
  };
  std::size_t digits = run(), fraction = 0;
  if (at < end && *at == '.') {
    at++;
    fraction = run();
    digits += fraction;
  }
  if (digits == 0) return false;
  if (at == end && digits <= kMostDigits && mantissa <= kMostExact && fraction < std::size(kPowers)) {
    out = static_cast<double>(mantissa) / kPowers[fraction];
  } else {
    if (at < end) {
      if (*at != 'e' && *at != 'E') return false;
      at++;
      if (at < end && (*at == '-' || *at == '+')) at++;
      if (run() == 0 || at != end) return false;
    }
    if (!readSlow(reinterpret_cast<const char*>(begin), reinterpret_cast<const char*>(end), out))
      return false;
  }
  if (negative) out = -out;
  return true;
}

bool isUtf8(const std::uint8_t* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size;) {
    const std::uint8_t lead = bytes[i++];
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const unsigned more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (size - i < more) return false;
    // Some values of the first byte after the lead would be overlong, surrogates, or beyond U+10FFFF.
    const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (bytes[i] < low || bytes[i] > high) return false;
    for (unsigned j = 1; j < more; j++) {
      if ((bytes[i + j] & 0xC0) != 0x80) return false;
    }
    i += more;
  }
  return true;
}

}  // namespace kintsugi
