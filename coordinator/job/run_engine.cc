#include "coordinator/job/run_engine.h"

#include <algorithm>
#include <climits>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "common/model/model_description.h"
#include "common/text/vocabulary.h"
#include "common/transport/emulated_endpoint.h"
#include "common/wire/job_proto.h"
#include "coordinator/engine/engine.h"
#include "coordinator/guess/draft/draft_runner.h"
#include "coordinator/guess/speculator.h"
#include "coordinator/job/channel_front.h"
#include "coordinator/job/draft_setup.h"
#include "coordinator/job/grammar_check.h"
#include "coordinator/job/job_setup.h"
#include "coordinator/pipeline/endpoint_share.h"
#include "coordinator/pipeline/stage_pipeline.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/schedule/groups/group_planner.h"
#include "coordinator/trace/trace_file.h"

namespace stagecoach {
namespace {

constexpr int64_t kProgressUs = 100000;
constexpr uint32_t kDraftEpoch = 2;  // of its pipeline, beside that of the stages
using FileFingerprints = google::protobuf::RepeatedPtrField<pb::FileFingerprint>;

absl::StatusOr<pb::ConfigureJob> AwaitConfiguration(EngineChannel* front) {
  while (true) {
    ASSIGN_OR_RETURN(std::optional<pb::EngineMessage> message, front->Receive());
    if (message.has_value()) {
      if (message->has_configure()) return message->configure();
      return absl::InvalidArgumentError("the front's first message is not the job's configuration");
    }
    front->Wait(absl::Seconds(1));
  }
}

// After a relaunch the file must still be what the answers so far came from.
absl::Status CheckUnchanged(const FileFingerprints& before, const GgufFile& file) {
  if (before.empty() || FromProto(before) == file.fingerprints()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("model file '", file.path(), "' changed while the job ran (was ", before.Get(0).size_bytes(),
                   " bytes, is ", file.fingerprints()[0].size_bytes,
                   "; modification time and header are compared too); start again with the file you want"));
}

// By stage: equal numbers for stages that share a host.
std::vector<int> HostsOf(const std::vector<pb::Hello>& stages) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  hosts.reserve(stages.size());
  for (const pb::Hello& stage : stages) {
    hosts.push_back(numbers.try_emplace(stage.host(), static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

// Guesses for this model. Vocabularies are often padded with tokens that no text has. draft: nullptr without one.
Speculator::Options GuessesOf(const pb::ConfigureJob& job, const ModelDescription& model, const JobHooks& hooks,
                              DraftRunner* draft) {
  const bool suffix = hooks.guesser == nullptr && job.speculate() != NameOf(kSpeculations, Speculate::kDraft);
  Speculator::Options options = {.suffix = suffix, .vocab = model.hyper.vocab};
  options.more = hooks.guesser;
  if (draft != nullptr && options.more == nullptr) {
    options.more = [draft](const Sequence& sequence) { return draft->Open(sequence); };
  }
  const absl::StatusOr<Vocabulary> vocabulary = ReadVocabulary(model.file->metadata());
  if (!vocabulary.ok()) return options;  // whoever needs its texts says why
  const auto tokens = static_cast<int64_t>(vocabulary->types.size());
  options.vocab = std::min(options.vocab, tokens);
  for (TokenId token = 0; token < options.vocab; ++token) {
    if (vocabulary->types[static_cast<size_t>(token)] == TokenType::kUnused) options.unused.push_back(token);
  }
  return options;
}

class Job {
 public:
  Job(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel, const JobHooks& hooks)
      : endpoint_(endpoint),
        hellos_(hellos),
        stages_(hellos.begin() + 1, hellos.end()),
        channel_(channel),
        hooks_(hooks) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(job_, AwaitConfiguration(channel_));
    RETURN_IF_ERROR(FindDraft());
    if (job_.has_probe()) return RunProbe(endpoint_, hellos_, channel_, job_);
    RETURN_IF_ERROR(SetUp());
    RETURN_IF_ERROR(AwaitStages());
    pb::EngineMessage message;
    *message.mutable_ready() = report_->Ready();
    RETURN_IF_ERROR(channel_->Send(message));
    while (!engine_->shutting_down()) RETURN_IF_ERROR(engine_->Step());
    RETURN_IF_ERROR(engine_->ShutDownStages());
    RETURN_IF_ERROR(ShutDownDraft());
    for (const auto& log : logs_) log->Close().IgnoreError();  // it was logged; after the last word the front ends us
    *message.mutable_status() = report_->Status(engine_->Status());
    message.mutable_status()->set_ended(true);
    RETURN_IF_ERROR(channel_->Send(message));
    // The front may be slow, or stopped by its user, for long; its end is an error.
    return channel_->FlushWithin(absl::InfiniteDuration());
  }

  // What the job had done when it failed; absent when it never was ready.
  std::optional<pb::EngineStatus> LastStatus() const {
    if (engine_ == nullptr || !AllReady()) return std::nullopt;
    return report_->Status(engine_->Status());
  }

 private:
  // The last of the stages, where the job has a draft.
  absl::Status FindDraft() {
    if (job_.draft_model_path().empty()) return absl::OkStatus();
    if (stages_.size() < 2) {
      return absl::InvalidArgumentError(
          "`draft_model_path` needs a stage_worker beside those of the model, but this world has one; start one more, "
          "or leave `draft_model_path` out");
    }
    draft_host_ = stages_.back();
    stages_.pop_back();
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const ModelDescription>> Open(const std::string& path) const {
    GgufOpenOptions options;
    ASSIGN_OR_RETURN(options.q2_layout, ParseQ2Layout(job_.q2_layout()));
    absl::StatusOr<std::shared_ptr<const ModelDescription>> model = OpenModel(path, options);
    if (absl::IsUnavailable(model.status()))
      return absl::DataLossError(model.status().message());  // the file, not a stage
    return model;
  }

  absl::Status SetUp() {
    ASSIGN_OR_RETURN(model_, Open(job_.model_path()));
    RETURN_IF_ERROR(CheckUnchanged(job_.fingerprints(), *model_->file));
    std::random_device random;
    const uint64_t run_id =
        (static_cast<uint64_t>(random()) << 32 | random()) | 1;  // never 0, the id of frames before a job
    ASSIGN_OR_RETURN(plan_, PlanJobUnmeasured(job_, stages_, model_, {.run_id = run_id, .epoch = 1}));
    if (draft_host_.has_value()) RETURN_IF_ERROR(PlanTheDraft(run_id));
    ASSIGN_OR_RETURN(const SchedulerOptions options, SchedulerOptionsOf(job_, plan_, *model_));
    RETURN_IF_ERROR(OpenLogs());
    const FrameLimits limits = LimitsOf(plan_.stages[0], model_->hyper.hidden, model_->hyper.vocab);
    if (limits.MaxStepFrameBytes() > INT_MAX) {  // MPI counts bytes in int
      return absl::InvalidArgumentError(absl::StrCat("`max_num_batched_tokens` is ", job_.max_num_batched_tokens(),
                                                     ": a frame of as many rows of ", model_->hyper.hidden,
                                                     " would have ", limits.MaxStepFrameBytes(), " bytes, at most ",
                                                     INT_MAX, " can be sent; give less"));
    }
    if (job_.has_emulated_link()) {  // PlanJob has checked it
      emulated_ = std::make_unique<EmulatedEndpoint>(endpoint_, FromProto(job_.emulated_link()));
    }
    Endpoint* endpoint = emulated_ != nullptr ? emulated_.get() : endpoint_;
    if (draft_host_.has_value()) {
      share_ = std::make_unique<EndpointShare>(endpoint);
      endpoint = share_->AddPart();
      RETURN_IF_ERROR(StartDraft(share_->AddPart()));
    }
    ASSIGN_OR_RETURN(stage_pipeline_, StartStages(endpoint, plan_, stages_, limits, model_));
    const bool drafts = draft_stage_ != nullptr;
    report_ = std::make_unique<JobReport>(job_, &plan_, &stage_pipeline_->roster(), drafts ? &draft_plan_ : nullptr,
                                          drafts ? &draft_stage_->roster() : nullptr);
    front_ = std::make_unique<ChannelFront>(channel_, report_.get());
    scheduler_ = std::make_unique<Scheduler>(options);
    if (hooks_.wrap != nullptr) wrapped_ = hooks_.wrap(stage_pipeline_.get(), scheduler_.get());
    Pipeline* pipeline = wrapped_ != nullptr ? wrapped_.get() : stage_pipeline_.get();
    SetUpDecoding(options);
    grammars_ = std::make_unique<GrammarCheck>(model_);
    engine_ = std::make_unique<Engine>(
        pipeline, scheduler_.get(), front_.get(), &clock_, model_->hyper.vocab, steps_.empty() ? nullptr : &steps_,
        groups_.get(), speculator_.get(),
        [this](const SequenceSpec& spec, std::optional<GrammarMatcher>* matcher) {
          return grammars_->Check(spec, matcher);
        },
        draft_.get());
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<StagePipeline>> StartStages(Endpoint* endpoint, const JobPlan& plan,
                                                             const std::vector<pb::Hello>& hosts,
                                                             const FrameLimits& limits,
                                                             std::shared_ptr<const ModelDescription> model) {
    std::unique_ptr<WeightService> weights;
    if (plan.stages[0].weights() == pb::WEIGHT_SOURCE_STREAM) {
      weights = std::make_unique<WeightService>(std::move(model), plan.stages, [this] { loading_.Wake(); });
    }
    return StagePipeline::Start(endpoint, plan.stages, hosts, limits,
                                static_cast<int64_t>(job_.stage_timeout_s() * 1e6), MonotonicUs, std::move(weights));
  }

  // What keeps the draft alone from running is told as an error of the stage behind the model's.
  absl::Status PlanTheDraft(uint64_t run_id) {
    const auto number = static_cast<int>(stages_.size());
    absl::StatusOr<std::shared_ptr<const ModelDescription>> draft = Open(job_.draft_model_path());
    if (!draft.ok()) return WithStage(number, draft.status());
    draft_model_ = *std::move(draft);
    if (const absl::Status same = CheckSameTokens(*model_, *draft_model_); !same.ok()) {
      // At a relaunch the file is another one than at first, and the job goes on without.
      return job_.fingerprints().empty() ? same : WithStage(number, same);
    }
    std::vector<pb::Hello> all = stages_;
    all.push_back(*draft_host_);
    absl::StatusOr<JobPlan> plan =
        PlanDraft(job_, plan_, *model_, all, *draft_model_, {.run_id = run_id, .epoch = kDraftEpoch});
    if (!plan.ok()) return WithStage(number, plan.status());
    draft_plan_ = *std::move(plan);
    ShareCores(job_, all, &plan_, &draft_plan_);
    return absl::OkStatus();
  }

  absl::Status StartDraft(Endpoint* endpoint) {
    const FrameLimits limits = LimitsOf(draft_plan_.stages[0], draft_model_->hyper.hidden, draft_model_->hyper.vocab);
    ASSIGN_OR_RETURN(draft_stage_, StartStages(endpoint, draft_plan_, {*draft_host_}, limits, draft_model_));
    draft_ = std::make_unique<DraftRunner>(draft_stage_.get(), DraftOptionsOf(plan_, draft_plan_, draft_model_));
    return absl::OkStatus();
  }

  bool AllReady() const {
    return stage_pipeline_->roster().AllReady() && (draft_stage_ == nullptr || draft_stage_->roster().AllReady());
  }
  uint64_t WeightsMoved() const {
    return stage_pipeline_->weights_moved() + (draft_stage_ == nullptr ? 0 : draft_stage_->weights_moved());
  }

  absl::Status ShutDownDraft() {
    if (draft_ == nullptr) return absl::OkStatus();
    draft_->ShutDown();
    while (!draft_->ended()) {
      ASSIGN_OR_RETURN(const bool came, draft_->Poll());
      if (!came) loading_.Wait();
    }
    return absl::OkStatus();
  }

  // How decode rows are grouped, and who guesses how far ahead: as the job says, else as the planner does.
  void SetUpDecoding(const SchedulerOptions& options) {
    if (options.most_guesses > 0)
      speculator_ = std::make_unique<Speculator>(GuessesOf(job_, *model_, hooks_, draft_.get()));
    if (job_.decode_groups() > 0) scheduler_->SetDecodeGroups(job_.decode_groups());
    if (speculator_ != nullptr && job_.guess_rows() > 0) {
      scheduler_->SetGuessPlaces(scheduler_->most_groups());
      speculator_->SetRows(1 + options.most_guesses, /*shares_from=*/0);
      if (draft_ != nullptr) draft_->SetAhead(1 + options.most_guesses);
    } else if (job_.decode_groups() == 0 || speculator_ != nullptr) {
      groups_ =
          std::make_unique<GroupPlanner>(HostsOf(stages_), scheduler_->most_groups(), options.reads,
                                         GroupPlanner::Options{.guess_rows = 1 + options.most_guesses,
                                                               .groups = job_.decode_groups(),
                                                               .idle_us = static_cast<double>(job_.stage_delay_us())});
    }
  }

  absl::Status OpenLogs() {
    if (!job_.step_log().empty()) {
      ASSIGN_OR_RETURN(logs_.emplace_back(), StepLog::Open(job_.step_log(), job_.step_log_append()));
    }
    if (!job_.trace().empty()) {
      ASSIGN_OR_RETURN(logs_.emplace_back(),
                       OpenTraceLog(job_.trace(), job_.trace_append(), TraceHeaderOf(job_, plan_, hellos_)));
    }
    for (const auto& log : logs_) steps_.Add(log.get());
    return absl::OkStatus();
  }

  absl::Status AwaitStages() {
    int64_t next_progress_us = 0;
    uint64_t weights_moved = 0;
    while (!AllReady()) {
      ASSIGN_OR_RETURN(const std::optional<StepResult> unexpected, stage_pipeline_->Poll());
      if (draft_ != nullptr) RETURN_IF_ERROR(draft_->Poll().status());
      if (unexpected.has_value()) return absl::InternalError("a result before any work was handed out");
      if (const int64_t now = MonotonicUs(); now >= next_progress_us) {
        next_progress_us = now + kProgressUs;
        pb::EngineMessage message;
        *message.mutable_progress() = report_->Progress();
        RETURN_IF_ERROR(channel_->Send(message));
      }
      // The front may leave while the stages load; its requests wait in the socket until the job is ready.
      RETURN_IF_ERROR(channel_->CheckPeer());
      if (const uint64_t moved = WeightsMoved(); moved != weights_moved) {
        weights_moved = moved;
        loading_.Progressed();
      } else {
        loading_.Wait();
      }
    }
    return absl::OkStatus();
  }

  Endpoint* const endpoint_;
  const std::vector<pb::Hello>& hellos_;
  std::vector<pb::Hello> stages_;  // the model's
  EngineChannel* const channel_;
  const JobHooks& hooks_;
  SystemClock clock_;
  WaitLadder loading_;  // until the stages are ready
  pb::ConfigureJob job_;
  std::shared_ptr<const ModelDescription> model_;
  JobPlan plan_;
  std::vector<std::unique_ptr<StepLog>> logs_;
  StepTee steps_;                               // to all of them
  std::unique_ptr<EmulatedEndpoint> emulated_;  // where the job asks for one
  std::unique_ptr<EndpointShare> share_;        // with a draft, as the next ones
  std::optional<pb::Hello> draft_host_;
  std::shared_ptr<const ModelDescription> draft_model_;
  JobPlan draft_plan_;
  std::unique_ptr<StagePipeline> draft_stage_;
  std::unique_ptr<DraftRunner> draft_;
  std::unique_ptr<StagePipeline> stage_pipeline_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Pipeline> wrapped_;
  std::unique_ptr<JobReport> report_;
  std::unique_ptr<ChannelFront> front_;
  std::unique_ptr<GroupPlanner> groups_;    // none where the job says all that it would find out
  std::unique_ptr<Speculator> speculator_;  // none where nothing is guessed
  std::unique_ptr<GrammarCheck> grammars_;
  std::unique_ptr<Engine> engine_;
};

absl::Status SendFailure(const absl::Status& status, const std::optional<pb::EngineStatus>& last,
                         EngineChannel* channel) {
  pb::EngineMessage message;
  if (last.has_value()) {
    *message.mutable_status() = *last;
    RETURN_IF_ERROR(channel->Queue(message));
  }
  pb::JobFailed* failed = message.mutable_failed();
  failed->set_lost(absl::IsUnavailable(status));
  failed->set_code(static_cast<int>(status.code()));
  failed->set_message(std::string(status.message()));
  if (const std::optional<int> stage = LostStage(status)) failed->set_stage(*stage);
  RETURN_IF_ERROR(channel->Send(message));
  return channel->FlushWithin(absl::Seconds(1));
}

}  // namespace

absl::Status RunEngine(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
                       const JobHooks& hooks) {
  Job job(endpoint, hellos, channel, hooks);
  absl::Status status;
  try {
    status = job.Run();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError(
        "the coordinator has not enough memory for its frames; lower `max_num_seqs` or `context`");
  }
  if (status.ok()) return status;
  // Best effort: the front may be the one that is gone, and then its end of the socket tells all.
  const absl::Status sent = SendFailure(status, job.LastStatus(), channel);
  if (!sent.ok()) LogVerbose(absl::StrCat("could not tell the front: ", sent.message()));
  return status;
}

}  // namespace stagecoach
