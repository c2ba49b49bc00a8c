#include "coordinator/plan/cluster_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "coordinator/plan/plan_advice.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

// The same without a plan.
absl::StatusOr<JobPlan> Unmeasured(const ClusterQuestion& question) {
  return PlanJobUnmeasured(question.job, HellosOf(question), question.model, JobEpoch{});
}

std::string RefusalOf(const ClusterQuestion& question, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = PlanCluster(question).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(ClusterPlan, OneStageHasNoBubble) {
  const ClusterPlan plan = Plan(Question(1));
  EXPECT_EQ(plan.stages(), 1);
  EXPECT_EQ(plan.sequences, 8);
  EXPECT_EQ(plan.decode.groups, 1) << "every group would read the weights again";
  EXPECT_LT(plan.decode.bubble, 0.05);  // the way to the coordinator and back
  EXPECT_EQ(plan.prefill.chunk, 512);
  EXPECT_FALSE(plan.measured);
  // All weights, and K and V of 8 sequences of 576 tokens in 28 layers, at 40 GB/s; then to the coordinator and back.
  EXPECT_NEAR(plan.decode.itl_s, (0.633e9 + 8.0 * 576 * 28 * 4096) / 40e9, 0.0005);
}

TEST(ClusterPlan, ALoneTokenTakesWhatThePlanOfOneSequenceSays) {
  ClusterQuestion question = Question(1);
  question.job.set_max_num_seqs(1);
  EXPECT_NEAR(LoneTokenSeconds(question).value(), Plan(question).decode.itl_s, 1e-9);
  question.profile.hosts[0].speeds.clear();
  EXPECT_THAT(LoneTokenSeconds(question).status().message(), HasSubstr("nothing is known of the speed of host n0"));
}

TEST(ClusterPlan, ShortStepsWaitForTheCoordinator) {
  ClusterQuestion question = Question(1, "tiny/q8_0");
  question.load = {.prompt_tokens = 60, .output_tokens = 4};
  question.job.set_micro_batches(1);
  question.coordinator_us = question.wake_us = 0;
  const double without = Plan(question).decode.itl_s;
  question.coordinator_us = 25;
  question.wake_us = 50;
  EXPECT_NEAR(Plan(question).decode.itl_s, without + 125e-6, 1e-9);  // the stage and the coordinator wake up
  EXPECT_GT(Plan(question).decode.bubble_coordinator, 0.1);
}

TEST(ClusterPlan, FewerGroupsMayDecodeThanAreInFlight) {
  ClusterQuestion question = Question(1);
  question.stage_hosts = {0, 0};
  HostFacts& host = question.profile.hosts[0];  // whose memory one stage keeps as busy as two
  host.speeds.assign(2, host.speeds[0]);
  for (HostSpeed& speed : host.speeds) speed.threads = 2;
  host.speeds[0].int8_gops /= 2;
  host.speeds[0].f32_gops /= 2;
  host.speeds[1].stages = 2;
  const ClusterPlan plan = Plan(question);
  EXPECT_EQ(plan.decode.groups, 1) << "a second one would read the host's memory again";
  EXPECT_GT(plan.job.micro_batches, 1) << "chunks of prompts keep both stages busy";
  question.job.set_decode_groups(2);
  EXPECT_GT(Plan(question).decode.itl_s, 1.3 * plan.decode.itl_s);
}

TEST(ClusterPlan, AMicroBatchHasNoMoreRowsThanItMay) {
  ClusterQuestion question = Question(2);
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 2048 * kGiB;
  question.job.set_max_num_seqs(4096);
  question.job.set_micro_batches(2);
  const ClusterPlan plan = Plan(question);
  EXPECT_EQ(plan.sequences, 4096);
  EXPECT_EQ(plan.decode.rows, 512);
  EXPECT_EQ(plan.decode.groups, 8);
  EXPECT_EQ(plan.decode.in_flight, 2);
}

TEST(ClusterPlan, TheMemoryIsThatOfTheNumberInFlightThatItRecommends) {
  for (const int hosts : {1, 2, 4}) {
    for (const double latency_us : {0.0, 20000.0}) {
      ClusterQuestion question = Question(hosts);
      question.profile.default_link->latency_us = latency_us;
      const ClusterPlan recommended = Plan(question);
      question.job.set_micro_batches(recommended.job.micro_batches);
      const ClusterPlan fixed = Plan(question);
      for (int s = 0; s < hosts; ++s) {
        EXPECT_EQ(recommended.memory[s].frames, fixed.memory[s].frames) << recommended.job.micro_batches;
        EXPECT_EQ(recommended.memory[s].total(), fixed.memory[s].total());
      }
    }
  }
}

TEST(ClusterPlan, TheFirstTokenOfAnAnswerIsThePromptsAndNoStepOfDecoding) {
  ClusterQuestion question = Question(1);
  question.load.output_tokens = 1;
  const ClusterPlan plan = Plan(question);
  EXPECT_NEAR(plan.output_tokens_per_s, plan.prefill.tokens_per_s / 512, 1e-9 * plan.prefill.tokens_per_s);
}

TEST(ClusterPlan, AJobWithoutAPlanSplitsTheLayersAsThePlanWould) {
  for (const std::vector<int>& cores : {std::vector<int>{4}, {4, 4}, {4, 12}, {16, 2, 8}}) {
    ClusterQuestion question = Question(0);
    for (size_t i = 0; i < cores.size(); ++i) {
      question.profile.hosts.push_back(AssumedHost("n" + std::to_string(i), cores[i], 16 * kGiB,
                                                   i % 2 == 0 ? InstructionSet::kAvx512Vnni : InstructionSet::kAvx2));
      question.stage_hosts.push_back(static_cast<int>(i));
    }
    question.job.set_prefill_chunk(512);
    const ClusterPlan plan = Plan(question);
    const auto job = Unmeasured(question).value();
    for (size_t s = 0; s < cores.size(); ++s) {
      EXPECT_EQ(job.stages[s].first_layer(), plan.job.stages[s].first_layer()) << cores.size();
      EXPECT_EQ(job.stages[s].last_layer(), plan.job.stages[s].last_layer()) << cores.size();
    }
  }
}

// Every way to give each stage a layer and more.
void ForEachLayerSplit(int64_t layers, size_t stages, std::vector<int64_t>* split,
                       const std::function<void(const std::vector<int64_t>&)>& visit) {
  if (split->size() + 1 == stages) {
    split->push_back(layers);
    visit(*split);
    split->pop_back();
    return;
  }
  for (int64_t here = 1; here <= layers - static_cast<int64_t>(stages - split->size() - 1); ++here) {
    split->push_back(here);
    ForEachLayerSplit(layers - here, stages, split, visit);
    split->pop_back();
  }
}

// In every fourth round memory is short, or in all: what a split is worth then depends on how many sequences it holds.
void ExpectTheBestSplits(unsigned seed, int rounds, bool always_short) {
  std::mt19937 random(seed);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  for (int round = 0; round < rounds; ++round) {
    ClusterQuestion question = Question(round < 8 ? 3 : 2);
    for (HostFacts& host : question.profile.hosts) {
      if (round > 0) Slow(draw(1, 4), &host);
      host.speeds[0].read_gbps *= round % 3 == 1 ? draw(0.5, 2) : 1;  // prompts and decoding want different splits
      if (always_short || round % 4 == 3) host.available_bytes = static_cast<uint64_t>(draw(0.4, 1) * kGiB);
    }
    question.profile.default_link->bandwidth_gbit_s = round % 2 == 0 ? 0.1 : 10;
    question.job.set_max_num_seqs(round % 5 == 4 ? 2 : 16);
    const absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
    double best = 0;
    std::vector<int64_t> none;
    ForEachLayerSplit(28, question.stage_hosts.size(), &none, [&](const std::vector<int64_t>& split) {
      ClusterQuestion other = question;
      for (const int64_t layers : split) other.job.add_layer_split(layers);
      const absl::StatusOr<ClusterPlan> of_split = PlanCluster(other);
      if (of_split.ok()) best = std::max(best, of_split->output_tokens_per_s);
    });
    if (best == 0) continue;  // no split has the memory
    ASSERT_TRUE(plan.ok()) << seed << " " << round << ": " << plan.status();
    EXPECT_GE(plan->output_tokens_per_s, best * (1 - 1e-9))
        << seed << " " << round << ": " << plan->sequences << " sequences";
  }
}

TEST(ClusterPlan, NoSplitIsBetterByItsOwnMeasure) {
  ExpectTheBestSplits(3, testing::kSlow ? 2 : 12, /*always_short=*/false);
  ExpectTheBestSplits(55, testing::kSlow ? 0 : 12, /*always_short=*/false);
  ExpectTheBestSplits(1005, testing::kSlow ? 2 : 12, /*always_short=*/true);
}

TEST(ClusterPlan, EqualHostsBehindASlowLinkShareTheWork) {
  ClusterQuestion question = Question(3);
  question.profile.default_link->bandwidth_gbit_s = 0.1;
  question.job.set_max_num_seqs(32);
  const ClusterPlan plan = Plan(question);
  for (const pb::StageAssignment& stage : plan.job.stages) {
    EXPECT_GE(stage.last_layer() - stage.first_layer(), 7) << stage.stage();
  }
}

TEST(ClusterPlan, AnUplinkThatHopsShareIsTheLimit) {
  ClusterQuestion question = Question(4);
  question.job.set_max_num_seqs(32);
  const double free = Plan(question).output_tokens_per_s;
  question.profile.uplinks = {{.name = "rack", .bandwidth_gbit_s = 0.02, .hosts = {0, 2}}};
  const ClusterPlan plan = Plan(question);
  EXPECT_LT(plan.output_tokens_per_s, free / 4);
  EXPECT_EQ(plan.prefill.limit, (PipelineLimit{PipelineLimit::What::kUplink, 0}));
}

TEST(ClusterPlan, ADescribedHostIsSlowerWithoutItsBestInstructions) {
  ClusterQuestion question = Question(1);
  question.profile.hosts[0].isas = {"avx512-vnni", "avx2", "scalar"};
  const double best = Plan(question).prefill.tokens_per_s;
  question.job.set_isa(pb::INSTRUCTION_SET_AVX2);
  EXPECT_NEAR(Plan(question).prefill.tokens_per_s / best, 120.0 / 300, 0.03);
  question.profile.hosts[0].isa = "avx512-vnni";  // measured: what was measured stays
  EXPECT_NEAR(Plan(question).prefill.tokens_per_s / best, 1, 1e-9);
}

// A profile may know of a better split, but what is predicted of a run without a plan is that of its own.
TEST(ClusterPlan, WhatWillRunIsSplitAsIfNothingWereMeasured) {
  ClusterQuestion question = Question(2);
  question.job.set_prefill_chunk(512);
  for (HostSpeed& speed : question.profile.hosts[0].speeds) {
    speed.read_gbps *= 4;
    speed.int8_gops *= 4;
  }
  const int64_t fastest_takes = Plan(question).job.stages[0].last_layer();
  const auto unmeasured = Unmeasured(question).value();
  ASSERT_EQ(UseDefaultSplit(&question), absl::OkStatus());
  EXPECT_EQ(Plan(question).job.stages[0].last_layer(), unmeasured.stages[0].last_layer());
  EXPECT_LT(Plan(question).job.stages[0].last_layer(), fastest_takes);

  question.job.clear_layer_split();
  for (const int64_t layers : {3, 25}) question.job.add_layer_split(layers);
  ASSERT_EQ(UseDefaultSplit(&question), absl::OkStatus());
  EXPECT_THAT(question.job.layer_split(), ElementsAre(3, 25)) << "the user's own";
}

// Prompts are bound by arithmetic and do without the head; decoding pays for it in every step.
TEST(ClusterPlan, FasterArithmeticLeavesTheStageWithTheHeadFewerLayers) {
  const ClusterQuestion question = Question(2);
  std::vector<pb::Hello> hellos = HellosOf(question);
  const auto first = [&](std::vector<pb::InstructionSet> isas, pb::InstructionSet wanted) {
    for (pb::Hello& hello : hellos) hello.mutable_isas()->Assign(isas.begin(), isas.end());
    pb::ConfigureJob job = question.job;
    job.set_prefill_chunk(512);
    job.set_isa(wanted);
    return PlanJobUnmeasured(job, hellos, question.model, JobEpoch{}).value().stages[0].last_layer();
  };
  const auto any = pb::INSTRUCTION_SET_UNSPECIFIED;
  const auto avx2 = pb::INSTRUCTION_SET_AVX2, vnni = pb::INSTRUCTION_SET_AVX512_VNNI;
  EXPECT_LT(first({avx2}, any), first({avx2, vnni}, any));
  EXPECT_EQ(first({avx2}, any), first({avx2, vnni}, avx2)) << "what a job is told to compute with counts";
}

TEST(ClusterPlan, StagesThatTheLauncherGaveCpusOfTheirOwnAreAsFastAsTheOthers) {
  const ClusterQuestion question = Question(3);
  pb::ConfigureJob job = question.job;
  job.set_prefill_chunk(512);
  std::vector<pb::Hello> hellos = HellosOf(question);
  const JobPlan hosts_apart = PlanJobUnmeasured(job, hellos, question.model, JobEpoch{}).value();
  for (int stage = 0; stage < 3; ++stage) {
    for (int core = 0; core < 4; ++core) {
      pb::CpuPlace* place = hellos[stage].add_cpus();
      place->set_cpu(stage % 2 * 4 + core);
      place->set_core(stage % 2 * 4 + core);
    }
  }
  hellos[1].set_host("n0");
  hellos[1].set_available_memory_bytes(64 * kGiB);
  hellos[0].set_available_memory_bytes(64 * kGiB);
  const JobPlan two_on_one = PlanJobUnmeasured(job, hellos, question.model, JobEpoch{}).value();
  for (int stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(two_on_one.stages[stage].threads(), 4);
    EXPECT_EQ(two_on_one.stages[stage].last_layer(), hosts_apart.stages[stage].last_layer());
  }
}

TEST(ClusterPlan, AShortContextIsNoReasonToRefuseAJob) {
  ClusterQuestion question = Question(2);
  question.job.set_prefill_chunk(512);
  for (const int64_t context : {1, 2, 100, 4096}) {
    question.job.set_context(context);
    const auto job = Unmeasured(question);
    EXPECT_TRUE(job.ok()) << context << ": " << job.status();
  }
}

TEST(ClusterPlan, AJobOfNoRowsIsRefusedByItsField) {
  for (const auto& [change, message] : std::vector<std::pair<std::function<void(pb::ConfigureJob*)>, const char*>>{
           {[](pb::ConfigureJob* job) { job->set_max_num_batched_tokens(0); }, "`max_num_batched_tokens` is 0"},
           {[](pb::ConfigureJob* job) { job->set_max_num_batched_tokens(-1); }, "`max_num_batched_tokens` is -1"},
           {[](pb::ConfigureJob* job) { job->set_max_num_seqs(0); }, "`max_num_seqs` is 0"}}) {
    ClusterQuestion question = Question(2);
    question.job.set_prefill_chunk(512);
    change(&question.job);
    EXPECT_THAT(Unmeasured(question).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

// The split is the best there is, by the very costs that the prediction is made of.
TEST(ClusterPlan, NoOtherSplitIsFasterAtItsGroupsAndChunk) {
  std::mt19937 random(5);
  for (int round = 0; round < 6; ++round) {
    ClusterQuestion question = Question(2, "tiny/q8_0");
    question.profile.default_link = LinkFacts{.latency_us = 0, .bandwidth_gbit_s = 1e6};
    for (HostFacts& host : question.profile.hosts) {
      const double factor = 1 + static_cast<double>(random() % 4);
      host.speeds[0].read_gbps /= factor;
      host.speeds[0].int8_gops /= factor * static_cast<double>(1 + random() % 3);
    }
    question.job.set_micro_batches(2);
    question.job.set_decode_groups(2);
    question.job.set_prefill_chunk(512);
    const auto most_busy = [](const ClusterPlan& plan) {
      double most = 0;
      for (int s = 0; s < 2; ++s) {
        most = std::max(most, 127 * 2 * plan.decode.stage_s[s] + 8 * plan.prefill.stage_s[s]);
      }
      return most;
    };
    const double chosen = most_busy(Plan(question));
    for (int64_t first = 1; first <= 2; ++first) {
      question.job.clear_layer_split();
      question.job.add_layer_split(first);
      question.job.add_layer_split(3 - first);
      EXPECT_LE(chosen, most_busy(Plan(question)) * (1 + 1e-9));
    }
  }
}

TEST(ClusterPlan, MoreBandwidthIsNeverSlower) {
  for (const int hosts : {1, 2, 4}) {
    double before = 0;
    for (const double gbps : {5.0, 10.0, 20.0, 40.0, 80.0, 320.0}) {
      ClusterQuestion question = Question(hosts);
      for (HostFacts& host : question.profile.hosts) host.speeds[0].read_gbps = gbps;
      const double now = Plan(question).output_tokens_per_s;
      EXPECT_GE(now, before * (1 - 1e-9)) << gbps;
      before = now;
    }
    before = 0;
    for (const double gbit : {0.01, 0.1, 1.0, 10.0, 100.0}) {
      ClusterQuestion question = Question(hosts);
      question.profile.default_link->bandwidth_gbit_s = gbit;
      const double now = Plan(question).output_tokens_per_s;
      EXPECT_GE(now, before * (1 - 2e-3)) << gbit;  // a group less may be taken within 0.1 %, a larger chunk within 2
      before = now;
    }
  }
}

TEST(ClusterPlan, MoreMemoryIsNeverInfeasibleAndNeverHoldsFewer) {
  bool fitted = false;
  int64_t before = 0;
  for (uint64_t bytes = 100 * kMiB; bytes < 16 * kGiB; bytes = bytes * 5 / 4) {
    ClusterQuestion question = Question(3);
    question.job.set_max_num_seqs(64);
    for (HostFacts& host : question.profile.hosts) host.available_bytes = bytes;
    const absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
    if (!plan.ok()) {
      EXPECT_FALSE(fitted) << bytes << plan.status();
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
      continue;
    }
    fitted = true;
    EXPECT_GE(plan->sequences, before);
    before = plan->sequences;
    for (size_t s = 0; s < plan->memory.size(); ++s) EXPECT_LE(plan->memory[s].total(), bytes);
  }
  EXPECT_EQ(before, 64);
}

TEST(ClusterPlan, ALinkThatIsNotKnownIsNamed) {
  ClusterQuestion question = Question(2);
  question.profile.default_link.reset();
  EXPECT_THAT(RefusalOf(question), HasSubstr("the link from n0 to n1"));
  question = Question(2);
  question.profile.hosts[1].speeds.clear();
  EXPECT_THAT(RefusalOf(question), HasSubstr("speed of host n1"));
}

TEST(ClusterPlan, RequestsThatDoNotFitTheContextAreRefused) {
  ClusterQuestion question = Question(1);
  question.job.set_context(600);
  EXPECT_THAT(RefusalOf(question), AllOf(HasSubstr("640 tokens"), HasSubstr("context is 600")));
}

TEST(ClusterPlan, ARequestThatTheKvCacheDoesNotHoldIsRefused) {
  ClusterQuestion question = Question(1);
  question.job.set_kv_cache_bytes(uint64_t{28} * 4096 * 32 * 4);  // of 28 layers 4 blocks of 32 tokens
  EXPECT_THAT(
      RefusalOf(question, absl::StatusCode::kResourceExhausted),
      AllOf(HasSubstr("room for 128 tokens"), HasSubstr("512 prompt and 128 output"), HasSubstr("kv_cache_bytes")));
  question.load = {.prompt_tokens = 100, .output_tokens = 28};
  EXPECT_EQ(Plan(question).sequences, 1);
}

ProbedModel ProbedModelOf(const ClusterQuestion& question) {
  const FileFingerprint fingerprint = question.model->file->fingerprints().front();
  return {.file_bytes = fingerprint.size_bytes, .header_hash = fingerprint.header_hash};
}

TEST(ClusterPlan, StepsOfAnotherModelAreNotTaken) {
  ClusterQuestion question = Question(1);
  question.profile.hosts[0].steps = {{.rows = 1, .sequences = 1, .threads = 4, .layer_us = 1e6}};
  question.profile.model = ProbedModelOf(question);
  EXPECT_TRUE(Plan(question).measured);
  EXPECT_GT(Plan(question).decode.itl_s, 28);
  question.profile.model->header_hash ^= 1;
  EXPECT_FALSE(Plan(question).measured);
  EXPECT_LT(Plan(question).decode.itl_s, 1);
}

// Steps of this model whose context costs a microsecond a token, and the rest 600 us.
void Measure(ClusterQuestion* question) {
  for (HostFacts& host : question->profile.hosts) {
    host.steps = {{.rows = 8, .sequences = 8, .context = 50, .threads = 4, .layer_us = 1000},
                  {.rows = 8, .sequences = 8, .context = 550, .threads = 4, .layer_us = 5000}};
  }
  question->profile.measured_at = "now";
  question->profile.model = ProbedModelOf(*question);
  question->profile.model->kv_type = "f16";
}

TEST(ClusterPlan, WhatContextCostsGoesWithTheTypeOfKAndV) {
  ClusterQuestion question = Question(1);
  Measure(&question);
  const double f16 = Plan(question).decode.itl_s;
  question.job.set_kv_type(pb::KV_TYPE_Q8_0);
  const double q8_0 = Plan(question).decode.itl_s;
  question.profile.model->kv_type = "q8_0";
  const double measured = Plan(question).decode.itl_s;
  EXPECT_NEAR(measured, f16, 1e-9) << "of the type that was measured the times are those that were";
  const AttentionSpec& attention = question.model->hyper.layers[0].attention;
  const auto bytes = [&](KvType type) { return static_cast<double>(*KvBytesPerTokenLayer(attention, type)); };
  EXPECT_NEAR(f16 - q8_0, 28 * 8 * 576e-6 * (1 - bytes(KvType::kQ8_0) / bytes(KvType::kF16)), 1e-9);
}

TEST(PlanExtrapolation, NothingIsSaidOfTheCaseThatWasMeasured) {
  ClusterQuestion question = Question(2);
  EXPECT_THAT(ExtrapolationsOf(question, Plan(question)), IsEmpty());
  Measure(&question);
  for (HostFacts& host : question.profile.hosts) host.isa = "avx512-vnni";
  EXPECT_THAT(ExtrapolationsOf(question, Plan(question)), IsEmpty());
}

TEST(PlanExtrapolation, SaysWhatIsMadeOfOtherCases) {
  ClusterQuestion question = Question(2);
  Measure(&question);
  const auto lines = [&](const std::function<void(ClusterQuestion*)>& change) {
    ClusterQuestion changed = question;
    change(&changed);
    return ExtrapolationsOf(changed, Plan(changed));
  };
  EXPECT_THAT(lines([](ClusterQuestion* q) { q->profile.model->header_hash ^= 1, q->profile.model->name = "other"; }),
              ElementsAre(HasSubstr("another model, other: they are not used")));
  EXPECT_THAT(lines([](ClusterQuestion* q) { q->job.set_kv_type(pb::KV_TYPE_Q8_0); }),
              ElementsAre(AllOf(HasSubstr("K and V as f16"), HasSubstr("q8_0"))));
  EXPECT_THAT(lines([](ClusterQuestion* q) { q->profile.hosts[1].isa = "avx2"; }),
              ElementsAre(AllOf(HasSubstr("n1: measured with avx2"), HasSubstr("avx512-vnni"))));
  EXPECT_THAT(lines([](ClusterQuestion* q) { q->job.set_threads(2); }),
              ElementsAre(HasSubstr("n0, n1: its rates are of 4 threads, the stages there have 2"),
                          HasSubstr("n0, n1: steps were timed with 4 threads")));
  EXPECT_THAT(lines([](ClusterQuestion* q) {
                q->stage_hosts = {0, 0, 1};
              }),
              ElementsAre(HasSubstr("n0: measured with 1 at once at most, 2 stages share it"),
                          HasSubstr("n0: steps were timed with 4 threads")));
  EXPECT_THAT(lines([](ClusterQuestion* q) { q->load.prompt_tokens = 20000; }),
              ElementsAre(HasSubstr("at most 550 tokens of context, here are 20064")));
}

std::map<PlanChange, double> ByChange(const ClusterQuestion& question) {
  std::map<PlanChange, double> rates;
  for (const PlanAlternative& alternative : AlternativesTo(question, Plan(question))) {
    rates[alternative.change] = alternative.output_tokens_per_s;
  }
  return rates;
}

struct PlanAdviceTest : ::testing::Test {
  ClusterQuestion question = Question(2);
};

TEST_F(PlanAdviceTest, OverASlowLinkAFasterOneHelpsMost) {
  question.profile.default_link->bandwidth_gbit_s = 0.01;
  const ClusterPlan plan = Plan(question);
  const std::vector<PlanAlternative> alternatives = AlternativesTo(question, plan);
  EXPECT_EQ(alternatives.front().change, PlanChange::kFasterLinks);
  EXPECT_GT(alternatives.front().output_tokens_per_s, 2 * plan.output_tokens_per_s);
}

TEST_F(PlanAdviceTest, OneStageOverAHostIsComparedWithSeveralOnIt) {
  ClusterQuestion question = Question(1);
  question.stage_hosts = {0, 0};
  const ClusterPlan plan = Plan(question);
  const auto rates = ByChange(question);
  ASSERT_TRUE(rates.contains(PlanChange::kOneStageAHost));
  EXPECT_GE(rates.at(PlanChange::kOneStageAHost), plan.output_tokens_per_s);
  EXPECT_FALSE(rates.contains(PlanChange::kFasterLinks)) << "there is one host";
  EXPECT_FALSE(rates.contains(PlanChange::kBestChunk)) << "none was asked for";
  EXPECT_TRUE(rates.contains(PlanChange::kAnotherHost));
}

TEST_F(PlanAdviceTest, AnotherHostLeavesTheLinksOfTheOthersAsTheyAre) {
  question.job.set_max_num_seqs(1);
  // A host without stages has the slowest link, by which the new one is reached: a third of a second for a row.
  question.profile.hosts.push_back(AssumedHost("far", 4, 16 * kGiB, InstructionSet::kAvx512Vnni));
  question.profile.links.push_back({.from = 0, .to = 2, .latency_us = 0, .bandwidth_gbit_s = 1e-4});
  const ClusterPlan plan = Plan(question);
  for (const PlanAlternative& alternative : AlternativesTo(question, plan)) {
    if (alternative.change != PlanChange::kAnotherHost) continue;
    EXPECT_GT(alternative.itl_s, 0.33);
    EXPECT_LT(alternative.itl_s, 0.33 + 2 * plan.decode.itl_s) << "one hop over such a link, not two";
    return;
  }
  ADD_FAILURE() << "it was not tried";
}

TEST_F(PlanAdviceTest, ASplitByHandIsNoMeritOfOtherChanges) {
  question.job.add_layer_split(1);
  question.job.add_layer_split(27);
  const ClusterPlan plan = Plan(question);
  EXPECT_EQ(AlternativesTo(question, plan).front().change, PlanChange::kBestSplit);
  const auto rates = ByChange(question);
  ASSERT_TRUE(rates.contains(PlanChange::kBestSplit));
  EXPECT_GT(rates.at(PlanChange::kBestSplit), 1.05 * plan.output_tokens_per_s);
  EXPECT_LT(rates.at(PlanChange::kFasterLinks), 1.01 * plan.output_tokens_per_s);
  question.job.clear_layer_split();
  EXPECT_FALSE(ByChange(question).contains(PlanChange::kBestSplit));
}

TEST_F(PlanAdviceTest, MemoryThatKeepsLayersFromTheFasterHostIsNamed) {
  question.job.set_max_num_seqs(1);
  question.load = {.prompt_tokens = 32, .output_tokens = 16};
  question.profile.hosts[0].available_bytes = 400 * kMiB;
  Slow(8, &question.profile.hosts[1]);
  const ClusterPlan plan = Plan(question);
  ASSERT_EQ(plan.sequences, 1);
  const auto rates = ByChange(question);
  ASSERT_TRUE(rates.contains(PlanChange::kMoreMemory));
  EXPECT_GT(rates.at(PlanChange::kMoreMemory), 1.2 * plan.output_tokens_per_s);
}

TEST_F(PlanAdviceTest, MemoryIsNamedOnlyWhereItKeepsSequencesOut) {
  ClusterQuestion question = Question(1);
  EXPECT_FALSE(ByChange(question).contains(PlanChange::kMoreMemory));
  question.job.set_max_num_seqs(256);
  question.profile.hosts[0].available_bytes = 3 * kGiB;
  const ClusterPlan plan = Plan(question);
  EXPECT_LT(plan.sequences, 256);
  const auto rates = ByChange(question);
  ASSERT_TRUE(rates.contains(PlanChange::kMoreMemory));
  EXPECT_GT(rates.at(PlanChange::kMoreMemory), plan.output_tokens_per_s);
}

// --- models whose rows read only the experts that they choose --------------------------------------------------------

// On four large hosts that compute far faster than they read.
ClusterQuestion ReadingQuestion(const std::string& model, int32_t sequences) {
  ClusterQuestion question = Question(4, model);
  for (HostFacts& host : question.profile.hosts) {
    host.available_bytes = 512 * kGiB;
    for (HostSpeed& speed : host.speeds) speed.int8_gops *= 100, speed.f32_gops *= 100;
  }
  question.job.set_max_num_seqs(sequences);
  question.load = {.prompt_tokens = 64, .output_tokens = 64};
  return question;
}

// What groups gain over one, 16 sequences.
double GainOfGroups(const std::string& model) {
  ClusterQuestion question = ReadingQuestion(model, 16);
  const double free_s = Plan(question).decode.itl_s;
  question.job.set_decode_groups(1);
  return Plan(question).decode.itl_s / free_s;
}

TEST(ClusterPlan, FewRowsOfExpertsAreWorthAGroupOfTheirOwn) {
  EXPECT_LT(GainOfGroups("qwen3-32b/q4_k_m"), 1.2) << "every group reads all weights";
  EXPECT_GT(GainOfGroups("qwen3-30b-a3b/q4_k_m"), 1.9);
  EXPECT_GT(GainOfGroups("kimi-k2:layers=16/q4_k_m"), 2.2);
}

TEST(ClusterPlan, StagesWithDenseLeadsGetMoreLayers) {
  // 16 rows of a group read far more experts than a dense layer has weights.
  const ClusterPlan plan = Plan(ReadingQuestion("deepseek-v3/q4_k_m", 64));
  ASSERT_EQ(plan.stages(), 4);
  EXPECT_GE(plan.job.stages[0].last_layer() - plan.job.stages[0].first_layer(), 17);
  EXPECT_EQ(plan.job.stages[3].last_layer(), 61);
}

TEST(ClusterPlan, ModelsOfHundredsOfGigabytesArePlannedByTheirShape) {
  for (const char* model :
       {"qwen3-coder-480b-a35b/q4_k_m", "glm-4.5/q4_k_m", "gpt-oss-120b/mxfp4", "minimax-m2/q8_0"}) {
    ClusterQuestion question = Question(4, model);
    for (HostFacts& host : question.profile.hosts) host.available_bytes = 256 * kGiB;
    const ClusterPlan plan = Plan(question);
    ASSERT_EQ(plan.stages(), 4) << model;
    uint64_t weights = 0;
    for (const StageMemory& memory : plan.memory) weights += memory.weights;
    EXPECT_GT(weights, 55 * kGiB) << model;
    EXPECT_GT(plan.decode.tokens_per_s, 0) << model;
  }
}

}  // namespace
}  // namespace stagecoach
