// perplexity: how well a model predicts a text.

#include "coordinator/perplexity/perplexity.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/text/vocabulary.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {
namespace {

class PerplexityVerb : public Verb {
 public:
  PerplexityVerb()
      : Verb("perplexity", "measure how well a model predicts a text",
             "coordinator perplexity -m model.gguf -f text.txt --ctx-size 512 --pp 2") {
    cluster_options_.context = 512;
    cluster_options_.speculate = Speculate::kOff;  // no row is sampled
  }
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddText(app, "-f,--file", &file_, "FILE", "the text");
    AddChoice(app, "--output", &output_, {"text", "json"}, "json: one object at the end");
    AddVerbosityOptions(app, &verbosity_);
    AddClusterOptions(app, &cluster_options_, "tokens of a window; the second half of each is scored");
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    ASSIGN_OR_RETURN(model_, OpenFrontModel(cluster_options_.model, cluster_options_.q2_layout));
    if (cluster_options_.context < 4)
      return UsageError(absl::StrCat("-c: ", cluster_options_.context, " tokens, expected 4 or more"));
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(cluster_options_, *model_.description, context));
    if (cluster_options_.dry_run) return PrintLaunch(launch);
    RETURN_IF_ERROR(CutWindows());
    ASSIGN_OR_RETURN(cluster_,
                     ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
    return Report(RunAll());
  }

 private:
  absl::Status CutWindows() {
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

  absl::Status RunAll() {
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

  absl::Status SubmitMore() {
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

  absl::Status Take(const SessionEvent& event) {
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

  void DrawProgress() {
    if (!cluster_->progress().shown() || scores_.empty()) return;
    const PerplexityEstimate estimate = EstimatePerplexity(scores_);
    const int64_t done = estimate.tokens / windows_->scored_per_window();
    if (done == 0) return;
    cluster_->progress().Draw(
        ProgressText("perplexity", static_cast<double>(done) / static_cast<double>(windows_->count()),
                     absl::StrFormat("%d of %d windows, so far %.4f", done, windows_->count(), estimate.perplexity)));
  }

  absl::Status Report(absl::Status status) {
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

}  // namespace

PerplexityWindows::PerplexityWindows(std::vector<TokenId> tokens, int64_t context, TokenId bos)
    : tokens_(std::move(tokens)), context_(context), bos_(bos) {
  CHECK_GE(context_, 4);
}

std::vector<TokenId> PerplexityWindows::Window(int64_t index) const {
  CHECK(index >= 0 && index < count());
  const auto begin = tokens_.begin() + index * context_;
  std::vector<TokenId> window(begin, begin + context_);
  if (bos_ != kNoToken) window[0] = bos_;
  return window;
}

WindowScore::WindowScore(int64_t first, int64_t end)
    : first_(first), missing_(end - first), logprobs_(static_cast<size_t>(end - first)), have_(logprobs_.size()) {}

// The row at position p gives the log-probability of the token at p + 1.
absl::Status WindowScore::Add(const TargetLogprobs& scores) {
  for (size_t row = 0; row < scores.logprobs.size(); ++row) {
    const int64_t position = scores.start + static_cast<int64_t>(row) + 1;
    const int64_t index = position - first_;
    if (index < 0 || index >= static_cast<int64_t>(logprobs_.size())) continue;
    const float logprob = scores.logprobs[row];
    if (have_[index]) return absl::InternalError(absl::StrCat("position ", position, " was scored twice"));
    if (!(logprob <= 0)) {
      return absl::InternalError(absl::StrCat("position ", position, " has the log-probability ", logprob));
    }
    have_[index] = true;
    logprobs_[index] = logprob;
    --missing_;
  }
  return absl::OkStatus();
}

PerplexityEstimate EstimatePerplexity(absl::Span<const WindowScore> windows) {
  double sum = 0;
  double squares = 0;
  PerplexityEstimate estimate;
  for (const WindowScore& window : windows) {
    if (!window.complete()) continue;
    for (float logprob : window.logprobs()) {
      const double nll = -static_cast<double>(logprob);
      sum += nll;
      squares += nll * nll;
    }
    estimate.tokens += static_cast<int64_t>(window.logprobs().size());
  }
  if (estimate.tokens == 0) return estimate;
  const double count = static_cast<double>(estimate.tokens);
  const double mean = sum / count;
  const double variance = squares / count - mean * mean;
  estimate.perplexity = std::exp(mean);
  if (estimate.tokens > 1 && variance > 0) estimate.error = std::sqrt(variance / (count - 1)) * estimate.perplexity;
  return estimate;
}

std::unique_ptr<Verb> MakePerplexityVerb() { return std::make_unique<PerplexityVerb>(); }

}  // namespace stagecoach
