#include "tests/testing/cluster/loopback_cluster.h"

#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/casts.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/job/run_engine.h"
#include "coordinator/pipeline/roster.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach::testing {
namespace {

// The coordinator's, then those of the stages in their order.
std::vector<pb::Hello> MakeHellos(int stages) {
  pb::Hello hello;
  hello.set_role(pb::Hello::ROLE_COORDINATOR);
  hello.set_rank(kCoordinatorRank);
  hello.set_host("local");
  hello.set_allowed_cores(2);
  hello.set_available_memory_bytes(uint64_t{4} << 30);
  std::vector<pb::Hello> hellos = {hello};
  hello.set_role(pb::Hello::ROLE_STAGE);
  for (const InstructionSet isa : AvailableInstructionSets()) hello.add_isas(ToProto(isa));
  for (int stage = 0; stage < stages; ++stage) {
    hello.set_rank(RankOfStage(stage, stages));
    hello.set_pid(1000 + hello.rank());
    hellos.push_back(hello);
  }
  return hellos;
}

// The front's side of one run.
class Front {
 public:
  Front(int descriptor, const std::vector<ClusterRequest>& requests) : channel_(descriptor), requests_(requests) {
    run_.answers.resize(requests.size());
  }

  absl::StatusOr<ClusterRun> Run(const pb::ConfigureJob& job) {
    pb::EngineMessage message;
    *message.mutable_configure() = job;
    RETURN_IF_ERROR(Send(message));
    RETURN_IF_ERROR(SubmitMore());
    while (!done_) {
      ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> received, channel_.Receive());
      if (received.has_value()) {
        RETURN_IF_ERROR(Take(*received));
      } else {
        pollfd descriptor{.fd = channel_.descriptor(), .events = POLLIN, .revents = 0};
        CHECK(poll(&descriptor, 1, 60000) > 0);
      }
    }
    return std::move(run_);
  }

 private:
  // An engine that refuses the job may be gone before everything was said to it; what it said is read by Receive.
  absl::Status Send(const pb::EngineMessage& message) {
    const absl::Status sent = channel_.Send(message);
    return absl::IsUnavailable(sent) ? absl::OkStatus() : sent;
  }

  // Up to one that is to come when all before it have ended.
  absl::Status SubmitMore() {
    while (submitted_ < requests_.size() && (!requests_[submitted_].after_others || finished_ == submitted_)) {
      RETURN_IF_ERROR(Submit(submitted_++));
    }
    return absl::OkStatus();
  }

  absl::Status Submit(size_t index) {
    const ClusterRequest& request = requests_[index];
    pb::EngineMessage message;
    pb::SubmitRequest* submit = message.mutable_submit();
    submit->set_request(index);
    for (const int32_t token : request.prompt) submit->add_prompt(token);
    for (const int32_t token : request.output) submit->add_output(token);
    *submit->mutable_sampling() = request.sampling;
    submit->set_max_new_tokens(request.max_new_tokens);
    for (const int32_t token : request.stop_tokens) submit->add_stop_tokens(token);
    for (const int32_t token : request.prediction) submit->add_prediction(token);
    submit->set_score_prompt(request.score_from >= 0);
    submit->set_score_from(request.score_from);
    submit->set_cache_salt(request.cache_salt);
    submit->set_grammar(request.grammar);
    submit->set_tenant(request.tenant);
    submit->set_weight(request.weight);
    submit->set_priority_class(request.priority_class);
    return Send(message);
  }

  absl::Status Take(const pb::EngineMessage& message) {
    if (message.has_failed()) {
      const absl::Status status(static_cast<absl::StatusCode>(message.failed().code()), message.failed().message());
      return message.failed().has_stage() ? WithStage(message.failed().stage(), status) : status;
    }
    if (message.has_ready()) run_.ready = message.ready();
    for (const pb::TokenDelta& delta : message.events().tokens()) RETURN_IF_ERROR(TakeTokens(delta));
    for (const pb::RequestFinished& finished : message.events().finished()) {
      run_.answers[finished.request()].finished = finished;
      if (++finished_ == requests_.size()) {
        pb::EngineMessage shutdown;
        shutdown.mutable_shutdown();
        RETURN_IF_ERROR(Send(shutdown));
      }
      RETURN_IF_ERROR(SubmitMore());
    }
    if (message.has_status()) {
      run_.statistics = message.status().statistics();
      done_ = message.status().ended();
    }
    return absl::OkStatus();
  }

  absl::Status TakeTokens(const pb::TokenDelta& delta) {
    ClusterAnswer& answer = run_.answers[delta.request()];
    answer.tokens.insert(answer.tokens.end(), delta.tokens().begin(), delta.tokens().end());
    answer.scores.insert(answer.scores.end(), delta.scores().begin(), delta.scores().end());
    answer.checksums.insert(answer.checksums.end(), delta.checksums().begin(), delta.checksums().end());
    if (static_cast<int>(answer.tokens.size()) != requests_[delta.request()].cancel_after) return absl::OkStatus();
    pb::EngineMessage cancel;
    cancel.mutable_cancel()->set_request(delta.request());
    return Send(cancel);
  }

  EngineChannel channel_;
  const std::vector<ClusterRequest>& requests_;
  ClusterRun run_;
  size_t submitted_ = 0, finished_ = 0;
  bool done_ = false;
};

// Preempts every sequence once, when the result with its n-th output token passes: that token still counts, and
// everything is computed again.
class PreemptingPipeline : public Pipeline {
 public:
  PreemptingPipeline(int64_t at_output, Pipeline* pipeline, Scheduler* scheduler)
      : at_output_(at_output), pipeline_(pipeline), scheduler_(scheduler) {}

  int stages() const override { return pipeline_->stages(); }
  absl::Status Submit(const MicroBatch& batch) override;
  absl::StatusOr<std::optional<StepResult>> Poll() override;

 private:
  const int64_t at_output_;
  Pipeline* const pipeline_;
  Scheduler* const scheduler_;
  absl::flat_hash_map<SequenceId, int64_t> preempt_at_;  // the position of the token; -1: done
};

absl::Status PreemptingPipeline::Submit(const MicroBatch& batch) {
  for (const OpenSequence& open : batch.open) {
    preempt_at_.emplace(open.sequence, static_cast<int64_t>(open.prompt.size()) + at_output_ - 1);
  }
  return pipeline_->Submit(batch);
}

absl::StatusOr<std::optional<StepResult>> PreemptingPipeline::Poll() {
  ASSIGN_OR_RETURN(std::optional<StepResult> result, pipeline_->Poll());
  if (!result.has_value()) return result;
  for (const SampledToken& token : result->sampled) {
    int64_t& preempt_at = preempt_at_[token.sequence];
    if (token.is_void || token.position != preempt_at) continue;
    preempt_at = -1;
    const absl::Status preempted = scheduler_->Preempt(token.sequence);
    // It may have been preempted or cancelled just now.
    if (!absl::IsFailedPrecondition(preempted) && !absl::IsNotFound(preempted)) RETURN_IF_ERROR(preempted);
  }
  return result;
}

}  // namespace

std::string ClusterAnswer::Bits() const {
  std::string bits;
  for (const pb::SampledToken& token : tokens) {
    absl::StrAppend(&bits, token.position(), ":", token.token(), "/",
                    absl::Hex(absl::bit_cast<uint32_t>(token.logprob())));
    for (const pb::TokenLogprob& top : token.top()) {
      absl::StrAppend(&bits, ",", top.token(), "=", absl::Hex(absl::bit_cast<uint32_t>(top.logprob())));
    }
    bits += "\n";
  }
  return bits;
}

pb::SamplingParams GreedyParams() {
  pb::SamplingParams params;
  params.set_top_p(1);
  params.set_repeat_penalty(1);
  params.set_repeat_last_n(64);
  params.set_logprobs(3);
  return params;
}

pb::ConfigureJob DefaultJob(const std::string& model_path) {
  pb::ConfigureJob job;
  job.set_model_path(model_path);
  JobSettings settings;
  settings.threads = 1;
  settings.policy = Policy::kInterleaved;
  settings.prefix_caching = false;
  settings.speculate = Speculate::kOff;  // how many are sent depends on the time that steps take
  SetJobSettings(settings, &job);
  return job;
}

absl::StatusOr<ClusterRun> RunCluster(int stages, const pb::ConfigureJob& job,
                                      const std::vector<ClusterRequest>& requests, FaultHook faults,
                                      int64_t preempt_at_output, GuesserHook guesser) {
  LoopbackWorld world(stages + 1, std::move(faults));
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  std::vector<std::thread> threads;
  for (int stage = 0; stage < stages; ++stage) {
    threads.emplace_back([&world, rank = RankOfStage(stage, stages)] {
      const std::unique_ptr<Endpoint> endpoint = world.Connect(rank);
      ServeStage(endpoint.get()).IgnoreError();  // reported to the coordinator
    });
  }
  JobHooks hooks{.guesser = std::move(guesser)};
  if (preempt_at_output > 0) {
    hooks.wrap = [preempt_at_output](Pipeline* pipeline, Scheduler* scheduler) {
      return std::make_unique<PreemptingPipeline>(preempt_at_output, pipeline, scheduler);
    };
  }
  threads.emplace_back([&world, &pair, &hooks, stages] {
    const std::unique_ptr<Endpoint> endpoint = world.Connect(kCoordinatorRank);
    EngineChannel front(pair[1]);
    if (!RunEngine(endpoint.get(), MakeHellos(stages), &front, hooks).ok()) world.Abort();
  });
  absl::StatusOr<ClusterRun> run = Front(pair[0], requests).Run(job);
  for (std::thread& thread : threads) thread.join();
  return run;
}

absl::StatusOr<pb::ProbeReport> RunProbeFront(int descriptor, const pb::ConfigureJob& job) {
  EngineChannel channel(descriptor);
  pb::EngineMessage message;
  *message.mutable_configure() = job;
  RETURN_IF_ERROR(channel.Send(message));
  pb::ProbeReport report;
  bool ready = false;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> received, channel.Receive());
    if (!received.has_value()) {
      pollfd wait{.fd = channel.descriptor(), .events = POLLIN, .revents = 0};
      poll(&wait, 1, 1000);
      continue;
    }
    if (received->has_failed()) {
      return absl::Status(static_cast<absl::StatusCode>(received->failed().code()), received->failed().message());
    }
    if (received->has_ready()) ready = true;
    if (received->has_probe_report()) report = received->probe_report();
    if (received->has_probe_report() && report.complete()) {
      if (!ready) return absl::InternalError("the job measured before it said that it was ready");
      message.mutable_shutdown();
      RETURN_IF_ERROR(channel.Send(message));
    }
    if (received->has_status() && received->status().ended()) return report;
  }
}

}  // namespace stagecoach::testing
