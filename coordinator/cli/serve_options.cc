#include "coordinator/cli/serve_options.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "CLI/App.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr char kGroup[] = "Service";
constexpr char kLimitsGroup[] = "Limits of the service";
constexpr char kKeyVariable[] = "STAGECOACH_API_KEY";
constexpr NumberRange kTimeoutS = {0, 604800};
constexpr int kMostChoices = 16;  // of one request
constexpr uint64_t kMostBodyBytes = uint64_t{1} << 31;

std::vector<std::string> Words(const std::string& list) {
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(list, ',')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(word);
    if (!stripped.empty()) words.emplace_back(stripped);
  }
  return words;
}

void AddServiceGroup(CLI::App* app, ServeOptions* o) {
  AddText(app, "--host", &o->host, "ADDRESS", "the address or name to listen on; 0.0.0.0 or [::]: all of this machine")
      ->default_str(o->host)
      ->group(kGroup);
  AddInteger(app, "--port", &o->port, {0, 65535}, "0: any that is free, which is printed", absl::StrCat(o->port))
      ->group(kGroup);
  AddText(app, "--served-model-name", &o->names, "NAMES",
          "names of the model, separated by commas, of which the first is shown; requests must use one of them "
          "(otherwise it is the file's name, and requests may call it anything)")
      ->group(kGroup);
  AddText(app, "--api-key-file", &o->key_file, "FILE",
          absl::StrCat("lines name:key[:class[:weight]]; a single key can be in the variable ", kKeyVariable,
                       " instead. Without a key everybody is served"))
      ->group(kGroup);
  AddText(app, "--allowed-hosts", &o->allowed_hosts, "NAMES",
          "further names, separated by commas, by which clients may call this server (the header Host)")
      ->group(kGroup);
  AddText(app, "--cors-origins", &o->cors_origins, "ORIGINS",
          "web pages that may use this server, separated by commas, such as https://chat.example")
      ->group(kGroup);
  AddChatTemplateOptions(app, &o->chat_template);
  AddChoice(app, "--reasoning-format", &o->reasoning_format, {"auto", "none"},
            "auto: a model's reasoning is parted from its answer; none: its markup stays in the text")
      ->group(kGroup);
  AddChoice(app, "--reasoning-field", &o->reasoning_field, {"reasoning_content", "reasoning", "both"},
            "the field of an answer that has it")
      ->group(kGroup);
  AddText(app, "--access-log", &o->access_log, "FILE", "append one JSON line a request; never what it said")
      ->group(kGroup);
  AddFlag(app, "--cache-shared", &o->cache_shared,
          "keys find the beginnings of each other's prompts in the prefix cache, and can tell")
      ->group(kGroup);
  AddText(app, "--log-prompts", &o->prompt_log, "FILE", "append what was asked and answered, as JSON lines")
      ->group(kGroup);
  AddChoice(app, "--metrics-compat", &o->metrics_compat, {"none", "vllm"},
            "vllm: the most important metrics under vLLM's names too")
      ->group(kGroup);
  AddFlag(app, "--metrics-key", &o->metrics_key, "/metrics needs a key, too")->group(kGroup);
}

void AddLimitsGroup(CLI::App* app, ServeOptions* o) {
  AddInteger(app, "--max-num-queued-reqs", &o->max_queued_requests, {1, 1'000'000},
             "requests that wait for their first token; beyond: 429", absl::StrCat(o->max_queued_requests))
      ->group(kLimitsGroup);
  AddInteger(app, "--max-num-queued-tokens", &o->max_queued_tokens, {1, int64_t{1} << 40},
             "tokens of their prompts, together", absl::StrCat(o->max_queued_tokens))
      ->group(kLimitsGroup);
  AddDuration(app, "--queue-timeout", &o->queue_timeout_s, kTimeoutS,
              "until a request's first token, such as 90s or 10m; beyond: 504. 0: any time")
      ->default_str("10m")
      ->group(kLimitsGroup);
  AddDuration(app, "--request-timeout", &o->request_timeout_s, kTimeoutS,
              "from an answer's first token to its last; it then ends with what is there. 0: any time")
      ->default_str("0")
      ->group(kLimitsGroup);
  AddDuration(app, "--sse-ping-interval", &o->ping_interval_s, {0, 3600},
              "between signs of life in a stream that has nothing to say. 0: none")
      ->default_str("15s")
      ->group(kLimitsGroup);
  AddDuration(app, "--drain-timeout", &o->drain_timeout_s, kTimeoutS,
              "for answers to end after SIGTERM, SIGINT, SIGHUP or SIGUSR1; a second signal ends at once")
      ->default_str("30s")
      ->group(kLimitsGroup);
  AddDuration(app, "--slo-ttft", &o->slo_ttft_s, kTimeoutS,
              "wanted time to the first token: counted in the metrics, changes nothing")
      ->group(kLimitsGroup);
  AddBytes(app, "--max-body", &o->max_body_bytes,
           "most bytes of a request, such as 512K or 8M; at most 2G, and of those for tokens and texts 4M", "8M")
      ->group(kLimitsGroup);
}

absl::Duration OrNever(double seconds) { return seconds == 0 ? absl::InfiniteDuration() : absl::Seconds(seconds); }

absl::Status WithOption(const char* option, const absl::Status& status, ExitCode code) {
  return WithExitCode(absl::Status(status.code(), absl::StrCat(option, ": ", status.message())), code);
}

absl::StatusOr<std::shared_ptr<LineLog>> OpenLog(const char* option, const std::string& path, bool secret) {
  if (path.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<LineLog>> log = LineLog::Open(path, secret);
  if (!log.ok()) return WithOption(option, log.status(), ExitCode::kInputFile);
  return std::shared_ptr<LineLog>(*std::move(log));
}

}  // namespace

void AddServeOptions(CLI::App* app, ServeOptions* options) {
  AddServiceGroup(app, options);
  AddLimitsGroup(app, options);
}

absl::StatusOr<HttpServerOptions> MakeHttpOptions(const ServeOptions& options) {
  if (options.max_body_bytes > kMostBodyBytes) {
    return UsageError(absl::StrCat("--max-body: ", options.max_body_bytes, " is out of range, expected at most ",
                                   kMostBodyBytes, " (2G)"));
  }
  HttpServerOptions http;
  http.host = options.host;
  http.port = static_cast<int>(options.port);
  http.allowed_hosts = Words(options.allowed_hosts);
  http.cors_origins = Words(options.cors_origins);
  http.sse_ping_interval = OrNever(options.ping_interval_s);
  http.limits.body_bytes = static_cast<int64_t>(options.max_body_bytes);
  http.limits.all_bodies_bytes = std::max(http.limits.all_bodies_bytes, 4 * http.limits.body_bytes);
  ApiKeys keys;
  if (!options.key_file.empty()) {
    absl::StatusOr<ApiKeys> read = ApiKeys::Read(options.key_file);
    if (!read.ok()) return WithOption("--api-key-file", read.status(), ExitCode::kInputFile);
    keys = *std::move(read);
  }
  const char* key = std::getenv(kKeyVariable);
  if (key != nullptr && *key != '\0') {
    ApiKey one;
    one.name = "default";
    one.key = key;
    if (const absl::Status added = keys.Add(std::move(one)); !added.ok()) {
      return WithOption(kKeyVariable, added, ExitCode::kUsage);
    }
  }
  if (!keys.empty()) http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  return http;
}

absl::StatusOr<ServingOptions> MakeServingOptions(const ServeOptions& options, int64_t max_num_seqs,
                                                  ServedModel* model) {
  if (!options.names.empty()) {
    model->names = Words(options.names);
    model->any_name = false;
    if (model->names.empty()) return UsageError("--served-model-name: expected names, found none");
    for (size_t i = 1; i < model->names.size(); ++i) {
      if (std::find(model->names.begin(), model->names.begin() + i, model->names[i]) != model->names.begin() + i) {
        return UsageError(absl::StrCat("--served-model-name: expected names that differ, found '",
                                       CutText(model->names[i]), "' twice"));
      }
    }
  }
  model->reasoning.parse = options.reasoning_format == "auto";
  model->reasoning.as_reasoning_content = options.reasoning_field != "reasoning";
  model->reasoning.as_reasoning = options.reasoning_field != "reasoning_content";

  ServingOptions serving;
  serving.calls.queue.requests = options.max_queued_requests;
  serving.calls.queue.tokens = options.max_queued_tokens;
  serving.calls.queue_timeout = OrNever(options.queue_timeout_s);
  serving.calls.request_timeout = OrNever(options.request_timeout_s);
  serving.calls.cache_shared = options.cache_shared;
  serving.calls.max_choices = static_cast<int>(std::min<int64_t>(max_num_seqs, kMostChoices));
  ASSIGN_OR_RETURN(serving.calls.access_log, OpenLog("--access-log", options.access_log, /*secret=*/false));
  ASSIGN_OR_RETURN(serving.calls.prompt_log, OpenLog("--log-prompts", options.prompt_log, /*secret=*/true));
  serving.drain_timeout = absl::Seconds(options.drain_timeout_s);
  serving.metrics_need_key = options.metrics_key;
  serving.facts.version = kProgramVersion;
  serving.facts.model = model->names.front();
  serving.facts.start_time_s = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  serving.facts.vllm_names = options.metrics_compat == "vllm";
  serving.facts.slo_ttft_s = options.slo_ttft_s;
  return serving;
}

}  // namespace stagecoach
