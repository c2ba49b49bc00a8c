// plan: how a model would run on a cluster, and how fast, without running it. Reads the model's header alone.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/json/json_value.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_report.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {
namespace {

constexpr IntegerRange kPlanTokensRange = {1, 1 << 24};

class PlanVerb : public Verb {
 public:
  PlanVerb()
      : Verb("plan", "say how a model would run on a cluster, and how fast",
             "coordinator plan --load-format dummy --shape qwen3-8b --type q8_0 --host node1,node2 --max-num-seqs 32") {
  }
  void AddOptions(CLI::App* app) override {
    AddModelOptions(app, &options_);
    AddPlannedPlaceOptions(app, &options_, &sources_);
    AddInteger(app, "--prompt-tokens", &load_.prompt_tokens, kPlanTokensRange, "tokens of a request's prompt");
    AddInteger(app, "--output-tokens", &load_.output_tokens, kPlanTokensRange, "tokens of its answer");
    options_.prefill_chunk = 0;  // the best
    AddJobSettings(app, &options_,
                   Settings({"q2_layout", "context", "stages", "layer_split", "threads", "isa", "max_num_seqs",
                             "max_num_batched_tokens", "prefill_chunk", "micro_batches", "block_tokens",
                             "kv_cache_bytes", "kv_type", "wire_type"}));
    app->get_option("--micro-batches")->default_str("the best number");
    app->get_option("--prefill-chunk")->default_str("the best");
    AddTurnOptions(app, &coordinator_us_, &wake_us_);
    AddFlag(app, "--json", &json_, "one JSON object in the place of the text");
    AddText(app, "-o,--output", &output_, "FILE",
            "also write that object to a file, which `coordinator generate --plan FILE` and the like follow");
  }

  absl::Status Run(const RunContext& context) override {
    RETURN_IF_ERROR(ResolveModel(&options_, /*required=*/true));
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model,
                     OpenDescription(options_.model, options_.q2_layout));
    const bool has_tokenizer = !IsDummyModelPath(options_.model);
    ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(options_, model->hyper, context));
    ASSIGN_OR_RETURN(const PlanPlaces places, FindPlaces(options_, sources_, launch));
    ClusterQuestion question = QuestionOf(model, places, launch);
    question.load = load_;
    question.coordinator_us = coordinator_us_;
    question.wake_us = wake_us_;
    absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
    if (!plan.ok()) return PlanFailure(plan.status());
    const PlanAdvice advice = AdviceFor(question, *plan);
    PlanReport report = {.question = &question, .places = &places, .plan = &*plan, .advice = &advice};
    report.has_tokenizer = has_tokenizer;
    report.job_words = JobWords();
    report.model_words = DummyWords(options_.dummy);
    if (report.model_words.empty()) {
      report.model_words = {"-m", has_tokenizer ? launch.job.model_path() : options_.model};
    }
    return Print(report);
  }

 private:
  // Of a job of one stage, which sends no hidden states and has its host's cores.
  std::vector<std::string> JobWords() const {
    // The bench of a model without a tokenizer takes its context from the tests.
    const bool context = !IsDummyModelPath(options_.model), chunk = options_.prefill_chunk > 0;
    return JobSettingWords(options_,
                           Settings({"q2_layout", context ? "context" : "", "isa", "max_num_batched_tokens",
                                     chunk ? "prefill_chunk" : "", "block_tokens", "kv_cache_bytes", "kv_type"}));
  }

  absl::Status Print(const PlanReport& report) const {
    const std::string json = PrettyJson(PlanJson(report));
    if (!output_.empty()) {
      if (absl::Status status = WriteWholeFile(output_, json); !status.ok()) return OfOption("--output", status);
    }
    return WriteStdout(json_ ? json : PlanText(report));
  }

  ClusterOptions options_;
  PlaceSources sources_;
  std::string output_;
  PlanLoad load_;
  double coordinator_us_ = kAssumedTurnUs, wake_us_ = kAssumedWakeUs;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakePlanVerb() { return std::make_unique<PlanVerb>(); }

}  // namespace stagecoach
