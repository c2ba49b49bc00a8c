// batch: answers a file of requests, and can be killed and run again.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/cli/batch/batch_files.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/options/prompt_options.h"
#include "coordinator/cli/options/sampling_options.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/serve/service/opened_model.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxLineBytes = 16 << 20;
constexpr int64_t kSyncUs = 5000000;  // a power cut costs at most the answers of so long
constexpr int kMostLinesAtOnce = 256;

class BatchVerb : public Verb {
 public:
  BatchVerb()
      : Verb("batch", "answer a file of requests, resumable",
             "coordinator batch -m model.gguf --pp 2 -i requests.jsonl -o answers.jsonl") {}
  ~BatchVerb() override {
    if (input_ > STDIN_FILENO) close(input_);
  }
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }
  void AddOptions(CLI::App* app) override {
    AddRequiredText(app, "-i,--input", &input_path_, "FILE",
                    "OpenAI batch lines for /v1/completions, /v1/chat/completions, /v1/responses and /v1/messages; - "
                    "is standard input");
    AddRequiredText(
        app, "-o,--output", &output_path_, "FILE",
        "the answers, a line each; lines that an earlier run left there are not answered again, and one that fails "
        "has its error there");
    AddInteger(app, "-n,--predict", &max_new_tokens_, kMaxNewTokensRange,
               "most tokens of an answer, for lines without max_tokens");
    AddFlag(app, "--no-special", &no_special_, "control tokens written in the prompts of /v1/completions stay text");
    AddChatTemplateOptions(app, &chat_template_options_);
    AddVerbosityOptions(app, &verbosity_);
    AddSamplingOptions(app, &sampling_options_);
    AddClusterOptions(app, &cluster_options_, "most tokens of a prompt and its answer together");
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    ASSIGN_OR_RETURN(const ChatTemplateChoice choice, ReadChatTemplateChoice(chat_template_options_));
    ASSIGN_OR_RETURN(model_, OpenServedModel(cluster_options_.model, cluster_options_.q2_layout, choice));
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(cluster_options_, *model_->front.description, context));
    if (cluster_options_.dry_run) return PrintLaunch(launch);
    DescribeServed();
    RETURN_IF_ERROR(OpenFiles());
    run_id_ = absl::StrFormat("%x-%x", absl::ToUnixMicros(absl::Now()), getpid());
    if (model_->front.has_chat_template()) {
      LogInfo("the file has a chat template; the prompts of /v1/completions are sent raw, without it");
    }
    if (!sampling_options_.seed.has_value()) {
      LogInfo(absl::StrCat("seed ", served_.sampling.seed, " for lines without one"));
    }
    ASSIGN_OR_RETURN(cluster_,
                     ClusterRun::Open(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
    reader_.emplace(input_, kMaxLineBytes);
    return Report(RunAll());
  }

 private:
  // What the lines are read and answered with.
  void DescribeServed() {
    served_ = model_->Served();
    served_.names = {model_->front.DisplayName()};
    served_.sampling = ResolveSampling(sampling_options_, model_->front.metadata());
    served_.ignore_eos = sampling_options_.ignore_eos;
    served_.parse_special = !no_special_;
    served_.completion_tokens = max_new_tokens_;
    served_.chat_tokens = max_new_tokens_;
  }

  absl::Status OpenFiles() {
    input_ = input_path_ == "-" ? STDIN_FILENO : open(input_path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (input_ < 0) return InputFileError(absl::StrCat("cannot read '", input_path_, "': ", std::strerror(errno)));
    struct stat info;
    if (fstat(input_, &info) == 0 && S_ISDIR(info.st_mode)) {
      return InputFileError(absl::StrCat("cannot read '", input_path_, "': it is a directory"));
    }
    if (output_path_ == "-") return UsageError("-o: standard output cannot be resumed from, expected a file");
    struct stat out;
    if (stat(output_path_.c_str(), &out) == 0 && out.st_dev == info.st_dev && out.st_ino == info.st_ino) {
      return UsageError(absl::StrCat("-i and -o are the same file, '", output_path_, "'"));
    }
    ASSIGN_OR_RETURN(output_, BatchOutput::Open(output_path_, &answered_lines_));
    if (S_ISREG(info.st_mode) && input_path_ != "-") input_bytes_ = info.st_size;
    return absl::OkStatus();
  }

  absl::Status RunAll() {
    bool cancelled = false;
    while (true) {
      if (!cancelled) RETURN_IF_ERROR(TakeLines());
      const bool no_more = cancelled || cluster_->DrainRequested() || reader_->finished();
      if ((running_.empty() && no_more) || cluster_->GiveUp()) break;
      cluster_->WatchInput(no_more || running_.size() >= max_running() ? -1 : input_);
      ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, cluster_->Next());
      if (event.has_value()) RETURN_IF_ERROR(Take(*event));
      if (MonotonicUs() - synced_us_ >= kSyncUs) RETURN_IF_ERROR(Sync());
      DrawProgress();
      if (cluster_->StopRequested() && !cancelled) {
        cancelled = true;
        for (const auto& [request, running] : running_) cluster_->Cancel(request);
      }
    }
    if (!reader_->status().ok()) return WithExitCode(reader_->status(), ExitCode::kInputFile);
    if (reader_->finished() && running_.empty() && !cancelled) return absl::OkStatus();
    return absl::CancelledError("interrupted; run the same command again to go on");
  }

  // Not more at once than the session, signals and the output can wait for: lines that need no work have no other end.
  absl::Status TakeLines() {
    for (int taken = 0; running_.size() < max_running() && !cluster_->DrainRequested(); ++taken) {
      if (taken == kMostLinesAtOnce) {
        SignalWatch::Get().Wake();
        break;
      }
      std::optional<LineReader::Line> line = reader_->TryNext();
      if (!line.has_value()) {
        if (reader_->paused()) SignalWatch::Get().Wake();  // as above: a file never says that it has more
        break;
      }
      RETURN_IF_ERROR(TakeLine(*line));
    }
    return absl::OkStatus();
  }

  absl::Status TakeLine(const LineReader::Line& text) {
    BatchLine line;
    taken_bytes_ = text.end;
    if (text.too_long) {
      line.number = text.number;
      line.error = BatchError{"line_too_long", absl::StrCat("has more than ", kMaxLineBytes, " bytes")};
    } else {
      line = ParseBatchLine(text.number, text.text);
    }
    if (answered_lines_.CheckInputLine(&line)) {
      ++skipped_;
      return absl::OkStatus();
    }
    if (!line.error.has_value()) {
      CallContext call;
      call.id = NextId();
      call.now = absl::Now();
      call.seed = served_.sampling.seed;
      PrepareBatchLine(served_, std::move(call), &line);
    }
    return line.error.has_value() ? WriteError(line) : Submit(std::move(line));
  }

  absl::Status Submit(BatchLine line) {
    const absl::StatusOr<RequestId> id = cluster_->Submit(std::move(line.call->TakeRequests().front()));
    if (absl::IsOutOfRange(id.status())) {
      line.error = BatchError{"rejected", std::string(id.status().message())};
      return WriteError(line);
    }
    RETURN_IF_ERROR(id.status());
    running_.emplace(*id, std::move(line));
    return absl::OkStatus();
  }

  absl::Status Take(const SessionEvent& event) {
    const auto found = running_.find(event.request);
    if (found == running_.end()) return absl::OkStatus();
    if (event.finished.has_value() && event.finished->reason() == pb::RequestFinished::REASON_CANCELLED) {
      running_.erase(found);  // answered when the batch is run again
      return absl::OkStatus();
    }
    const ApiCall::Output output = found->second.call->Take(0, event);
    if (!output.ended) return absl::OkStatus();
    if (!output.cancel.empty() && !event.finished.has_value()) cluster_->Cancel(event.request);
    BatchLine done = std::move(found->second);
    running_.erase(found);
    if (output.error.has_value()) {
      done.error = BatchErrorOf(*output.error);
      done.error->message = WithFlags(done.error->message);
      return WriteError(done);
    }
    RETURN_IF_ERROR(output_->Append(BatchAnswerJson(NextId(), done, output.bytes)));
    ++tally_.answers;
    return absl::OkStatus();
  }

  absl::Status WriteError(const BatchLine& line) {
    LogVerbose(absl::StrCat("line ", line.number, ": ", line.error->message));
    RETURN_IF_ERROR(output_->Append(BatchErrorJson(NextId(), line)));
    tally_.AddError(line.error->code);
    return absl::OkStatus();
  }

  absl::Status Sync() {
    synced_us_ = MonotonicUs();
    return output_->Sync();
  }

  void DrawProgress() {
    ProgressLine& progress = cluster_->progress();
    if (!progress.shown() || cluster_->SecondsSinceReady() <= 0) return;
    const RunTotals& totals = cluster_->totals();
    const std::string detail =
        absl::StrFormat("%d answered, %d failed, %d running, %.1f tokens/s", tally_.answers, tally_.failed(),
                        running_.size(), static_cast<double>(totals.decode_tokens) / cluster_->SecondsSinceReady());
    // What was taken but still runs counts as not done: its share of the lines so far.
    const double done = static_cast<double>(tally_.answers + tally_.failed() + skipped_);
    const double taken = done + static_cast<double>(running_.size());
    const double bytes = taken > 0 ? static_cast<double>(taken_bytes_) * done / taken : 0;
    progress.Draw(input_bytes_ > 0 ? ProgressText("batch", bytes / static_cast<double>(input_bytes_), detail)
                                   : absl::StrCat("batch ", detail));
  }

  absl::Status Report(absl::Status status) {
    if (absl::Status synced = Sync(); status.ok()) status = synced;
    const RunSummary summary = cluster_->Finish();
    LogInfo(
        absl::StrCat(tally_.answers, " answered, ", tally_.failed(), " failed, ", skipped_, " were answered before"));
    PrintStatistics(summary);
    RETURN_IF_ERROR(status);
    BatchTally all = answered_lines_.tally();
    all.answers += tally_.answers;
    all.wrong += tally_.wrong;
    all.uncomputed += tally_.uncomputed;
    return BatchEnding(all, output_path_);
  }

  std::string NextId() { return absl::StrCat(run_id_, "-", ++ids_); }
  size_t max_running() const { return 2 * static_cast<size_t>(cluster_options_.max_num_seqs); }

  // From the command line.
  ClusterOptions cluster_options_;
  SamplingOptions sampling_options_;
  ChatTemplateOptions chat_template_options_;
  Verbosity verbosity_;
  std::string input_path_;
  std::string output_path_;
  int64_t max_new_tokens_ = 256;
  bool no_special_ = false;

  // While running.
  std::unique_ptr<OpenedModel> model_;
  ServedModel served_;
  AnsweredLines answered_lines_;
  std::unique_ptr<BatchOutput> output_;
  int input_ = -1;
  int64_t input_bytes_ = 0;  // 0: not known
  int64_t taken_bytes_ = 0;  // of the input, up to the last line that was taken
  std::unique_ptr<ClusterRun> cluster_;
  std::optional<LineReader> reader_;
  absl::flat_hash_map<RequestId, BatchLine> running_;
  int64_t synced_us_ = 0;  // when the output was last synced
  std::string run_id_;
  BatchTally tally_;  // of this run
  int64_t ids_ = 0, skipped_ = 0;
};

}  // namespace

std::unique_ptr<Verb> MakeBatchVerb() { return std::make_unique<BatchVerb>(); }

}  // namespace stagecoach
