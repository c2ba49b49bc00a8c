// serve: a cluster as an HTTP service.

#include <algorithm>
#include <cstdlib>

#include "CLI/App.hpp"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/options/prompt_options.h"
#include "coordinator/cli/options/sampling_options.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/serve/http/http_server.h"
#include "coordinator/serve/service/opened_model.h"
#include "coordinator/serve/service/serving.h"
#include "coordinator/session/cluster_run.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/trace/trace_file.h"

namespace stagecoach {
namespace {

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

struct ServeOptions {
  HttpServerOptions http;
  ServingOptions serving;
  std::string names;  // separated by commas, as are hosts and origins
  std::string key_file;
  std::string allowed_hosts, cors_origins;
  ChatTemplateOptions chat_template;
  std::string reasoning_format = "auto", reasoning_field = "reasoning_content";
  std::string tool_parser = "auto";
  bool keep_client_stamp = false;
  double queue_timeout_s = 600, request_timeout_s = 0, ping_interval_s = 15, drain_timeout_s = 30;
  uint64_t max_body_bytes = 8 << 20;
  std::string access_log, prompt_log;
  std::string metrics_compat = "none";
};

void AddServiceGroup(CLI::App* app, ServeOptions* o) {
  const HelpGroup group(app, "Service");
  AddText(app, "--host", &o->http.host, "ADDRESS",
          "the address or name to listen on; 0.0.0.0 or [::]: all of this machine");
  AddInteger(app, "--port", &o->http.port, {0, 65535}, "0: any that is free, which is printed");
  AddText(app, "--served-model-name", &o->names, "NAMES",
          "names of the model, separated by commas, of which the first is shown; requests must use one of them "
          "(otherwise it is the file's name, and requests may call it anything)");
  AddText(app, "--api-key-file", &o->key_file, "FILE",
          absl::StrCat("lines name:key[:class[:weight]]; a single key can be in the variable ", kKeyVariable,
                       " instead. Without a key everybody is served"));
  AddText(app, "--allowed-hosts", &o->allowed_hosts, "NAMES",
          "further names, separated by commas, by which clients may call this server (the header Host)");
  AddText(app, "--cors-origins", &o->cors_origins, "ORIGINS",
          "web pages that may use this server, separated by commas, such as https://chat.example");
  AddChoice(app, "--reasoning-format", &o->reasoning_format, {"auto", "none"},
            "auto: a model's reasoning is parted from its answer; none: its markup stays in the text");
  AddChoice(app, "--reasoning-field", &o->reasoning_field, {"reasoning_content", "reasoning", "both"},
            "the field of an answer that has it");
  std::vector<std::string> parsers = {"auto"};
  for (const absl::string_view name : OutputFormatNames()) parsers.emplace_back(name);
  AddParsed(app, "--tool-parser",
            "how the model writes calls of tools: auto: as its chat template shows; none: their text is part of the "
            "answer; or the name of a family of models, such as hermes_json (an unknown name lists them)",
            "auto|none|FAMILY", o->tool_parser,
            ChoiceParser(parsers, [o, parsers](size_t i) { o->tool_parser = parsers[i]; }));
  AddFlag(app, "--keep-client-stamp", &o->keep_client_stamp,
          "system texts of /v1/messages keep the line x-anthropic-billing-header, which differs from conversation to "
          "conversation, so that none of them shares its beginning with another in the prefix cache");
  AddText(app, "--access-log", &o->access_log, "FILE", "append one JSON line a request; never what it said");
  AddFlag(app, "--cache-shared", &o->serving.calls.cache_shared,
          "keys find the beginnings of each other's prompts in the prefix cache, and can tell");
  AddText(app, "--log-prompts", &o->prompt_log, "FILE", "append what was asked and answered, as JSON lines");
  AddChoice(app, "--metrics-compat", &o->metrics_compat, {"none", "vllm"},
            "vllm: the most important metrics under vLLM's names too");
  AddFlag(app, "--metrics-key", &o->serving.metrics_need_key, "/metrics needs a key, too");
}

void AddLimitsGroup(CLI::App* app, ServeOptions* o) {
  const HelpGroup group(app, "Limits of the service");
  AddInteger(app, "--max-num-queued-reqs", &o->serving.calls.queue.requests, {1, 1'000'000},
             "requests that wait for their first token; beyond: 429");
  AddInteger(app, "--max-num-queued-tokens", &o->serving.calls.queue.tokens, {1, int64_t{1} << 40},
             "tokens of their prompts, together");
  AddDuration(app, "--queue-timeout", &o->queue_timeout_s, kTimeoutS,
              "until a request's first token, such as 90s or 10m; beyond: 504. 0: any time", "10m");
  AddDuration(app, "--request-timeout", &o->request_timeout_s, kTimeoutS,
              "from an answer's first token to its last; it then ends with what is there. 0: any time", "0");
  AddDuration(app, "--sse-ping-interval", &o->ping_interval_s, {0, 3600},
              "between signs of life in a stream that has nothing to say. 0: none", "15s");
  AddDuration(app, "--drain-timeout", &o->drain_timeout_s, kTimeoutS,
              "for answers to end after SIGTERM, SIGINT, SIGHUP or SIGUSR1; a second signal ends at once", "30s");
  AddDuration(app, "--slo-ttft", &o->serving.facts.slo_ttft_s, kTimeoutS,
              "wanted time to the first token: counted in the metrics, changes nothing");
  AddBytes(app, "--max-body", &o->max_body_bytes,
           "most bytes of a request, such as 512K or 8M; at most 2G, and of those for tokens and texts 4M", "8M");
}

absl::Duration OrNever(double seconds) { return seconds == 0 ? absl::InfiniteDuration() : absl::Seconds(seconds); }

absl::StatusOr<std::shared_ptr<LineLog>> OpenLog(const char* option, const std::string& path, bool secret) {
  if (path.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<LineLog>> log = LineLog::Open(path, secret);
  if (!log.ok()) return OptionError(option, log.status());
  return std::shared_ptr<LineLog>(*std::move(log));
}

// The server's options. Reads the keys: those of the file, and the one in STAGECOACH_API_KEY, which is called
// "default".
absl::StatusOr<HttpServerOptions> MakeHttpOptions(const ServeOptions& options) {
  if (options.max_body_bytes > kMostBodyBytes) {
    return UsageError(absl::StrCat("--max-body: ", options.max_body_bytes, " is out of range, expected at most ",
                                   kMostBodyBytes, " (2G)"));
  }
  HttpServerOptions http = options.http;
  http.allowed_hosts = Words(options.allowed_hosts);
  http.cors_origins = Words(options.cors_origins);
  http.sse_ping_interval = OrNever(options.ping_interval_s);
  http.limits.body_bytes = static_cast<int64_t>(options.max_body_bytes);
  http.limits.all_bodies_bytes = std::max(http.limits.all_bodies_bytes, 4 * http.limits.body_bytes);
  ApiKeys keys;
  if (!options.key_file.empty()) {
    absl::StatusOr<ApiKeys> read = ApiKeys::Read(options.key_file);
    if (!read.ok()) return OptionError("--api-key-file", read.status());
    keys = *std::move(read);
  }
  const char* key = std::getenv(kKeyVariable);
  if (key != nullptr && *key != '\0') {
    ApiKey one;
    one.name = "default";
    one.key = key;
    if (const absl::Status added = keys.Add(std::move(one)); !added.ok()) {
      return OptionError(kKeyVariable, added, ExitCode::kUsage);
    }
  }
  if (!keys.empty()) http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  return http;
}

// The service's options; opens the logs. Sets the fields of `model` that the options determine.
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
  model->keep_client_stamp = options.keep_client_stamp;

  model->parse_calls = options.tool_parser != "none";
  if (options.tool_parser != "auto" && model->parse_calls) {
    model->output_format = model->tool_format = *OutputFormatByName(options.tool_parser);
  }

  ServingOptions serving = options.serving;
  serving.calls.queue_timeout = OrNever(options.queue_timeout_s);
  serving.calls.request_timeout = OrNever(options.request_timeout_s);
  serving.calls.max_choices = static_cast<int>(std::min<int64_t>(max_num_seqs, kMostChoices));
  ASSIGN_OR_RETURN(serving.calls.access_log, OpenLog("--access-log", options.access_log, /*secret=*/false));
  ASSIGN_OR_RETURN(serving.calls.prompt_log, OpenLog("--log-prompts", options.prompt_log, /*secret=*/true));
  serving.drain_timeout = absl::Seconds(options.drain_timeout_s);
  serving.facts.version = kProgramVersion;
  serving.facts.model = model->names.front();
  serving.facts.start_time_s = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  serving.facts.vllm_names = options.metrics_compat == "vllm";
  return serving;
}

// The messages name the option of other verbs.
absl::Status HostListError(const absl::Status& status) {
  std::string message = absl::StrReplaceAll(status.message(), {{"--host:", "--hosts:"}, {"`hosts`", "--hosts"}});
  return WithExitCode(absl::Status(status.code(), message), ExitCodeOf(status));
}

class ServeVerb : public Verb {
 public:
  ServeVerb()
      : Verb("serve", "answer HTTP clients: chat, completions, metrics",
             "coordinator serve -m model.gguf --pp 2 --port 8080") {
    cluster_options_.hosts_option = "--hosts";
  }
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddServiceGroup(app, &serve_options_);
    AddChatTemplateOptions(app, &serve_options_.chat_template);
    AddLimitsGroup(app, &serve_options_);
    AddVerbosityOptions(app, &verbosity_, /*with_progress=*/false);
    AddSamplingOptions(app, &sampling_options_,
                       {.group = "Sampling, of requests that do not say (defaults: the model file's, else these)",
                        .temperature = "1",
                        .seed = "drawn for each request"});
    AddClusterOptions(app, &cluster_options_, "most tokens of a prompt and its answer together");
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    ASSIGN_OR_RETURN(const ChatTemplateChoice choice, ReadChatTemplateChoice(serve_options_.chat_template));
    ASSIGN_OR_RETURN(model_, OpenServedModel(cluster_options_.model, cluster_options_.q2_layout, choice));
    absl::StatusOr<LaunchOptions> launch = MakeLaunchOptions(cluster_options_, *model_->front.description, context);
    if (!launch.ok()) return HostListError(launch.status());
    if (cluster_options_.dry_run) return PrintLaunch(*launch);
    ASSIGN_OR_RETURN(const std::unique_ptr<Service> service, Listen());
    return Serve(service.get(), *std::move(launch), context);
  }

 private:
  ServedModel Served() const {
    ServedModel served = model_->Served();
    served.sampling = ResolveSampling(sampling_options_, model_->front.metadata());
    // What clients of this API count on where neither they nor the file say otherwise.
    if (!sampling_options_[&SamplingParams::temperature].has_value() &&
        !model_->front.metadata().Has("general.sampling.temp")) {
      served.sampling.temperature = 1;
    }
    served.ignore_eos = sampling_options_.ignore_eos;
    return served;
  }

  absl::StatusOr<std::unique_ptr<Service>> Listen() const {
    ServedModel served = Served();
    ASSIGN_OR_RETURN(ServingOptions serving,
                     MakeServingOptions(serve_options_, cluster_options_.max_num_seqs, &served));
    serving.calls.seed = sampling_options_.seed;
    serving.facts.slo_itl_s = cluster_options_.slo_itl_s;
    ASSIGN_OR_RETURN(HttpServerOptions http, MakeHttpOptions(serve_options_));
    const bool keys = http.keys != nullptr;
    absl::StatusOr<std::unique_ptr<Service>> service =
        Service::Listen(std::move(http), std::move(serving), std::move(served));
    if (!service.ok()) return WithExitCode(service.status(), ExitCode::kUsage);
    const std::string listens = absl::StrCat("listening on ", (*service)->server().address(), "; the model loads");
    if (serve_options_.http.port == 0) {
      LogError(listens);  // with -q too: the port is not known otherwise
    } else {
      LogInfo(listens);
    }
    if (!(*service)->server().loopback() && !keys) {
      LogInfo("warning: whoever reaches this address can use the model; --api-key-file asks for keys");
    }
    const absl::Status chat = model_->chat->usable(/*with_tools=*/false);
    if (!chat.ok()) {
      LogInfo(absl::StrCat("no chat: ", chat.message(), " (--chat-template-file, --chat-template); completions work"));
    }
    return service;
  }

  absl::Status Serve(Service* service, LaunchOptions launch, const RunContext& context) {
    launch.job.set_max_prompt_logprobs(kMaxPromptLogprobs);  // what completions with echo may ask for
    const std::string trace = launch.job.trace();
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session, OpenSession(std::move(launch), context.engine_descriptor));
    const absl::Status ended = service->Run(std::move(session));
    if (!trace.empty()) {
      if (const absl::Status finished = FinishTrace(trace); !finished.ok()) {
        LogError(absl::StrCat("the trace '", trace, "' is as the run left it: ", finished.message()));
      }
    }
    return ended.ok() ? ended : JobFailure(ended);
  }

  ClusterOptions cluster_options_;
  SamplingOptions sampling_options_;
  ServeOptions serve_options_;
  Verbosity verbosity_;
  std::unique_ptr<OpenedModel> model_;
};

}  // namespace

std::unique_ptr<Verb> MakeServeVerb() { return std::make_unique<ServeVerb>(); }

}  // namespace stagecoach
