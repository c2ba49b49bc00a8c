// What OpenCalls writes down: the lines of its logs, and what it ignored of requests.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/json/json_value.h"
#include "coordinator/serve/service/open_calls.h"

namespace stagecoach {
namespace {

// Of clients' words, which may be anything.
constexpr size_t kMostNames = 1000, kMostNameBytes = 64, kMostPathBytes = 256;

Json Milliseconds(int64_t from_us, int64_t to_us) {
  if (to_us == 0) return nullptr;
  return static_cast<double>((to_us - from_us) / 100) / 10;
}

// "2026-01-31T13:05:09.123Z", now.
std::string LogTime() { return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()); }

}  // namespace

absl::StatusOr<std::unique_ptr<LineLog>> LineLog::Open(const std::string& path, bool secret) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, secret ? 0600 : 0644);
  if (descriptor < 0) {
    return absl::NotFoundError(absl::StrCat("cannot write '", path, "': ", std::strerror(errno)));
  }
  return std::unique_ptr<LineLog>(new LineLog(path, descriptor));
}

LineLog::~LineLog() { close(descriptor_); }

void LineLog::Write(const Json& line) {
  const std::string text = absl::StrCat(cut_ ? "\n" : "", CompactJson(line), "\n");
  const ssize_t written = write(descriptor_, text.data(), text.size());
  if (written > 0) cut_ = written < static_cast<ssize_t>(text.size());
  if (written == static_cast<ssize_t>(text.size()) || failed_) return;
  failed_ = true;
  LogError(absl::StrCat("cannot write all of '", path_, "': ", written < 0 ? std::strerror(errno) : "no room",
                        "; lines are missing there"));
}

void OpenCalls::LogCall(const Call& call, int status) const {
  const HttpRequest& request = call.exchange->request();
  if (options_.access_log != nullptr) {
    ApiCall::Usage usage;
    if (call.api != nullptr) usage = call.api->usage();
    options_.access_log->Write({{"time", LogTime()},
                                {"id", request.id},
                                {"key", call.tenant},
                                {"method", request.method},
                                {"route", request.path},
                                {"status", status},
                                {"prompt_tokens", usage.prompt_tokens},
                                {"completion_tokens", usage.completion_tokens},
                                {"cached_tokens", usage.cached_tokens},
                                {"first_token_ms", Milliseconds(call.accepted_us, call.first_token_us)},
                                {"total_ms", Milliseconds(call.accepted_us, MonotonicUs())}});
  }
  if (options_.prompt_log != nullptr) {
    options_.prompt_log->Write({{"time", LogTime()},
                                {"id", request.id},
                                {"key", call.tenant},
                                {"route", request.path},
                                {"status", status},
                                {"request", call.prompt},
                                {"answer", call.answer}});
  }
}

void OpenCalls::LogAnswer(const HttpRequest& request, int status) const {
  if (options_.access_log == nullptr) return;
  const auto is_it = [&request](const auto& call) { return &call.second->exchange->request() == &request; };
  if (std::any_of(calls_.begin(), calls_.end(), is_it)) return;
  options_.access_log->Write({{"time", LogTime()},
                              {"id", request.id},
                              {"key", request.tenant},
                              {"method", request.method},
                              {"route", request.path.substr(0, kMostPathBytes)},
                              {"status", status},
                              {"total_ms", Milliseconds(request.arrived_us, MonotonicUs())}});
}

void OpenCalls::LogIgnored(const ApiCall& call) {
  const auto log_once = [this](const std::string& name) {
    if (ignored_names_.size() >= kMostNames || !ignored_names_.insert(name.substr(0, kMostNameBytes)).second) return;
    LogInfo(absl::StrCat("requests have ", ShownText(name), ", which means nothing here; said once"));
  };
  for (const std::string& name : call.ignored()) {
    metrics_->CountIgnored("parameter");
    log_once(name);
  }
  for (const std::string& name : call.skipped()) {
    metrics_->CountIgnored(name.substr(0, name.find('.')));  // the client's word is no label
    log_once(name);
  }
}

}  // namespace stagecoach
