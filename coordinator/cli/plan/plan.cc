// plan: how a model would run on a cluster, and how fast, without running it. Reads the model's header alone.

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/cli/plan/plan_report.h"
#include "coordinator/cli/verb.h"
#include "coordinator/plan/choice/host_choice.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"
#include "coordinator/plan/plan_advice.h"

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
    AddChoice(app, "--goal", &goal_, kPlanGoals, "what the hosts are chosen for; latency: between two tokens");
    AddInteger(app, "--jobs", &most_jobs_, {0, 1 << 20}, "independent jobs at most; 0: as many as pay");
    AddNumber(
        app, "--acceptance", &acceptance_, {0, 1},
        "share of tokens that are guessed right, for the rate of one user: 0.8 where a text is edited, 0.5 where a "
        "summary quotes, nearly 0 where prose is written");
    AddText(app, "--draft-model", &draft_model_, "FILE",
            "a smaller model that guesses: what it takes of its host (the host file's line with `draft`, else the "
            "coordinator's; a description of the hosts may name one), and what one user gains by it");
    AddTurnOptions(app, &coordinator_us_, &wake_us_);
    AddFlag(app, "--verbose", &verbose_, "every stage and every job, not only a line for those that are alike");
    AddFlag(app, "--json", &json_, "one JSON object in the place of the text");
    AddText(app, "-o,--output", &output_, "FILE",
            "also write that object to a file, which `coordinator generate --plan FILE` and the like follow");
  }

  absl::Status Run(const RunContext& context) override {
    RETURN_IF_ERROR(ResolveModel(&options_, /*required=*/true));
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model,
                     OpenDescription(options_.model, options_.q2_layout));
    const bool has_tokenizer = !IsDummyModelPath(options_.model);
    if (!draft_model_.empty()) options_.speculate = Speculate::kAuto;
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options_, *model, context));
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> draft, OpenDraft(*model));
    launch.job.set_draft_model_path(draft_model_);
    ASSIGN_OR_RETURN(PlanPlaces places, AllPlaces(launch));
    RETURN_IF_ERROR(CheckTogether());
    ClusterQuestion question = QuestionOf(model, places, launch);
    const bool all_named = NameAllLinks(&question.profile);
    question.load = load_;
    question.coordinator_us = coordinator_us_;
    question.wake_us = wake_us_;
    ASSIGN_OR_RETURN(const HostChoice choice, Choose(question));
    const ChosenJob& first = choice.jobs.front();
    if (!all_named && UsesUnnamedLinks(places.profile, choice)) {
      const LinkFacts& link = *question.profile.default_link;
      places.assumptions.push_back(
          absl::StrFormat("links that the description of the hosts does not name: %g Gbit/s, "
                          "%g us, as the slowest that it names",
                          link.bandwidth_gbit_s, link.latency_us));
    }
    PlanReport report = {.question = &question, .places = &places, .goal = goal_, .choice = &choice};
    report.acceptance = acceptance_;
    if (draft != nullptr) {
      ASSIGN_OR_RETURN(report.draft, PlanDraftOn(places.draft_host, first, draft));
    }
    report.chosen = options_.layer_split.empty();
    report.stages = options_.stages;
    report.alternatives = AlternativesTo(first.question, first.plan);
    if (choice.jobs.size() > 1) {
      const absl::StatusOr<HostChoice> one = ChooseHosts(question, {.goal = goal_, .most_jobs = 1});
      if (one.ok()) report.one_job = one->figures;
    }
    report.has_tokenizer = has_tokenizer;
    report.job_words = JobWords(first);
    report.model_words = DummyWords(options_.dummy);
    if (report.model_words.empty()) {
      report.model_words = {"-m", has_tokenizer ? launch.job.model_path() : options_.model};
    }
    return Print(report);
  }

 private:
  // nullptr: there is none. What has no tokens is taken to have the same.
  absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenDraft(const ModelDescription& model) const {
    if (draft_model_.empty()) return std::shared_ptr<const ModelDescription>();
    ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> draft, OpenDescription(draft_model_, options_.q2_layout));
    const bool have_tokens = !IsDummyModelPath(options_.model) && !IsDummyModelPath(draft_model_);
    if (have_tokens) RETURN_IF_ERROR(CheckDraft(model, *draft));
    return draft;
  }

  // All slots of the hosts that were named, and not only as many as there are to be stages.
  absl::StatusOr<PlanPlaces> AllPlaces(const LaunchOptions& launch) const {
    ASSIGN_OR_RETURN(PlanPlaces places, FindPlaces(options_, sources_, launch));
    const bool named = sources_.given() || !options_.hosts.empty() || !options_.hostfile.empty();
    if (options_.stages == 0 || !named || !options_.layer_split.empty()) return places;
    ClusterOptions all = options_;
    all.stages = 0;
    LaunchOptions launch_all = launch;
    launch_all.stages = 0;
    launch_all.job.set_stages(0);
    absl::StatusOr<PlanPlaces> all_places = FindPlaces(all, sources_, launch_all);
    if (all_places.ok()) places = *std::move(all_places);
    return places;
  }

  absl::Status CheckTogether() const {
    const bool by_hand = !options_.layer_split.empty();
    if (most_jobs_ > 1 && !draft_model_.empty()) {
      return UsageError("--draft-model guesses for one job; leave --jobs out, or --draft-model");
    }
    if (most_jobs_ > 1 && options_.stages > 0) {
      return UsageError("--pp asks for one job of so many stages; leave --jobs out, or --pp");
    }
    if (by_hand && (most_jobs_ > 0 || goal_ != PlanGoal::kThroughput)) {
      return UsageError("--layer-split leaves nothing to choose; leave --goal and --jobs out, or --layer-split");
    }
    return absl::OkStatus();
  }

  // Gives the links that are not known the slowest of those that are; false if there were any.
  static bool NameAllLinks(HostProfile* profile) {
    if (profile->default_link.has_value()) return true;
    std::set<std::pair<int, int>> named;
    LinkFacts slowest = AssumedLink();
    for (const LinkFacts& link : profile->links) {
      if (link.from == link.to) continue;
      const bool first = named.empty();
      named.insert(std::minmax(link.from, link.to));
      if (first || link.bandwidth_gbit_s < slowest.bandwidth_gbit_s) slowest = link;
    }
    const size_t hosts = profile->hosts.size();
    if (named.size() == hosts * (hosts - 1) / 2) return true;
    profile->default_link = slowest;
    return false;
  }

  static bool UsesUnnamedLinks(const HostProfile& profile, const HostChoice& choice) {
    for (const ChosenJob& job : choice.jobs) {
      int from = profile.coordinator;
      for (const int to : job.question.stage_hosts) {
        if (!LinkBetween(profile, from, to).has_value()) return true;
        from = to;
      }
      if (!LinkBetween(profile, from, profile.coordinator).has_value()) return true;
    }
    return false;
  }

  // With a split by hand there is nothing to choose.
  absl::StatusOr<HostChoice> Choose(const ClusterQuestion& question) const {
    if (options_.layer_split.empty()) {
      absl::StatusOr<HostChoice> choice = ChooseHosts(
          question, {.goal = goal_, .stages = options_.stages, .most_jobs = draft_model_.empty() ? most_jobs_ : 1});
      if (!choice.ok()) return PlanFailure(choice.status());
      return choice;
    }
    absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
    if (!plan.ok()) return PlanFailure(plan.status());
    HostChoice choice;
    choice.figures = {plan->output_tokens_per_s, plan->decode.itl_s, plan->prefill.ttft_s, plan->sequences};
    choice.jobs.push_back({question, *std::move(plan)});
    return choice;
  }

  // What a job was asked to be other than by default.
  std::vector<std::string> JobWords(const ChosenJob& first) const {
    // The bench of a model without a tokenizer takes its context from the tests.
    const bool context = !IsDummyModelPath(options_.model);
    const bool one_stage = first.plan.stages() == 1;  // else the split's chunk and micro-batches stand in the line
    return JobSettingWords(options_,
                           Settings({"q2_layout", context ? "context" : "", "threads", "isa", "max_num_batched_tokens",
                                     one_stage && options_.prefill_chunk > 0 ? "prefill_chunk" : "",
                                     one_stage && options_.micro_batches > 0 ? "micro_batches" : "", "block_tokens",
                                     "kv_cache_bytes", "kv_type", "wire_type"}));
  }

  absl::Status Print(const PlanReport& report) const {
    const std::string json = json_ || !output_.empty() ? PrettyJson(PlanJson(report)) : "";
    if (!output_.empty()) {
      if (absl::Status status = WriteWholeFile(output_, json); !status.ok()) return OptionError("--output", status);
    }
    return WriteStdout(json_ ? json : PlanText(report, verbose_));
  }

  ClusterOptions options_;
  PlaceSources sources_;
  std::string output_, draft_model_;
  PlanLoad load_;
  double coordinator_us_ = kAssumedTurnUs, wake_us_ = kAssumedWakeUs;
  double acceptance_ = 0.7;
  PlanGoal goal_ = PlanGoal::kThroughput;
  int64_t most_jobs_ = 0;
  bool json_ = false, verbose_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakePlanVerb() { return std::make_unique<PlanVerb>(); }

}  // namespace stagecoach
