// The ways in which the engine refuses a call. A status answers a request of a peer or client, and travels in
// messages. A fault means that the caller should not have made the call, and becomes a JavaScript error with
// its code.
#pragma once
#include <string_view>

namespace kintsugi {

enum class Status : int {
  Applied = 0,
  Absent = 1,
  UnknownTable = 2,
  DimMismatch = 3,
  KeyReserved = 4,
  MemoryLimit = 5,
  BadFrame = 6,
  BadArgument = 7,
  BatchFull = 8,
  DeltaLimit = 9,
};

struct [[nodiscard]] Fault {
  const char* code = nullptr;
  const char* message = nullptr;
  explicit operator bool() const { return code != nullptr; }
  bool isMemoryLimit() const { return code && std::string_view(code) == "MEMORY_LIMIT"; }
};

inline Fault badArgument(const char* message) { return {"BAD_ARGUMENT", message}; }
inline constexpr Fault kNoMemory = {"MEMORY_LIMIT", "the system refuses memory"};
inline Fault badFrame(const char* message) { return {"BAD_FRAME", message}; }

}  // namespace kintsugi
