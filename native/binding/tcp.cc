// The state of this process's TCP connections in the kernel: whether the other side's kernel still
// acknowledges. A kernel does so while its process is stalled or stopped; a machine that vanished does not.
#include "binding/objects.h"

#ifdef __linux__
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
// After the system's headers: it defines what the older <netinet/tcp.h> lacks.
#include <linux/tcp.h>
#endif

#include <cerrno>
#include <unordered_set>

namespace kintsugi::binding {
namespace {

/** Numbers for each connection: see `tcpStates` in src/engine/native.ts. */
constexpr std::size_t kFields = 4;
#ifdef __linux__
/** Descriptors are given lowest first, so behind so many unused ones there are hardly any others. */
constexpr int kMaxGap = 512;

struct Connection {
  double written, acknowledged, waits, roundTripMs;
};

/** False: no TCP connection, or this kernel is too old (before 4.19). */
bool read(int fd, Connection& out) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  if (size < offsetof(tcp_info, tcpi_dsack_dups)) return false;
  const std::uint64_t sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  out.written = static_cast<double>(sent + info.tcpi_notsent_bytes);
  out.acknowledged = static_cast<double>(info.tcpi_bytes_acked);
  out.waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0 ? 1 : 0;
  out.roundTripMs = info.tcpi_min_rtt == 0xFFFFFFFF ? 0 : info.tcpi_min_rtt / 1000.0;
  return true;
}

/** The local port of a socket; 0 if it has none. */
int portOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  errno = 0;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  if (name.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(name).sin_port);
  if (name.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(name).sin6_port);
  return 0;
}
#endif

Napi::Value tcpStates(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const auto descriptors = arguments.typed<Napi::Int32Array>(napi_int32_array, "fds must be an Int32Array");
  auto out = arguments.typed<Napi::Float64Array>(napi_float64_array, "out must be a Float64Array");
  if (!arguments.ok()) return info.Env().Undefined();
  if (out.ElementLength() < descriptors.ElementLength() * kFields) {
    arguments.refuse("out is too short");
    return info.Env().Undefined();
  }
  for (std::size_t i = 0; i < descriptors.ElementLength(); i++) {
    double* fields = out.Data() + i * kFields;
    fields[0] = -1;
#ifdef __linux__
    Connection connection{};
    if (descriptors.Data()[i] < 0 || !read(descriptors.Data()[i], connection)) continue;
    fields[0] = connection.written;
    fields[1] = connection.acknowledged;
    fields[2] = connection.waits;
    fields[3] = connection.roundTripMs;
#endif
  }
  return info.Env().Undefined();
}

Napi::Value tcpWritten(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  [[maybe_unused]] const std::uint32_t port = arguments.u32(0xFFFF);
  const auto known = arguments.typed<Napi::Int32Array>(napi_int32_array, "known must be an Int32Array");
  if (!arguments.ok()) return env.Undefined();
  std::vector<double> found;
#ifdef __linux__
  const std::unordered_set<int> skipped(known.Data(), known.Data() + known.ElementLength());
  for (int fd = 0, gap = 0; gap < kMaxGap; fd++) {
    if (skipped.contains(fd)) {
      gap = 0;
      continue;
    }
    Connection connection{};
    const int local = portOf(fd);
    gap = local == 0 && errno == EBADF ? gap + 1 : 0;
    if (local != static_cast<int>(port) || !read(fd, connection)) continue;
    found.push_back(fd);
    found.push_back(connection.written);
  }
#endif
  auto result = Napi::Float64Array::New(env, found.size());
  if (!made(result)) return env.Undefined();
  std::copy(found.begin(), found.end(), result.Data());
  return result;
}

}  // namespace

void defineTcp(Napi::Env env, Napi::Object exports) {
  exports.Set("tcpStates", Napi::Function::New(env, tcpStates, "tcpStates"));
  exports.Set("tcpWritten", Napi::Function::New(env, tcpWritten, "tcpWritten"));
}

}  // namespace kintsugi::binding
