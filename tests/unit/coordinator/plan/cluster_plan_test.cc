#include "coordinator/plan/cluster_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coordinator/plan/assumed_facts.h"
#include "coordinator/plan/plan_advice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// One stage on each of so many equal hosts of 4 cores.
ClusterQuestion Question(int hosts, const std::string& model = "qwen3-0.6b/q8_0") {
  ClusterQuestion question;
  auto opened = OpenModel("dummy://" + model);
  EXPECT_TRUE(opened.ok()) << opened.status();
  question.model = *opened;
  for (int i = 0; i < hosts; ++i) {
    question.profile.hosts.push_back(AssumedHost("n" + std::to_string(i), 4, 16 * kGiB, InstructionSet::kAvx512Vnni));
    question.stage_hosts.push_back(i);
  }
  question.profile.default_link = AssumedLink();
  question.job.set_max_num_seqs(8);
  question.job.set_max_num_batched_tokens(512);
  question.job.set_block_tokens(32);
  question.job.set_policy(pb::POLICY_INTERLEAVED);
  question.job.set_kv_type(pb::KV_TYPE_F16);
  question.job.set_wire_type(pb::WIRE_TYPE_F32);
  question.job.set_cpu_bind(pb::CPU_BIND_AUTO);
  return question;
}

ClusterPlan Plan(const ClusterQuestion& question) {
  absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ClusterPlan{};
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

TEST(ClusterPlan, TheSlowHostGetsFewerLayers) {
  ClusterQuestion question = Question(2);
  const auto first = [&] { return Plan(question).job.stages[0].last_layer(); };
  const int64_t even = first();
  for (double* speed : {&question.profile.hosts[0].speeds[0].read_gbps, &question.profile.hosts[0].speeds[0].int8_gops,
                        &question.profile.hosts[0].speeds[0].f32_gops}) {
    *speed /= 3;
  }
  EXPECT_LT(first(), even);
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
    const auto job =
        PlanJobUnmeasured(question.job, HellosOf(question.profile, question.stage_hosts), question.model, JobEpoch{});
    ASSERT_TRUE(job.ok()) << job.status();
    for (size_t s = 0; s < cores.size(); ++s) {
      EXPECT_EQ(job->stages[s].first_layer(), plan.job.stages[s].first_layer()) << cores.size();
      EXPECT_EQ(job->stages[s].last_layer(), plan.job.stages[s].last_layer()) << cores.size();
    }
  }
}

// Prompts are bound by arithmetic and do without the head; decoding pays for it in every step.
TEST(ClusterPlan, FasterArithmeticLeavesTheStageWithTheHeadFewerLayers) {
  const ClusterQuestion question = Question(2);
  std::vector<pb::Hello> hellos = HellosOf(question.profile, question.stage_hosts);
  const auto first = [&](std::vector<pb::InstructionSet> isas, pb::InstructionSet wanted) {
    for (pb::Hello& hello : hellos) hello.mutable_isas()->Assign(isas.begin(), isas.end());
    pb::ConfigureJob job = question.job;
    job.set_prefill_chunk(512);
    job.set_isa(wanted);
    const auto plan = PlanJobUnmeasured(job, hellos, question.model, JobEpoch{});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? plan->stages[0].last_layer() : 0;
  };
  const auto any = pb::INSTRUCTION_SET_UNSPECIFIED;
  const auto avx2 = pb::INSTRUCTION_SET_AVX2, vnni = pb::INSTRUCTION_SET_AVX512_VNNI;
  EXPECT_LT(first({avx2}, any), first({avx2, vnni}, any));
  EXPECT_EQ(first({avx2}, any), first({avx2, vnni}, avx2)) << "what a job is told to compute with counts";
}

TEST(ClusterPlan, AShortContextIsNoReasonToRefuseAJob) {
  ClusterQuestion question = Question(2);
  question.job.set_prefill_chunk(512);
  for (const int64_t context : {1, 2, 100, 4096}) {
    question.job.set_context(context);
    const auto job =
        PlanJobUnmeasured(question.job, HellosOf(question.profile, question.stage_hosts), question.model, JobEpoch{});
    EXPECT_TRUE(job.ok()) << context << ": " << job.status();
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
    question.job.set_prefill_chunk(512);
    const auto most_busy = [](const ClusterPlan& plan) {
      double most = 0;
      for (int s = 0; s < 2; ++s) {
        most = std::max(most, 128 * 2 * plan.decode.stage_s[s] + 8 * plan.prefill.stage_s[s]);
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
  const absl::Status status = PlanCluster(question).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the link from n0 to n1"));
  question = Question(2);
  question.profile.hosts[1].speeds.clear();
  EXPECT_THAT(std::string(PlanCluster(question).status().message()), HasSubstr("speed of host n1"));
}

TEST(ClusterPlan, RequestsThatDoNotFitTheContextAreRefused) {
  ClusterQuestion question = Question(1);
  question.job.set_context(600);
  EXPECT_THAT(std::string(PlanCluster(question).status().message()),
              AllOf(HasSubstr("640 tokens"), HasSubstr("context is 600")));
}

TEST(ClusterPlan, StepsOfAnotherModelAreNotTaken) {
  ClusterQuestion question = Question(1);
  question.profile.hosts[0].steps = {{.rows = 1, .sequences = 1, .threads = 4, .layer_us = 1e6}};
  const FileFingerprint fingerprint = question.model->file->fingerprints().front();
  question.profile.model = ProbedModel{.file_bytes = fingerprint.size_bytes, .header_hash = fingerprint.header_hash};
  EXPECT_TRUE(Plan(question).measured);
  EXPECT_GT(Plan(question).decode.itl_s, 28);
  question.profile.model->header_hash ^= 1;
  EXPECT_FALSE(Plan(question).measured);
  EXPECT_LT(Plan(question).decode.itl_s, 1);
}

std::map<PlanChange, double> ByChange(const PlanAdvice& advice) {
  std::map<PlanChange, double> rates;
  for (const PlanAlternative& alternative : advice.alternatives) {
    rates[alternative.change] = alternative.output_tokens_per_s;
  }
  return rates;
}

TEST(PlanAdvice, AModelThatFitsOneHostRunsFasterAsIndependentJobs) {
  const ClusterQuestion question = Question(2);
  const ClusterPlan plan = Plan(question);
  const PlanAdvice advice = AdviceFor(question, plan);
  ASSERT_TRUE(advice.independent.has_value());
  EXPECT_EQ(advice.independent->hosts, (std::vector<int>{0, 1}));
  EXPECT_EQ(advice.independent->sequences, 4);
  EXPECT_GT(advice.independent->output_tokens_per_s, plan.output_tokens_per_s);
}

TEST(PlanAdvice, AModelThatFitsNoHostHasNoIndependentJobs) {
  ClusterQuestion question = Question(2);
  for (HostFacts& host : question.profile.hosts) host.available_bytes = 600 * kMiB;
  EXPECT_FALSE(AdviceFor(question, Plan(question)).independent.has_value());
}

TEST(PlanAdvice, OverASlowLinkAFasterOneHelpsMost) {
  ClusterQuestion question = Question(2);
  question.profile.default_link->bandwidth_gbit_s = 0.01;
  const ClusterPlan plan = Plan(question);
  const PlanAdvice advice = AdviceFor(question, plan);
  EXPECT_EQ(advice.alternatives.front().change, PlanChange::kFasterLinks);
  EXPECT_GT(advice.alternatives.front().output_tokens_per_s, 2 * plan.output_tokens_per_s);
}

TEST(PlanAdvice, OneStageOverAHostIsComparedWithSeveralOnIt) {
  ClusterQuestion question = Question(1);
  question.stage_hosts = {0, 0};
  const ClusterPlan plan = Plan(question);
  const auto rates = ByChange(AdviceFor(question, plan));
  ASSERT_TRUE(rates.contains(PlanChange::kOneStageAHost));
  EXPECT_GE(rates.at(PlanChange::kOneStageAHost), plan.output_tokens_per_s);
  EXPECT_FALSE(rates.contains(PlanChange::kFasterLinks)) << "there is one host";
  EXPECT_FALSE(rates.contains(PlanChange::kBestChunk)) << "none was asked for";
  EXPECT_TRUE(rates.contains(PlanChange::kAnotherHost));
}

TEST(PlanAdvice, MemoryIsNamedOnlyWhereItKeepsSequencesOut) {
  ClusterQuestion question = Question(1);
  EXPECT_FALSE(ByChange(AdviceFor(question, Plan(question))).contains(PlanChange::kMoreMemory));
  question.job.set_max_num_seqs(256);
  question.profile.hosts[0].available_bytes = 3 * kGiB;
  const ClusterPlan plan = Plan(question);
  EXPECT_LT(plan.sequences, 256);
  const auto rates = ByChange(AdviceFor(question, plan));
  ASSERT_TRUE(rates.contains(PlanChange::kMoreMemory));
  EXPECT_GT(rates.at(PlanChange::kMoreMemory), plan.output_tokens_per_s);
}

}  // namespace
}  // namespace stagecoach
