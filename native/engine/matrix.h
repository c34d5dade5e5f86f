// The generator of the code: a systematic Cauchy matrix scaled so that its first row (r = 1 is plain XOR) and
// its first column are ones. Scaling rows and columns keeps every minor non-zero, so any k of the k + r
// members restore the rest.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kintsugi {

inline constexpr std::uint32_t kMaxMembers = 32;  // k
inline constexpr std::uint32_t kMaxParities = 4;  // r

/** Coefficient of member `member` in parity `parity`; does not depend on k and r, so a code can be widened.
 */
std::uint8_t coefficient(std::uint32_t parity, std::uint32_t member);

/** Inverts a square matrix in place (row-major, n x n, n <= 4). False if it is singular. */
bool invertMatrix(std::vector<std::uint8_t>& matrix, std::uint32_t n);

}  // namespace kintsugi
