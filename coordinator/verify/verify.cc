// verify: the proof, on the user's own cluster and model, that answers do not depend on how the work is cut.

#include <algorithm>

#include "CLI/App.hpp"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/signals.h"
#include "coordinator/verify/verify_report.h"

namespace stagecoach {
namespace {

class VerifyVerb : public Verb {
 public:
  VerifyVerb()
      : Verb("verify", "prove that other splits, chunks, guesses and restarts give the same bits",
             "coordinator verify -m model.gguf --hostfile hosts --checksums") {
    cluster_options_.prefix_caching = false;  // what is found there is not computed
    question_.seed = 11;
  }
  bool NeedsCluster() const override { return !cluster_options_.dry_run; }

  void AddOptions(CLI::App* app) override;
  absl::Status Run(const RunContext& context) override;

 private:
  absl::Status Prepare(const RunContext& context);
  absl::Status MakeRequests();
  int64_t LongestRequest() const;  // tokens, with its answer
  absl::StatusOr<VerifyRecord> RunPlanned();
  void DropLongPrompt(absl::string_view why);
  std::vector<VerifyRun> OtherRuns() const;
  absl::Status RunAll();
  // The run as a record; where it is optional and there is no memory for it, one that is left out.
  bool MayBeLeftOut(const VerifyRun& run) const;
  absl::StatusOr<VerifyRecord> RunOne(const VerifyRun& run, int number, bool checksums);
  absl::Status Ask(const VerifyRun& run, bool checksums, VerifyRecord* record);
  // The job that is open holds every request. Of the planned one, the long prompt is dropped where it does not hold it.
  absl::Status CheckRoomOf(const VerifyRun& run);
  absl::Status OpenJob(const VerifyRun& run, bool checksums);
  void CloseJob();
  // Ends the job of a run that sends guesses, and takes what became of them.
  void CountGuesses(VerifyRecord* record);
  void PinJob(const pb::JobReady& ready);
  void NoteUnsteadyRows(const VerifyRecord& record);
  absl::Status Record(VerifyRecord record);
  void Compare();
  void RerunDifferingRuns();
  absl::Status Report() const;

  ClusterOptions cluster_options_;
  Verbosity verbosity_;
  VerifyQuestion question_;
  std::vector<int64_t> chunks_ = {7, 64};
  int64_t splits_ = 2;
  bool checksums_ = false;
  bool json_ = false;
  bool context_given_ = false;

  std::shared_ptr<const ModelDescription> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  LaunchOptions launch_;          // of the planned job; pinned to what its first run agreed on
  std::vector<int64_t> planned_;  // layers of its stages, once it was ready
  std::unique_ptr<ClusterRun> cluster_;
  int jobs_ = 0;  // launched
  bool looking_again_ = false;
  VerifyReport report_;
  std::vector<VerifyRecord> second_look_;  // that the finding points to
};

void VerifyVerb::AddOptions(CLI::App* app) {
  AddTexts(app, "-p,--prompt", &question_.prompts, "TEXT", "a prompt beside the built-in ones; may be given again");
  AddInteger(app, "-n,--predict,--max-tokens", &question_.new_tokens, {2, 4096}, "new tokens of each answer");
  AddIntegerList(app, "--chunks", &chunks_, JobLimits::kPrefillChunk.range,
                 "sizes of prefill chunks to compare; 1 is thorough and slow (7,64)");
  AddInteger(app, "--splits", &splits_, {0, 64},
             "other splits of the layers to compare; one that hosts have no memory for is left out");
  AddSeed(app, "--seed", &question_.seed, "of the answer that is sampled", absl::StrCat(question_.seed));
  AddFlag(app, "--checksums", &checksums_,
          "compare the hidden states behind every layer too; without, the runs are repeated with them where answers "
          "differ");
  AddFlag(app, "--json", &json_, "one JSON object in the place of the text");
  AddVerbosityOptions(app, &verbosity_);
  AddClusterOptions(app, &cluster_options_, "most tokens of a prompt and its answer together");
  app->get_option("--ctx-size")->default_str("what the requests need");
}

absl::Status VerifyVerb::Prepare(const RunContext& context) {
  if (context.joined) {
    return UsageError("verify launches a job for every way of computing; start it without mpirun or srun");
  }
  ASSIGN_OR_RETURN(model_, OpenDescription(cluster_options_.model, cluster_options_.q2_layout));
  RETURN_IF_ERROR(MakeRequests());
  context_given_ = cluster_options_.context > 0;
  if (!context_given_) cluster_options_.context = LongestRequest();
  ASSIGN_OR_RETURN(launch_, MakeLaunchOptions(cluster_options_, *model_, context));
  report_.model = cluster_options_.model;
  report_.layers = model_->hyper.layer_count();
  report_.tokenizer = tokenizer_.get();
  return absl::OkStatus();
}

absl::Status VerifyVerb::MakeRequests() {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizer(*model_->file);
  if (tokenizer.ok() && (*tokenizer)->vocab_size() <= model_->hyper.vocab) {
    tokenizer_ = *std::move(tokenizer);
  } else if (!question_.prompts.empty()) {
    return tokenizer.ok() ? InputFileError("-p: the tokenizer has more tokens than the model") : tokenizer.status();
  } else {
    const std::string why =
        tokenizer.ok() ? "it has more tokens than the model" : WithFlags(tokenizer.status().message());
    LogInfo(absl::StrCat("made-up token ids stand for the built-in prompts, as the file's tokenizer cannot be used: ",
                         why));
  }
  question_.context = cluster_options_.context > 0 ? cluster_options_.context : model_->hyper.context;
  question_.vocab = model_->hyper.vocab;
  question_.block_tokens = cluster_options_.block_tokens;
  for (const int64_t window : model_->hyper.group_windows()) question_.window = std::max(question_.window, window);
  static_cast<VerifyAsked&>(report_) = VerifyRequests(question_, tokenizer_.get());
  for (const VerifyRequest& request : report_.requests) {
    const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.new_tokens;
    if (request.prompt.empty()) return UsageError(absl::StrCat("-p: ", request.name, " is empty"));
    if (tokens <= question_.context) continue;
    return UsageError(absl::StrCat("-p, -n: ", request.name, " has ", tokens,
                                   " tokens with its answer, but the context is ", question_.context,
                                   "; take a shorter prompt, a lower -n, or a higher -c"));
  }
  return absl::OkStatus();
}

int64_t VerifyVerb::LongestRequest() const {
  int64_t longest = 0;
  for (const VerifyRequest& request : report_.requests) {
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()) + request.new_tokens);
  }
  return longest;
}

void VerifyVerb::DropLongPrompt(absl::string_view why) {
  report_.requests.pop_back();
  report_.long_prompt = false;
  report_.note = absl::StrCat("no prompt is longer than the window of ", question_.window, " positions: ", why);
}

absl::Status VerifyVerb::Run(const RunContext& context) {
  verbosity_.Apply();
  RETURN_IF_ERROR(Prepare(context));
  if (cluster_options_.dry_run) return PrintLaunch(launch_);
  const absl::Status ran = RunAll();
  CloseJob();
  // What was found before a run failed, or somebody stopped it, is said all the same.
  if (!ran.ok() && report_.records.size() < 2) return ran;
  if (!ran.ok()) report_.incomplete = WithFlags(ran.message());
  Compare();
  if (ran.ok() && report_.finding.has_value() && !report_.finding->difference.hidden.has_value()) RerunDifferingRuns();
  const absl::Status reported = Report();
  return reported.ok() ? ran : reported;
}

// The long prompt is an extra: hosts that have memory for the others alone are no worse off for it.
absl::StatusOr<VerifyRecord> VerifyVerb::RunPlanned() {
  absl::StatusOr<VerifyRecord> first = RunOne({.name = "as planned"}, 1, checksums_);
  if (!report_.long_prompt || context_given_ || !absl::IsResourceExhausted(first.status())) return first;
  CloseJob();
  DropLongPrompt("the hosts have no memory for the KV cache of one");
  launch_.job.set_context(LongestRequest());
  return RunOne({.name = "as planned"}, 1, checksums_);
}

std::vector<VerifyRun> VerifyVerb::OtherRuns() const {
  VerifyWays ways = {.chunks = chunks_, .splits = splits_};
  ways.exact_wire = cluster_options_.wire_type == WireType::kF32;
  for (const VerifyRequest& request : report_.requests) {
    ways.longest_prompt = std::max(ways.longest_prompt, static_cast<int64_t>(request.prompt.size()));
  }
  return RunsBeside(planned_, launch_.job, ways);
}

absl::Status VerifyVerb::RunAll() {
  ASSIGN_OR_RETURN(VerifyRecord first, RunPlanned());
  PinJob(first.ready);
  if (planned_.size() == 1) {
    absl::StrAppend(&report_.note, report_.note.empty() ? "" : "; ",
                    "the job has one stage, so no other split is compared: --pp 2 or more hosts make one");
  }
  if (!json_) RETURN_IF_ERROR(WriteStdout(VerifyHeading(report_, planned_)));
  RETURN_IF_ERROR(Record(std::move(first)));
  for (const VerifyRun& run : OtherRuns()) {
    if (SignalWatch::Get().stops() > 0 || SignalWatch::Get().drain()) {
      return absl::CancelledError(absl::StrCat("interrupted after ", report_.records.size(), " runs"));
    }
    ASSIGN_OR_RETURN(VerifyRecord record, RunOne(run, static_cast<int>(report_.records.size()) + 1, checksums_));
    RETURN_IF_ERROR(Record(std::move(record)));
  }
  return absl::OkStatus();
}

// Beside the optional ones, one whose guesses take memory, and any run behind the planned one that a long prompt is too
// much for.
bool VerifyVerb::MayBeLeftOut(const VerifyRun& run) const {
  return run.optional() || run.guesses == VerifyRun::Guesses::kSent || (report_.long_prompt && !planned_.empty());
}

absl::StatusOr<VerifyRecord> VerifyVerb::RunOne(const VerifyRun& run, int number, bool checksums) {
  VerifyRecord record = {.number = number, .run = run};
  record.left_out = run.left_out;
  if (!record.left_out.empty()) return record;
  const absl::Status ran = Ask(run, checksums, &record);
  if (ran.ok()) return record;
  // Stages that a host ends for want of memory are lost like any others.
  const bool lost = run.optional() && absl::IsUnavailable(ran);
  if (!lost && (!MayBeLeftOut(run) || !absl::IsResourceExhausted(ran))) return ran;
  CloseJob();
  record.answers.clear();
  record.left_out = WithFlags(ran.message());
  return record;
}

absl::Status VerifyVerb::Ask(const VerifyRun& run, bool checksums, VerifyRecord* record) {
  if (!run.same_job || cluster_ == nullptr) RETURN_IF_ERROR(OpenJob(run, checksums));
  RETURN_IF_ERROR(CheckRoomOf(run));
  cluster_->progress().Draw(absl::StrCat("run ", record->number, ", ", run.name));
  record->ready = *cluster_->ready();
  pb::ConfigureJob job = launch_.job;
  if (run.prefill_chunk > 0) job.set_prefill_chunk(static_cast<int32_t>(run.prefill_chunk));
  record->prefill_chunk = LargestChunk(job);
  const int relaunches_before = cluster_->relaunches();
  const std::vector<VerifyAnswer> none;
  const std::vector<VerifyAnswer>& earlier = run.needs_answers() ? report_.records.front().answers : none;
  // What the prefix cache has is not computed, and has no checksums.
  const bool of_all_rows = checksums && (!cluster_options_.prefix_caching || looking_again_);
  absl::StatusOr<std::vector<VerifyAnswer>> answers =
      RunRequests(run, report_.requests, earlier, of_all_rows ? report_.layers : 0, cluster_.get());
  cluster_->progress().Clear();
  if (!answers.ok()) return answers.status();
  record->relaunches = cluster_->relaunches() - relaunches_before;
  const std::vector<int64_t> began_with = LayersOf(record->ready);
  record->ready = *cluster_->ready();
  // With fewer hosts the layers are cut anew; that is another run than the one that was wanted.
  if (const std::vector<int64_t> layers = LayersOf(record->ready); layers != began_with && !planned_.empty()) {
    record->left_out = absl::StrCat("its stages were lost, and it went on with layers ", absl::StrJoin(layers, ","));
    CloseJob();
    return absl::OkStatus();
  }
  record->answers = *std::move(answers);
  if (run.guesses == VerifyRun::Guesses::kSent) CountGuesses(record);
  return absl::OkStatus();
}

void VerifyVerb::CountGuesses(VerifyRecord* record) {
  const pb::JobStatistics job = cluster_->Finish().job.value_or(pb::JobStatistics());
  cluster_ = nullptr;
  record->guesses = job.guesses();
  record->guesses_right = job.guesses_right();
  if (record->guesses > 0) return;
  record->answers.clear();
  record->left_out = "no token was guessed; longer answers (-n) have some to guess";
}

absl::Status VerifyVerb::CheckRoomOf(const VerifyRun& run) {
  absl::Status room = CheckRoomForRequests(report_.requests, *cluster_->ready());
  if (!room.ok() && planned_.empty() && report_.long_prompt) {
    DropLongPrompt("the KV cache is too small for one; --kv-cache-memory gives it more");
    room = CheckRoomForRequests(report_.requests, *cluster_->ready());
  }
  if (room.ok() || !MayBeLeftOut(run)) return room;
  return absl::ResourceExhaustedError(room.message());
}

absl::Status VerifyVerb::OpenJob(const VerifyRun& run, bool checksums) {
  CloseJob();
  LaunchOptions launch = planned_.empty() ? launch_ : LaunchOfRun(run, launch_, planned_);
  launch.job.set_layer_checksums(checksums);
  launch.job.set_step_log_append(jobs_ > 0);
  launch.job.set_trace_append(jobs_ > 0);
  if (looking_again_) launch.job.set_prefix_caching(false);
  ++jobs_;
  ASSIGN_OR_RETURN(cluster_, ClusterRun::Open(std::move(launch), /*engine_descriptor=*/-1, verbosity_.ShowProgress()));
  return cluster_->AwaitReady();
}

void VerifyVerb::CloseJob() {
  if (cluster_ != nullptr) cluster_->Finish();
  cluster_ = nullptr;
}

// Every other job is of the same file and of the same bit class, wherever its stages are; only how the work is cut
// differs.
void VerifyVerb::PinJob(const pb::JobReady& ready) {
  planned_ = LayersOf(ready);
  *launch_.job.mutable_fingerprints() = ready.fingerprints();
  launch_.job.set_bf16_dot(ready.bf16_dot());
}

void VerifyVerb::NoteUnsteadyRows(const VerifyRecord& record) {
  for (size_t i = 0; i < record.answers.size(); ++i) {
    if (!record.answers[i].unsteady_row.has_value()) continue;
    report_.unsteady.push_back(absl::StrCat("within run ", record.number, " position ", *record.answers[i].unsteady_row,
                                            " of ", report_.requests[i].name,
                                            " was computed twice, with different hidden states"));
  }
}

absl::Status VerifyVerb::Record(VerifyRecord record) {
  NoteUnsteadyRows(record);
  report_.records.push_back(std::move(record));
  const VerifyRecord& added = report_.records.back();
  if (!json_) return WriteStdout(VerifyLine(report_, added));
  LogInfo(absl::StrCat("run ", added.number, ", ", added.run.name, added.left_out.empty() ? "" : ": left out"));
  return absl::OkStatus();
}

void VerifyVerb::Compare() {
  std::vector<std::vector<VerifyAnswer>> answers;
  std::vector<const VerifyRecord*> ran;
  for (const VerifyRecord& record : report_.records) {
    if (!record.left_out.empty()) continue;
    answers.push_back(record.answers);
    ran.push_back(&record);
  }
  const std::vector<std::vector<size_t>> groups = AgreeingRuns(report_.requests, answers);
  for (const std::vector<size_t>& group : groups) {
    std::vector<int>& numbers = report_.agreeing.emplace_back();
    for (const size_t run : group) numbers.push_back(ran[run]->number);
  }
  if (groups.size() < 2) return;
  VerifyFinding finding = {.a = ran[groups[0].front()], .b = ran[groups[1].front()]};
  finding.difference = *FirstDifference(report_.requests, finding.a->answers, finding.b->answers);
  report_.finding = std::move(finding);
}

// The two runs that differ, with checksums, which name the layer.
void VerifyVerb::RerunDifferingRuns() {
  VerifyFinding& finding = *report_.finding;
  if (checksums_ && !cluster_options_.prefix_caching) return;  // there are, of all rows: it is not the layers
  looking_again_ = true;
  finding.without_cache = cluster_options_.prefix_caching;
  LogInfo(absl::StrCat("runs ", finding.a->number, " and ", finding.b->number,
                       " differ; they are run again, with checksums of the hidden states"));
  for (const VerifyRecord* record : {finding.a, finding.b}) {
    VerifyRun run = record->run;
    run.same_job = false;
    absl::StatusOr<VerifyRecord> again = RunOne(run, record->number, /*checksums=*/true);
    if (again.ok() && !again->left_out.empty()) again = absl::ResourceExhaustedError(again->left_out);
    if (!again.ok()) {
      finding.trouble =
          absl::StrCat("running run ", record->number, " again failed: ", WithFlags(again.status().message()));
      return CloseJob();
    }
    NoteUnsteadyRows(*again);
    second_look_.push_back(*std::move(again));
  }
  CloseJob();
  finding.looked_again = true;
  const std::optional<AnswerDifference> difference =
      FirstDifference(report_.requests, second_look_[0].answers, second_look_[1].answers);
  finding.differed_again = difference.has_value();
  if (!difference.has_value()) return;
  finding.difference = *difference;
  finding.a = &second_look_[0];
  finding.b = &second_look_[1];
}

absl::Status VerifyVerb::Report() const {
  RETURN_IF_ERROR(WriteStdout(json_ ? VerifyJson(report_) : VerifyVerdict(report_)));
  if (report_.identical()) return absl::OkStatus();
  return WithExitCode(absl::DataLossError(VerifyDifference(report_)), ExitCode::kDifferent);
}

}  // namespace

std::unique_ptr<Verb> MakeVerifyVerb() { return std::make_unique<VerifyVerb>(); }

}  // namespace stagecoach
