// A whole job and a probe: the real engine and the real stages over loopback: results, order, overlap, and what happens
// to damaged frames.

#include "coordinator/job/run_engine.h"

#include <sys/socket.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "common/host/host_info.h"
#include "common/json/json_value.h"
#include "common/model/model_description.h"
#include "common/obs/step_log.h"
#include "common/transport/loopback.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/trace/trace_file.h"
#include "coordinator/trace/trace_summary.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"
#include "tests/testing/cluster/loopback_cluster.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::RankOfStage;
using testing::ClusterRequest;

struct EngineTest : ::testing::Test {
  EngineTest()
      : path_(testing::WriteTinyModel(dir_.File("tiny.gguf"), {.context = 1024, .type = TensorType::kQ8_0})),
        job_(testing::DefaultJob(path_)) {}

  static ClusterRequest Request(int length, int64_t max_new_tokens, int salt = 0) {
    ClusterRequest request;
    for (int t = 0; t < length; ++t) request.prompt.push_back((t * 31 + salt * 7 + 5) % 300);
    request.sampling = testing::GreedyParams();
    request.max_new_tokens = max_new_tokens;
    return request;
  }

  // The same with guesses, of which the fourth is wrong: the job sends up to three rows ahead from now on.
  ClusterRequest Guessing(ClusterRequest request) {
    const testing::ClusterAnswer answer = testing::RunCluster(1, job_, {request}).value().answers[0];
    for (const pb::SampledToken& token : answer.tokens) request.prediction.push_back(token.token());
    request.prediction.at(3) ^= 1;
    job_.set_speculate("suffix");
    job_.set_guess_rows(4);
    job_.set_micro_batches(4);
    return request;
  }

  std::vector<nlohmann::json> StepLog() const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(testing::ReadFileOrDie(dir_.File("steps.jsonl")));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  testing::TempDir dir_;
  std::string path_;
  pb::ConfigureJob job_;
};

TEST_F(EngineTest, AnswersManyRequestsAtOnceAndCountsWhatItDid) {
  std::vector<ClusterRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(Request(5 + i, 4 + i % 3, i));
  const auto run = testing::RunCluster(2, job_, requests).value();
  uint64_t prompt_rows = 0, decode_rows = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(run.answers[i].tokens.size(), static_cast<size_t>(requests[i].max_new_tokens));
    EXPECT_EQ(run.answers[i].finished.reason(), pb::RequestFinished::REASON_LENGTH);
    EXPECT_EQ(run.answers[i].tokens[0].position(), 5 + i);
    prompt_rows += requests[i].prompt.size();
    decode_rows += requests[i].max_new_tokens - 1;
  }
  EXPECT_EQ(run.statistics.prefill_rows(), prompt_rows);
  EXPECT_EQ(run.statistics.decode_rows(), decode_rows);
  ASSERT_EQ(run.statistics.stages_size(), 2);
  EXPECT_GE(run.statistics.bubble() + 1e-9, run.statistics.bubble_floor());
}

TEST_F(EngineTest, StopsAtAStopTokenAndReportsIt) {
  const auto free_run = testing::RunCluster(1, job_, {Request(10, 5)}).value();
  ClusterRequest request = Request(10, 5);
  request.stop_tokens = {free_run.answers[0].tokens[2].token()};
  const auto run = testing::RunCluster(1, job_, {request}).value();
  EXPECT_EQ(run.answers[0].finished.reason(), pb::RequestFinished::REASON_STOP);
  EXPECT_LE(run.answers[0].tokens.size(), 3u);
  EXPECT_EQ(run.answers[0].tokens.back().token(), request.stop_tokens[0]);
}

TEST_F(EngineTest, WhereTheVocabularyLacksAByteARequestWithAGrammarIsRejectedWithThatReason) {
  GgufWriter model = testing::TinyModel({.context = 1024, .type = TensorType::kQ8_0});
  std::vector<int32_t> types(320, 1);
  types['!' - 33] = types.back() = 3;  // control tokens
  model.Set("tokenizer.ggml.token_type", types);
  const pb::ConfigureJob job = testing::DefaultJob(testing::WriteModel(dir_.File("mute.gguf"), model));
  std::vector<ClusterRequest> requests(2, Request(20, 4));
  requests[0].grammar = testing::RunOfBytes('a', 'z', 1);
  requests[0].stop_tokens = {319};
  const auto run = testing::RunCluster(1, job, requests).value();
  const pb::RequestFinished& rejected = run.answers[0].finished;
  EXPECT_EQ(rejected.reason(), pb::RequestFinished::REASON_REJECTED);
  EXPECT_EQ(rejected.code(), pb::RequestFinished::CODE_INVALID);
  EXPECT_THAT(rejected.error(), HasSubstr("no token for byte 33"));
  EXPECT_EQ(run.answers[1].tokens.size(), 4u);
}

TEST_F(EngineTest, CancelsOneRequestAndFinishesTheOthersUnchanged) {
  std::vector<ClusterRequest> requests = {Request(30, 200, 1), Request(40, 20, 2)};
  const auto alone = testing::RunCluster(1, job_, {requests[1]});
  requests[0].cancel_after = 3;
  const auto run = testing::RunCluster(2, job_, requests);
  ASSERT_TRUE(run.ok() && alone.ok()) << run.status();
  EXPECT_EQ(run->answers[0].finished.reason(), pb::RequestFinished::REASON_CANCELLED);
  EXPECT_LT(run->answers[0].tokens.size(), 200u);
  EXPECT_EQ(run->answers[1].Bits(), alone->answers[0].Bits());
}

TEST_F(EngineTest, WorkThatACancelLeavesInFlightStillCountsForTheBubble) {
  std::vector<ClusterRequest> requests = {Request(30, 300, 1), Request(30, 300, 2)};
  requests[0].cancel_after = 40;
  requests[1].cancel_after = 40;
  job_.set_stage_delay_us(1000);
  const auto run = testing::RunCluster(2, job_, requests).value();
  EXPECT_GT(run.statistics.busy_s(),
            0.08);  // 2 sequences over 2 stages, 40 steps of at least 1 ms a stage and sequence
  EXPECT_GE(run.statistics.bubble() + 1e-9, run.statistics.bubble_floor());
}

// By row, of all layers.
std::map<int32_t, std::vector<uint32_t>> ChecksumsOf(const testing::ClusterAnswer& answer) {
  std::map<int32_t, std::vector<uint32_t>> rows;
  for (const pb::RowChecksums& part : answer.checksums) {
    for (int i = 0; i < part.values_size(); ++i) rows[part.start() + i % part.rows()].push_back(part.values(i));
  }
  return rows;
}

TEST_F(EngineTest, ChecksumsOfTheHiddenStatesAreThoseOfEachRequestHoweverTheWorkIsCut) {
  const std::vector<ClusterRequest> requests = {Request(30, 6, 1), Request(9, 4, 2)};
  const auto silent = testing::RunCluster(2, job_, requests).value();
  EXPECT_TRUE(silent.answers[0].checksums.empty());
  job_.set_layer_checksums(true);
  const auto whole = testing::RunCluster(1, job_, requests).value();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(whole.answers[i].Bits(), silent.answers[i].Bits());
    const auto rows = ChecksumsOf(whole.answers[i]);
    // The last token is not computed.
    EXPECT_EQ(rows.size(), requests[i].prompt.size() + static_cast<size_t>(requests[i].max_new_tokens) - 1);
    for (const auto& [row, layers] : rows) EXPECT_EQ(layers.size(), 4u) << row;
  }
  EXPECT_NE(ChecksumsOf(whole.answers[0]).at(3), ChecksumsOf(whole.answers[1]).at(3));
  for (const auto& [stages, chunk] : {std::pair(2, 512), {4, 512}, {3, 7}, {2, 1}}) {
    job_.set_prefill_chunk(chunk);
    const auto cut = testing::RunCluster(stages, job_, requests).value();
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(ChecksumsOf(cut.answers[i]), ChecksumsOf(whole.answers[i])) << stages << " " << chunk;
    }
  }
}

TEST_F(EngineTest, ANumberOfStagesThatTheWorldDoesNotHaveIsRefused) {
  job_.set_stages(3);
  const auto run = testing::RunCluster(2, job_, {Request(4, 2)});
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument) << run.status();
  EXPECT_THAT(run.status().message(), HasSubstr("`stages` asks for 3 stages, but this world has 2"));
}

TEST_F(EngineTest, RejectsWhatCannotFitWithBothNumbersAndServesTheRest) {
  job_.set_context(64);
  const auto run = testing::RunCluster(1, job_, {Request(65, 4), Request(10, 4), Request(0, 4)}).value();
  EXPECT_EQ(run.answers[0].finished.reason(), pb::RequestFinished::REASON_REJECTED);
  EXPECT_THAT(run.answers[0].finished.error(), HasSubstr("65"));
  EXPECT_THAT(run.answers[0].finished.error(), HasSubstr("64"));
  EXPECT_EQ(run.answers[1].finished.reason(), pb::RequestFinished::REASON_LENGTH);
  EXPECT_EQ(run.answers[2].finished.reason(), pb::RequestFinished::REASON_REJECTED);
}

TEST_F(EngineTest, RefusesSamplingOutOfRangeForThatRequestAlone) {
  ClusterRequest bad = Request(10, 4);
  bad.sampling.set_top_p(1.5f);
  ClusterRequest forbids = Request(10, 4);  // -inf is a bias: the token never comes
  for (int token = 1; token < 20; ++token) {
    pb::LogitBias* bias = forbids.sampling.add_logit_bias();
    bias->set_token(token);
    bias->set_bias(-std::numeric_limits<float>::infinity());
  }
  const auto run = testing::RunCluster(2, job_, {bad, forbids}).value();
  EXPECT_EQ(run.answers[0].finished.reason(), pb::RequestFinished::REASON_REJECTED);
  EXPECT_THAT(run.answers[0].finished.error(), HasSubstr("top_p is 1.5"));
  EXPECT_EQ(run.answers[1].finished.reason(), pb::RequestFinished::REASON_LENGTH);
}

TEST_F(EngineTest, ScoresEveryPromptTokenFromThePositionAskedFor) {
  ClusterRequest request = Request(50, 0);
  request.score_from = 25;
  job_.set_prefill_chunk(7);
  const auto run = testing::RunCluster(3, job_, {request}).value();
  EXPECT_EQ(run.answers[0].finished.reason(), pb::RequestFinished::REASON_SCORED);
  int scored = 0;
  for (const pb::TargetLogprobs& scores : run.answers[0].scores) {
    for (int i = 0; i < scores.logprobs_size(); ++i) {
      const int row = scores.start() + i;
      if (row + 1 < 25 || row + 1 >= 50) continue;
      ++scored;
      EXPECT_LT(scores.logprobs(i), 0);
      EXPECT_TRUE(std::isfinite(scores.logprobs(i)));
    }
  }
  EXPECT_EQ(scored, 25);
}

TEST_F(EngineTest, EveryStageAccountsForItsStepsWhereTheJobAsks) {
  job_.set_step_log(dir_.File("steps.jsonl"));
  const auto silent = testing::RunCluster(2, job_, {Request(20, 6)}).value();
  for (const nlohmann::json& step : StepLog()) EXPECT_FALSE(step["stages"][0].contains("parts")) << step;
  job_.set_step_account(true);
  for (const int stages : {1, 2}) {
    const auto run = testing::RunCluster(stages, job_, {Request(20, 6)}).value();
    EXPECT_EQ(run.answers[0].Bits(), silent.answers[0].Bits());
    int64_t steps = 0;
    const std::vector<StepRecord> log = ReadStepLog(dir_.File("steps.jsonl")).value();
    for (const StepRecord& step : log) {
      ASSERT_EQ(step.times.size(), static_cast<size_t>(stages));
      if (step.rows() == 0) continue;
      ++steps;
      for (const StageTimes& times : step.times) {
        ASSERT_EQ(times.account.size(), kStepParts);
        const auto of = [&](StepPart part) { return times.account[static_cast<size_t>(part)]; };
        EXPECT_GT(GangNs(times.account), 0);
        EXPECT_LE(GangNs(times.account), (times.end_us - times.start_us + 1) * 1000) << "a clock of microseconds";
        EXPECT_GT(of(StepPart::kDown).bytes, 0);
        EXPECT_EQ(of(StepPart::kHead).bytes > 0, times.stage + 1 == stages);
      }
    }
    EXPECT_EQ(steps, 6);
  }
}

TEST_F(EngineTest, TwoChunksOfOnePromptAreInFlightAtOnce) {
  job_.set_step_log(dir_.File("steps.jsonl"));
  job_.set_prefill_chunk(128);
  const auto run = testing::RunCluster(2, job_, {Request(600, 1)}).value();
  const std::vector<nlohmann::json> steps = StepLog();
  ASSERT_GE(steps.size(), 5u);  // 600 / 128
  int overlapping = 0;
  for (size_t i = 0; i + 1 < 5; ++i) overlapping += steps[i + 1]["submit_us"] < steps[i]["confirm_us"];
  EXPECT_EQ(overlapping, 4);  // the window is two: each chunk is submitted while the one before it is on its way
}

// Forward-only pipeline: chunk c is on stage s at step c + s, so c and c + d are under way together for d < S. Nothing
// here depends on how fast a stage is: the last stage's result of chunk c is held back until the first stage has passed
// c + S - 1 on, which never happens unless the stages work on different chunks at once; and c + S is submitted only
// once that result is there.
TEST_F(EngineTest, FourStagesWorkOnFourChunksOfOnePromptAtOnce) {
  constexpr uint64_t kChunks = 10, kStages = 4;
  job_.set_step_log(dir_.File("steps.jsonl"));
  job_.set_prefill_chunk(60);
  std::mutex mu;
  std::condition_variable passed_on;
  uint64_t passed = 0;  // chunks that the first stage has sent to the second; guarded by mu
  bool waited_in_vain = false;
  const auto run =
      testing::RunCluster(kStages, job_, {Request(600, 1)}, [&](Channel channel, int source, int, uint64_t index) {
        std::unique_lock<std::mutex> lock(mu);
        if (channel == Channel::kStep && source == testing::RankOfStage(0, kStages)) {
          passed = index + 1;
          passed_on.notify_all();
        }
        if (channel == Channel::kResult && index + kStages <= kChunks && !waited_in_vain) {
          waited_in_vain =
              !passed_on.wait_for(lock, std::chrono::seconds(60), [&] { return passed >= index + kStages; });
        }
        return Fault{};
      }).value();
  EXPECT_FALSE(waited_in_vain);
  const std::vector<nlohmann::json> steps = StepLog();
  ASSERT_GE(steps.size(), kChunks);
  for (size_t chunk = 0; chunk + kStages < kChunks; ++chunk)
    EXPECT_GE(steps[chunk + kStages]["submit_us"], steps[chunk]["confirm_us"]) << "five chunks were under way";
}

TEST_F(EngineTest, ATraceHoldsEveryMicroBatchWithTheSendsAndTheQueuesOfItsTime) {
  const std::string path = dir_.File("trace.json");
  job_.set_trace(path);
  job_.set_prefill_chunk(128);
  const auto run = testing::RunCluster(2, job_, {Request(600, 9, 1), Request(300, 9, 2)}).value();
  ASSERT_TRUE(FinishTrace(path).ok());
  const auto jobs = ReadTrace(path).value();
  ASSERT_EQ(jobs.size(), 1u);
  const TraceJob& trace = jobs.front();
  EXPECT_EQ(trace.stages(), 2);
  const TraceSummary summary = SummarizeTrace(trace);
  EXPECT_EQ(summary.prefill_rows, static_cast<int64_t>(run.statistics.prefill_rows()));
  EXPECT_EQ(summary.decode_rows, static_cast<int64_t>(run.statistics.decode_rows()));
  EXPECT_EQ(summary.micro_batches, static_cast<int64_t>(run.statistics.micro_batches()));
  int sends = 0;
  for (const TraceStep& step : trace.steps) {
    EXPECT_LE(step.ready_us, step.submit_us);
    EXPECT_LE(step.queues.running + step.queues.waiting, 2);
    ASSERT_EQ(step.queues.blocks_used.size(), 1u);
    for (const TraceSpan& span : step.stages) {
      if (span.send_end_us == span.send_start_us) continue;  // not known
      EXPECT_GE(span.send_start_us, span.end_us) << step.number;
      ++sends;
    }
  }
  EXPECT_GT(sends, 0);
  EXPECT_EQ(trace.steps.back().queues.running, 0);
  EXPECT_EQ(trace.steps.back().queues.blocks_used[0], 0);
}

TEST_F(EngineTest, ADamagedFrameIsALostStageAndNeverACrash) {
  // Bytes of the header, of the checksum and of the framing; on the way between the stages and to the coordinator; of
  // known rows and of guessed ones.
  for (const bool guesses : {false, true}) {
    const ClusterRequest request = guesses ? Guessing(Request(20, 8)) : Request(20, 8);
    for (const size_t offset : {0u, 1u, 6u, 20u, 40u}) {
      for (const Channel channel : {Channel::kStep, Channel::kResult}) {
        const auto run = testing::RunCluster(2, job_, {request}, [=](Channel c, int source, int, uint64_t index) {
          const bool hit = c == channel && source > 0 && index == 2;
          return hit ? Fault{.kind = Fault::Kind::kCorrupt, .offset = offset} : Fault{};
        });
        ASSERT_FALSE(run.ok()) << "offset " << offset;
        EXPECT_THAT(run.status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("bad"))) << run.status();
      }
    }
  }
}

TEST_F(EngineTest, ATruncatedFrameIsALostStage) {
  const auto run = testing::RunCluster(2, job_, {Request(20, 8)}, [](Channel c, int source, int, uint64_t index) {
    return c == Channel::kStep && source == testing::RankOfStage(0, 2) && index == 1
               ? Fault{.kind = Fault::Kind::kTruncate, .offset = 100}
               : Fault{};
  });
  EXPECT_EQ(run.status().code(), absl::StatusCode::kUnavailable) << run.status();
}

TEST_F(EngineTest, ADroppedFrameIsNoticedByTheProgressTimeoutAndItsHolderNamed) {
  job_.set_stage_timeout_s(1);
  const auto run = testing::RunCluster(2, job_, {Request(20, 8)}, [](Channel c, int source, int, uint64_t index) {
    return c == Channel::kStep && source == testing::RankOfStage(0, 2) && index == 1 ? Fault{.kind = Fault::Kind::kDrop}
                                                                                     : Fault{};
  });
  EXPECT_THAT(run.status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stage 1 on local"))) << run.status();
}

TEST_F(EngineTest, DelayedFramesChangeNothing) {
  std::vector<ClusterRequest> requests = {Request(100, 6, 1), Request(50, 6, 2)};
  requests[1].grammar = testing::Lists(3);  // whose next tokens are found out while a stage waits, or while it samples
  requests[1].stop_tokens = {319};
  const auto calm = testing::RunCluster(3, job_, requests);
  requests[0] = Guessing(requests[0]);
  const auto delayed = testing::RunCluster(3, job_, requests, [](Channel c, int, int, uint64_t index) {
    return c == Channel::kStep && index % 3 == 0 ? Fault{.kind = Fault::Kind::kDelay, .delay_us = 5000} : Fault{};
  });
  ASSERT_TRUE(calm.ok() && delayed.ok()) << delayed.status();
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(calm->answers[i].Bits(), delayed->answers[i].Bits());
  EXPECT_GT(delayed->statistics.guesses_right(), 0u);
  EXPECT_GT(delayed->statistics.guesses_void(), 0u);
}

TEST_F(EngineTest, AStagesOwnErrorIsFinalAndNamesTheStage) {
  job_.set_isa(pb::INSTRUCTION_SET_NEON_I8MM);  // of another family of processors
  const auto run = testing::RunCluster(2, job_, {Request(20, 8)});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(run.status().message(), HasSubstr("stage "));
  EXPECT_THAT(run.status().message(), HasSubstr("and not neon-i8mm"));
}

TEST_F(EngineTest, OptionsOutOfRangeAreRefusedWithTheirRange) {
  struct Case {
    std::function<void(pb::ConfigureJob*)> change;
    const char* text;
  };
  const std::vector<Case> cases = {
      {[](pb::ConfigureJob* j) { j->set_block_tokens(20); }, "multiple of 16"},
      {[](pb::ConfigureJob* j) { j->set_max_num_seqs(0); }, "`max_num_seqs` is 0"},
      {[](pb::ConfigureJob* j) { j->set_prefill_chunk(-1); }, "`prefill_chunk` is -1"},
      {[](pb::ConfigureJob* j) { j->set_context(4096); }, "trained for 1024"},
      {[](pb::ConfigureJob* j) { j->set_kv_type(static_cast<pb::KvType>(9)); }, "expected one of f32, f16, bf16, q8_0"},
      {[](pb::ConfigureJob* j) { j->clear_policy(); }, "expected one of prefill-first"},
      {[](pb::ConfigureJob* j) { j->set_chunking("at-random"); }, "expected one of constant"},
      {[](pb::ConfigureJob* j) { j->set_slo_itl_s(0.1); }, "give throttled, or leave `slo_itl_s` out"},
      {[](pb::ConfigureJob* j) {
         j->set_policy("throttled");
         j->set_slo_itl_s(-1);
       },
       "`slo_itl_s` is -1 s, expected 0.0001 to 3600"},
      {[](pb::ConfigureJob* j) {
         j->add_layer_split(3);
         j->add_layer_split(3);
       },
       "4"},
      {[](pb::ConfigureJob* j) { j->set_kv_cache_bytes(1); }, "`kv_cache_bytes`"},
      {[](pb::ConfigureJob* j) { j->set_kv_cache_bytes(uint64_t{1} << 50); }, "of memory available there"},
      {[](pb::ConfigureJob* j) { j->set_model_path("/no/such.gguf"); }, "/no/such.gguf"},
  };
  for (const Case& c : cases) {
    pb::ConfigureJob job = job_;
    c.change(&job);
    const auto run = testing::RunCluster(2, job, {Request(4, 2)});
    ASSERT_FALSE(run.ok()) << c.text;
    EXPECT_THAT(run.status().message(), HasSubstr(c.text));
    EXPECT_NE(run.status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(EngineTest, AChangedModelFileIsRefusedAtARelaunch) {
  const auto first = testing::RunCluster(1, job_, {Request(4, 2)}).value();
  *job_.mutable_fingerprints() = first.ready.fingerprints();
  EXPECT_TRUE(testing::RunCluster(1, job_, {Request(4, 2)}).ok());
  testing::WriteTinyModel(path_, {.context = 1024, .type = TensorType::kQ8_0, .seed = 2});
  const auto second = testing::RunCluster(1, job_, {Request(4, 2)});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kDataLoss) << second.status();
}

TEST_F(EngineTest, MoreStagesThanLayersIsAnErrorThatSaysBoth) {
  const auto run = testing::RunCluster(5, job_, {Request(4, 2)});
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.status().message(), HasSubstr("5"));
  EXPECT_THAT(run.status().message(), HasSubstr("4"));
}

constexpr char kModel[] = "dummy://tiny/q8_0";

pb::ConfigureJob ProbeOf(const std::string& model) {
  pb::ConfigureJob job = testing::DefaultJob(model);
  job.mutable_probe();
  return job;
}

// `hosts`: of the stages.
absl::StatusOr<pb::ProbeReport> Probe(const std::vector<std::string>& hosts, const pb::ConfigureJob& job,
                                      FaultHook faults = nullptr) {
  const int stages = static_cast<int>(hosts.size());
  LoopbackWorld world(stages + 1, std::move(faults));
  std::vector<pb::Hello> hellos = {MakeHello(pb::Hello::ROLE_COORDINATOR, {})};
  hellos[0].set_host("front");
  std::vector<std::thread> threads;
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = RankOfStage(stage, stages);
    hellos.push_back(MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets()));
    hellos.back().set_host(hosts[static_cast<size_t>(stage)]);
    hellos.back().set_rank(rank);
    threads.emplace_back([&world, rank] {
      const std::unique_ptr<Endpoint> endpoint = world.Connect(rank);
      ServeStage(endpoint.get()).IgnoreError();
    });
  }
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  threads.emplace_back([&world, &hellos, descriptor = pair[1]] {
    const std::unique_ptr<Endpoint> endpoint = world.Connect(kCoordinatorRank);
    EngineChannel front(descriptor);
    if (!RunEngine(endpoint.get(), hellos, &front).ok()) world.Abort();
  });
  absl::StatusOr<pb::ProbeReport> report = testing::RunProbeFront(pair[0], job);
  for (std::thread& thread : threads) thread.join();
  return report;
}

TEST(RunProbe, ReportsEveryHostAndEveryLink) {
  const auto report = Probe({"a", "a", "b"}, ProbeOf(kModel)).value();
  EXPECT_EQ(report.done(), 1);
  ASSERT_EQ(report.hellos_size(), 4);
  EXPECT_EQ(report.hellos(0).host(), "front");
  EXPECT_EQ(report.coordinator().memory_bytes(), TotalMemoryBytes());
  ASSERT_EQ(report.stages_size(), 3);
  const auto model = OpenModel(kModel, {}).value();
  for (int stage = 0; stage < 3; ++stage) {
    const pb::ProbedStage& probed = report.stages(stage);
    EXPECT_EQ(probed.stage(), stage);
    EXPECT_EQ(probed.rank(), RankOfStage(stage, 3));
    EXPECT_GE(probed.threads(), 1);
    EXPECT_EQ(probed.host().memory_bytes(), TotalMemoryBytes());
    EXPECT_EQ(probed.model_code(), 0);
    EXPECT_EQ(FromProto(probed.model().fingerprints()), model->file->fingerprints());
    EXPECT_EQ(probed.model().steps_size(), 0);
  }
  EXPECT_EQ(report.hosts_size(), 0);  // no speeds were asked for
  ASSERT_EQ(report.links_size(), 5);
  for (int i = 0; i < 5; ++i) {
    const pb::ProbeLink& link = report.links(i);
    EXPECT_EQ(link.from_stage(), i < 3 ? -1 : i - 3);
    EXPECT_EQ(link.to_stage(), i < 3 ? i : i - 2);
    EXPECT_EQ(link.error(), "");
    EXPECT_GT(link.latency_us(), 0);
    EXPECT_GT(link.bytes_per_s(), 0);
    // All are threads of one process, which has one clock.
    EXPECT_LE(std::abs(link.clock_offset_us()), link.clock_error_us());
  }
}

TEST(RunProbe, NamesTheTwoStagesWhoseLinkLosesFramesAndMeasuresTheRest) {
  pb::ConfigureJob job = ProbeOf("");
  job.mutable_probe()->set_link_timeout_s(0.3);
  const pb::ProbeReport report =
      Probe({"a", "b", "c"}, job, [](Channel channel, int source, int, uint64_t) {
        return Fault{channel == Channel::kStep && source == RankOfStage(0, 3) ? Fault::Kind::kDrop
                                                                              : Fault::Kind::kNone};
      }).value();
  ASSERT_EQ(report.links_size(), 5);
  for (const pb::ProbeLink& link : report.links()) {
    if (link.from_stage() == 0) {
      EXPECT_THAT(link.error(), AllOf(HasSubstr("stage 0 on a"), HasSubstr("stage 1 on b"), HasSubstr("TCP")));
    } else {
      EXPECT_EQ(link.error(), "");
      EXPECT_GT(link.bytes_per_s(), 0);
    }
  }
}

TEST(RunProbe, SaysOfEveryStageWhatIsWrongWithItsModel) {
  const auto report = Probe({"a", "b"}, ProbeOf("/nonexistent/model.gguf")).value();
  for (const pb::ProbedStage& stage : report.stages()) {
    EXPECT_EQ(stage.model_code(), static_cast<int>(absl::StatusCode::kNotFound));
    EXPECT_THAT(stage.model_error(), HasSubstr("/nonexistent/model.gguf"));
  }
}

TEST(RunProbe, RefusesAWorldWithAnotherNumberOfStages) {
  pb::ConfigureJob job = ProbeOf("");
  job.set_stages(3);
  EXPECT_THAT(Probe({"a"}, job).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("`stages` asks for 3")));
}

}  // namespace
}  // namespace stagecoach
