// serve: a cluster as an HTTP service.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/sampling_options.h"
#include "coordinator/cli/serve_options.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verbosity.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/open_session.h"
#include "coordinator/front/signals.h"
#include "coordinator/http/service/opened_model.h"
#include "coordinator/http/service/service.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/trace/trace_file.h"

namespace stagecoach {
namespace {

// The options' messages speak of the one that other verbs have.
absl::Status OfHostList(const absl::Status& status) {
  std::string message = absl::StrReplaceAll(status.message(), {{"--host:", "--hosts:"}, {"`hosts`", "--hosts"}});
  return WithExitCode(absl::Status(status.code(), message), ExitCodeOf(status));
}

class ServeVerb : public Verb {
 public:
  ServeVerb() { cluster_options_.hosts_option = "--hosts"; }

  const char* name() const override { return "serve"; }
  const char* summary() const override { return "answer HTTP clients: chat, completions, metrics"; }
  const char* example() const override { return "coordinator serve -m model.gguf --pp 2 --port 8080"; }
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddServeOptions(app, &serve_options_);
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
    absl::StatusOr<LaunchOptions> launch =
        MakeLaunchOptions(cluster_options_, model_->front.description->hyper, context);
    if (!launch.ok()) return OfHostList(launch.status());
    if (cluster_options_.dry_run) {
      absl::StatusOr<std::string> line = DescribeLaunch(*launch);
      return line.ok() ? WriteStdout(*line + "\n") : WithExitCode(line.status(), ExitCode::kLaunch);
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<Service> service, Listen());
    return Serve(service.get(), *std::move(launch), context);
  }

 private:
  ServedModel Served() const {
    ServedModel served = model_->Served();
    served.sampling = ResolveSampling(sampling_options_, model_->front.metadata());
    // What clients of this API count on where neither they nor the file say otherwise.
    if (!sampling_options_.temperature.has_value() && !model_->front.metadata().Has("general.sampling.temp")) {
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
    if (serve_options_.port == 0) {
      LogError(listens);  // with -q too: nobody could know the port otherwise
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
