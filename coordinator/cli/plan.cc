// plan: how a model would run on a cluster, and how fast, without running it. Reads the model's header alone.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/whole_file.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_choices.h"
#include "common/job/job_limits.h"
#include "common/json/json_value.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/dummy_options.h"
#include "coordinator/cli/job_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/cli/plan_report.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "coordinator/plan/assumed_facts.h"

namespace stagecoach {
namespace {

constexpr IntegerRange kPlanTokensRange = {1, 1 << 24};

class PlanVerb : public Verb {
 public:
  const char* name() const override { return "plan"; }
  const char* summary() const override { return "say how a model would run on a cluster, and how fast"; }
  const char* example() const override {
    return "coordinator plan --load-format dummy --shape qwen3-8b --type q8_0 --host node1,node2 --max-num-seqs 32";
  }
  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  std::vector<std::string> JobWords() const;
  absl::Status Print(const PlanReport& report) const;

  ClusterOptions options_;
  DummyOptions dummy_;
  PlaceSources sources_;
  std::string output_;
  std::optional<int64_t> chunk_;
  PlanLoad load_;
  double coordinator_us_ = kAssumedTurnUs, wake_us_ = kAssumedWakeUs;
  bool json_ = false;
};

void PlanVerb::AddOptions(CLI::App* app) {
  AddText(app, "-m,--model", &options_.model, "FILE", "the model, a GGUF file (any shard of a split one)");
  AddDummyOptions(app, &dummy_, /*several=*/false);
  AddPlannedPlaceOptions(app, &options_, &sources_.cluster, &sources_.profile, "Options");
  AddInteger(app, "--prompt-tokens", &load_.prompt_tokens, kPlanTokensRange, "tokens of a request's prompt",
             absl::StrCat(load_.prompt_tokens));
  AddInteger(app, "--output-tokens", &load_.output_tokens, kPlanTokensRange, "tokens of its answer",
             absl::StrCat(load_.output_tokens));
  AddJobSettings(
      app, &options_,
      Settings({"q2_layout", "context", "stages", "layer_split", "threads", "isa", "max_num_seqs",
                "max_num_batched_tokens", "micro_batches", "block_tokens", "kv_cache_bytes", "kv_type", "wire_type"}));
  app->get_option("--micro-batches")->default_str("the best number");
  AddInteger(app, "--prefill-chunk", &chunk_, JobLimits::kPrefillChunk.range, "rows of one prompt in a micro-batch",
             "the best")
      ->group(kBatchingGroup);
  AddNumber(app, "--coordinator-us", &coordinator_us_, {0, 1e7},
            "microseconds that the coordinator takes for a micro-batch, from a result to the next one's sending",
            absl::StrCat(coordinator_us_));
  AddNumber(app, "--wake-us", &wake_us_, {0, 1e7},
            "microseconds from a frame's arrival, at a stage or the coordinator, until whoever waits for it has it",
            absl::StrCat(wake_us_));
  AddFlag(app, "--json", &json_, "one JSON object in the place of the text");
  AddText(app, "-o,--output", &output_, "FILE",
          "also write that object to a file, which `coordinator generate --plan FILE` and the like follow");
}

// Of a job of one stage, which sends no hidden states and has its host's cores.
std::vector<std::string> PlanVerb::JobWords() const {
  std::vector<std::string> words;
  if (chunk_.has_value()) words = {"--prefill-chunk", absl::StrCat(*chunk_)};
  // The bench of a model without a tokenizer takes its context from the tests.
  const bool context = !IsDummyModelPath(options_.model);
  for (std::string& word :
       JobSettingWords(options_, Settings({"q2_layout", context ? "context" : "", "isa", "max_num_batched_tokens",
                                           "block_tokens", "kv_cache_bytes", "kv_type"}))) {
    words.push_back(std::move(word));
  }
  return words;
}

absl::Status PlanVerb::Print(const PlanReport& report) const {
  const std::string json = PrettyJson(PlanJson(report));
  if (!output_.empty()) {
    if (absl::Status status = WriteWholeFile(output_, json); !status.ok()) {
      return InputFileError(absl::StrCat("--output: ", status.message()));
    }
  }
  return WriteStdout(json_ ? json : PlanText(report));
}

absl::Status PlanVerb::Run(const RunContext& context) {
  ASSIGN_OR_RETURN(options_.model, ModelOf(options_.model, dummy_, /*required=*/true));
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, OpenGguf(options_.model, options_.q2_layout));
  const bool has_tokenizer = !IsDummyModelPath(options_.model);
  absl::StatusOr<std::shared_ptr<const ModelDescription>> model =
      DescribeModel(std::shared_ptr<const GgufFile>(std::move(file)));
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kInputFile);
  ASSIGN_OR_RETURN(const LaunchOptions launch, MakeLaunchOptions(options_, (*model)->hyper, context));
  ASSIGN_OR_RETURN(const PlanPlaces places, FindPlaces(options_, sources_, launch));
  ClusterQuestion question;
  question.model = *model;
  question.profile = places.profile;
  question.stage_hosts = places.stage_hosts;
  question.job = launch.job;
  question.job.set_prefill_chunk(static_cast<int32_t>(chunk_.value_or(0)));
  question.load = load_;
  question.coordinator_us = coordinator_us_;
  question.wake_us = wake_us_;
  absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
  if (!plan.ok()) {
    const absl::Status status(plan.status().code(), WithFlags(plan.status().message()));
    return WithExitCode(status, absl::IsResourceExhausted(status) ? ExitCode::kLaunch : ExitCodeOf(status));
  }
  const PlanAdvice advice = AdviceFor(question, *plan);
  PlanReport report = {.question = &question, .places = &places, .plan = &*plan, .advice = &advice};
  report.has_tokenizer = has_tokenizer;
  report.job_words = JobWords();
  report.model_words = DummyWords(dummy_);
  if (report.model_words.empty()) {
    report.model_words = {"-m", has_tokenizer ? launch.job.model_path() : options_.model};
  }
  return Print(report);
}

}  // namespace

std::unique_ptr<Verb> MakePlanVerb() { return std::make_unique<PlanVerb>(); }

}  // namespace stagecoach
