// perplexity: how well a model predicts a text.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/perplexity_score.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verbosity.h"
#include "coordinator/front/cluster_run.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/run_summary.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/text/vocabulary.h"

namespace stagecoach {
namespace {

class PerplexityVerb : public Verb {
 public:
  PerplexityVerb() { cluster_options_.context = 512; }
  const char* name() const override { return "perplexity"; }
  const char* summary() const override { return "measure how well a model predicts a text"; }
  const char* example() const override {
    return "coordinator perplexity -m model.gguf -f text.txt --ctx-size 512 --pp 2";
  }
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddText(app, "-f,--file", &file_, "FILE", "the text");
    AddChoice(app, "--output", &output_, {"text", "json"}, "json: one object at the end");
    AddVerbosityOptions(app, &verbosity_, /*with_progress=*/true);
    AddClusterOptions(app, &cluster_options_, "tokens of a window; the second half of each is scored");
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    ASSIGN_OR_RETURN(model_, OpenFrontModel(cluster_options_.model, cluster_options_.q2_layout));
    if (cluster_options_.context < 4)
      return UsageError(absl::StrCat("-c: ", cluster_options_.context, " tokens, expected 4 or more"));
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(cluster_options_, model_.description->hyper, context));
    if (cluster_options_.dry_run) {
      absl::StatusOr<std::string> line = DescribeLaunch(launch);
      return line.ok() ? WriteStdout(*line + "\n") : WithExitCode(line.status(), ExitCode::kLaunch);
    }
    RETURN_IF_ERROR(CutWindows());
    ASSIGN_OR_RETURN(cluster_,
                     ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
    return Report(RunAll());
  }

 private:
  absl::Status CutWindows();
  absl::Status RunAll();
  absl::Status SubmitMore();
  absl::Status Take(const SessionEvent& event);
  void DrawProgress();
  absl::Status Report(absl::Status status);

  ClusterOptions cluster_options_;
  Verbosity verbosity_;
  std::string file_;
  std::string output_ = "text";

  FrontModel model_;
  std::unique_ptr<PerplexityWindows> windows_;
  std::vector<WindowScore> scores_;                  // of the windows submitted so far
  absl::flat_hash_map<RequestId, int64_t> running_;  // request -> window
  std::unique_ptr<ClusterRun> cluster_;
};

absl::Status PerplexityVerb::CutWindows() {
  if (file_.empty()) return UsageError("there is no text: give one with -f FILE");
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file_));
  std::vector<TokenId> tokens = model_.tokenizer->Encode(text, /*add_special=*/true, /*parse_special=*/false);
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(model_.metadata()));
  const size_t count = tokens.size();
  windows_ = std::make_unique<PerplexityWindows>(std::move(tokens), cluster_options_.context,
                                                 vocabulary.add_bos ? vocabulary.bos : kNoToken);
  if (windows_->count() == 0) {
    return InputFileError(absl::StrCat("'", file_, "' has ", count, " tokens, a window needs ",
                                       cluster_options_.context, "; use a longer text or a smaller --ctx-size"));
  }
  return absl::OkStatus();
}

absl::Status PerplexityVerb::SubmitMore() {
  const size_t in_flight = 2 * static_cast<size_t>(cluster_options_.max_num_seqs);
  while (running_.size() < in_flight && static_cast<int64_t>(scores_.size()) < windows_->count() &&
         !cluster_->DrainRequested()) {
    GenerationRequest request;
    request.prompt = windows_->Window(static_cast<int64_t>(scores_.size()));
    request.max_new_tokens = 0;
    request.score_from = windows_->first_scored();
    ASSIGN_OR_RETURN(const RequestId id, cluster_->Submit(std::move(request)));
    running_[id] = static_cast<int64_t>(scores_.size());
    scores_.emplace_back(windows_->first_scored(), cluster_options_.context);
  }
  return absl::OkStatus();
}

absl::Status PerplexityVerb::RunAll() {
  bool cancelled = false;
  while (true) {
    if (!cancelled) RETURN_IF_ERROR(SubmitMore());
    if (running_.empty() || cluster_->GiveUp()) break;
    ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, cluster_->Next());
    if (event.has_value()) RETURN_IF_ERROR(Take(*event));
    DrawProgress();
    if (cluster_->StopRequested() && !cancelled) {
      cancelled = true;
      for (const auto& [request, window] : running_) cluster_->Cancel(request);
    }
  }
  const int64_t complete =
      std::count_if(scores_.begin(), scores_.end(), [](const WindowScore& s) { return s.complete(); });
  if (complete == windows_->count()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("interrupted after ", complete, " of ", windows_->count(), " windows"));
}

absl::Status PerplexityVerb::Take(const SessionEvent& event) {
  const auto found = running_.find(event.request);
  if (found == running_.end()) return absl::OkStatus();
  WindowScore& score = scores_[static_cast<size_t>(found->second)];
  for (const TargetLogprobs& part : event.scores) RETURN_IF_ERROR(score.Add(part));
  if (!event.finished.has_value()) return absl::OkStatus();
  const int64_t window = found->second;
  running_.erase(found);
  switch (event.finished->reason()) {
    case pb::RequestFinished::REASON_FAILED: return absl::UnavailableError(std::string(event.finished->error()));
    case pb::RequestFinished::REASON_REJECTED: return UsageError(absl::StrCat("rejected: ", event.finished->error()));
    case pb::RequestFinished::REASON_CANCELLED: return absl::OkStatus();
    default:
      if (score.complete()) return absl::OkStatus();
      return absl::InternalError(absl::StrCat("window ", window, " ended without all of its scores"));
  }
}

void PerplexityVerb::DrawProgress() {
  if (!cluster_->progress().shown() || scores_.empty()) return;
  const PerplexityEstimate estimate = EstimatePerplexity(scores_);
  const int64_t done = estimate.tokens / windows_->scored_per_window();
  if (done == 0) return;
  cluster_->progress().Draw(
      ProgressText("perplexity", static_cast<double>(done) / static_cast<double>(windows_->count()),
                   absl::StrFormat("%d of %d windows, so far %.4f", done, windows_->count(), estimate.perplexity)));
}

absl::Status PerplexityVerb::Report(absl::Status status) {
  const RunSummary summary = cluster_->Finish();
  const PerplexityEstimate estimate = EstimatePerplexity(scores_);
  if (estimate.tokens > 0) {
    const int64_t windows = estimate.tokens / windows_->scored_per_window();
    const int64_t evaluated = windows * cluster_options_.context;
    const double rate = summary.totals.seconds > 0 ? static_cast<double>(evaluated) / summary.totals.seconds : 0;
    std::string text;
    if (output_ == "json") {
      text = PrettyJson({{"perplexity", estimate.perplexity},
                         {"error", estimate.error},
                         {"tokens", estimate.tokens},
                         {"windows", windows},
                         {"windows_of_text", windows_->count()},
                         {"ctx_size", cluster_options_.context},
                         {"evaluated_tokens", evaluated},
                         {"tokens_per_second", rate},
                         {"timings", TimingsJson(summary)},
                         {"stages", StagesJson(summary)}});
    } else {
      text = absl::StrFormat(
          "perplexity   %.4f +/- %.4f\ntokens       %d scored, in the second halves of %d windows of %d\n"
          "speed        %.1f tokens/s\n",
          estimate.perplexity, estimate.error, estimate.tokens, windows, cluster_options_.context, rate);
    }
    if (absl::Status printed = WriteStdout(text); status.ok()) status = printed;
  }
  PrintStatistics(summary);
  return status;
}

}  // namespace

std::unique_ptr<Verb> MakePerplexityVerb() { return std::make_unique<PerplexityVerb>(); }

}  // namespace stagecoach
