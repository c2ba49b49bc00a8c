#include "coordinator/http/server_state.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "coordinator/http/connection.h"

namespace stagecoach {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr int kMostRetrySeconds = 10;

uint64_t RandomBits() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

ServerState::ServerState(HttpServerOptions server_options, HttpHandler* server_handler, bool loopback)
    : options(std::move(server_options)),
      handler(server_handler),
      rules(loopback, options.allowed_hosts, options.cors_origins),
      id_salt(RandomBits()),
      scratch(kReadBytes) {}

void ServerState::CutLargestWaiters() {
  std::vector<std::shared_ptr<Connection>> waiters(connections.begin(), connections.end());
  std::sort(waiters.begin(), waiters.end(),
            [](const auto& a, const auto& b) { return a->accounted_bytes() > b->accounted_bytes(); });
  for (const auto& waiter : waiters) {
    if (pending_bytes <= options.limits.all_drained_bytes) break;
    ++counters.slow_clients;
    waiter->Cut();
  }
}

int ServerState::DrawRetrySeconds() { return 1 + static_cast<int>(retries++ % kMostRetrySeconds); }

std::string ServerState::DrawId() { return absl::StrCat("req-", absl::Hex(id_salt, absl::kZeroPad16), "-", ++ids); }

}  // namespace stagecoach
