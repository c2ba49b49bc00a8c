// What OpenCalls writes down: the lines of its logs, and what it ignored of requests.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/json/json_value.h"
#include "coordinator/http/service/open_calls.h"

namespace stagecoach {
namespace {

// Of clients' words, which may be anything.
constexpr size_t kMostNames = 1000, kMostNameBytes = 64, kMostPathBytes = 256;

Json Milliseconds(int64_t from_us, int64_t to_us) {
  if (to_us == 0) return nullptr;
  return static_cast<double>((to_us - from_us) / 100) / 10;
}

}  // namespace

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

void OpenCalls::NoteIgnored(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    metrics_->Ignored("parameter");
    if (ignored_names_.size() >= kMostNames || !ignored_names_.insert(name.substr(0, kMostNameBytes)).second) continue;
    LogInfo(absl::StrCat("requests have ", ShownText(name), ", which means nothing here; said once"));
  }
}

}  // namespace stagecoach
