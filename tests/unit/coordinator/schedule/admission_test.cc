// Whom the scheduler admits, preempts and charges; how much work it repeats, and how many sequences it looks at
// (tests/bench/scheduler_bench.cc has the time).

#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

// Every sequence: `prompt` tokens and `new_tokens` more. The share of the rows computed that had been computed before.
double RecomputedShare(const SchedulerOptions& options, int sequences, int64_t prompt, int64_t new_tokens) {
  Machine machine(options, /*checked=*/false);
  for (int id = 1; id <= sequences; ++id) machine.Add(Spec(static_cast<SequenceId>(id), prompt, new_tokens));
  while (machine.scheduler.HasUnfinished() && !::testing::Test::HasFailure()) {
    while (machine.TrySubmit()) continue;
    machine.Confirm();
  }
  EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok());
  const SchedulerCounters& counters = machine.scheduler.counters();
  const double computed = static_cast<double>(counters.prefill_rows + counters.decode_rows);
  return 1 - static_cast<double>(sequences * (prompt + new_tokens - 1)) / computed;
}

TEST(Admission, RecomputesLittleWhenManyMoreSequencesWaitThanThePoolHolds) {
  // A sequence needs 7 blocks at first and 25 in the end. Admitted into whatever is free, 40 % of all rows were
  // computed more than once.
  SchedulerOptions options{{.max_num_seqs = 96, .policy = Policy::kInterleaved, .prefix_caching = false},
                           {.group_blocks = {204}, .context = 800, .max_open_tokens = 800}};
  for (const auto& [policy, name] : kPolicies) {
    options.policy = policy;
    EXPECT_LT(RecomputedShare(options, 96, 200, 600), 0.185) << name;
  }
  options.policy = Policy::kInterleaved;
  options.micro_batches = 4;
  EXPECT_LT(RecomputedShare(options, 96, 200, 600), 0.21) << "four micro-batches in flight";
}

// How many of two sequences run together when the second one comes as the first one decodes its first row.
size_t RunningTogether(int32_t blocks, const SequenceSpec& first, const SequenceSpec& second) {
  const SchedulerOptions options{{.policy = Policy::kInterleaved, .block_tokens = 4, .prefix_caching = false},
                                 {.group_blocks = {blocks}, .context = 32, .max_open_tokens = 64}};
  Machine machine(options);
  machine.Add(first);
  machine.Step();
  machine.Add(second);
  return machine.Submit().slices.size();
}

TEST(Admission, KeepsAsManyBlocksAsThoseThatDecodeCanStillNeed) {
  // The first one has its second block, and may need four more.
  EXPECT_EQ(RunningTogether(7, Spec(1, 6, 20), Spec(2, 6, 20)), 1u);
  EXPECT_EQ(RunningTogether(8, Spec(1, 6, 20), Spec(2, 6, 20)), 2u);
  EXPECT_EQ(RunningTogether(5, Spec(1, 6, 8), Spec(2, 6, 8)), 1u);
  EXPECT_EQ(RunningTogether(5, Spec(1, 6, 7), Spec(2, 6, 8)), 2u) << "one more block, for rows 8 to 11";
}

SequenceSpec WithGrammar(SequenceSpec spec, int64_t bytes, char content) {
  spec.grammar.assign(static_cast<size_t>(bytes), content);
  return spec;
}

std::vector<SequenceId> Opened(const MicroBatch& batch) {
  std::vector<SequenceId> ids;
  for (const OpenSequence& open : batch.open) ids.push_back(open.sequence);
  return ids;
}

TEST(Admission, WaitsForTheNextMicroBatchWhereThisOneDefinesAsMuchAsItMay) {
  constexpr int64_t kHalf = kMaxDefinitionBytes / 2;
  Machine machine(SmallOptions());
  machine.Add(WithGrammar(Spec(1, 2, 4), kHalf, 'a'));
  machine.Add(WithGrammar(Spec(2, 2, 4), kHalf, 'a'));  // the same: nothing more to define
  machine.Add(WithGrammar(Spec(3, 2, 4), kHalf, 'b'));
  machine.Add(WithGrammar(Spec(4, 2, 4), 1, 'c'));
  MicroBatch batch = machine.Submit();
  EXPECT_THAT(Opened(batch), ElementsAre(1, 2, 3));
  EXPECT_EQ(batch.define_grammars.size(), 2u);
  EXPECT_EQ(batch.open[0].grammar, batch.open[1].grammar);
  EXPECT_NE(batch.open[0].grammar, batch.open[2].grammar);
  EXPECT_THAT(Opened(machine.Submit()), ElementsAre(4));
  machine.Confirm();
  machine.Confirm();
  machine.RunToTheEnd();
  EXPECT_THAT(machine.scheduler.Add(WithGrammar(Spec(5, 2, 4), kMaxDefinitionBytes + 1, 'd')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has a grammar of 1048577 bytes, expected at most 1048576")));
}

TEST(Admission, WhoLacksRoomForItsGrammarStandsAsideUntilAnotherOneEndsAndNobodyWithAGrammarPasses) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 12;
  options.group_blocks = {64};
  options.micro_batches = 1;
  Machine machine(options);
  static_assert(kMaxFollowedBytes == 2 * kMaxDefinitionBytes);
  for (const SequenceId id : {1, 2}) {
    machine.Add(WithGrammar(Spec(id, 2, 4 * static_cast<int64_t>(id)), kMaxDefinitionBytes, static_cast<char>(id)));
  }
  machine.Add(WithGrammar(Spec(11, 2, 20), kMaxDefinitionBytes, 'x'));  // lacks room
  machine.Add(WithGrammar(Spec(12, 2, 20), 5, 'y'));                    // brings a grammar, too
  machine.Add(WithGrammar(Spec(13, 2, 2), kMaxDefinitionBytes, 1));     // the first one's
  machine.Add(Spec(14, 2, 2));
  std::vector<SequenceId> opened;
  const auto step = [&] {
    for (const SequenceId id : Opened(machine.Submit())) opened.push_back(id);
    machine.Confirm();
  };
  for (int steps = 0; steps < 3; ++steps) step();
  EXPECT_THAT(opened, ElementsAre(1, 2, 13, 14));
  EXPECT_EQ(machine.scheduler.waiting(), 2);
  while (machine.scheduler.Find(1) != nullptr) step();
  step();
  EXPECT_THAT(opened, ElementsAre(1, 2, 13, 14, 11)) << "in the order of their coming";
  machine.RunToTheEnd();
}

TEST(Admission, WhoWaitsForRoomForItsGrammarCanBeCancelled) {
  SchedulerOptions options = SmallOptions();
  options.micro_batches = 1;
  Machine machine(options);
  for (const SequenceId id : {1, 2, 3}) {
    machine.Add(WithGrammar(Spec(id, 2, 20), kMaxDefinitionBytes, static_cast<char>(id)));
  }
  machine.Step();
  machine.Step();
  machine.Step();
  EXPECT_EQ(machine.scheduler.running(), 2);
  ASSERT_TRUE(machine.scheduler.Cancel(3).ok());
  EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok());
  EXPECT_EQ(machine.scheduler.waiting(), 0);
  machine.RunToTheEnd();
}

TEST(Admission, DefinesAGrammarOnceForThoseThatArePreemptedAndForThoseThatComeLater) {
  Machine machine(SmallOptions());
  machine.Add(WithGrammar(Spec(1, 2, 8), 10, 'a'));
  EXPECT_EQ(machine.Submit().define_grammars.size(), 1u);
  machine.Confirm();
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  const MicroBatch again = machine.Submit();
  EXPECT_THAT(again.free, ElementsAre(1));
  EXPECT_THAT(Opened(again), ElementsAre(1));
  EXPECT_EQ(again.open[0].grammar, 1u);
  EXPECT_TRUE(again.define_grammars.empty() && again.drop_grammars.empty());
  machine.Confirm();
  machine.RunToTheEnd();
  machine.Add(WithGrammar(Spec(2, 2, 1), 10, 'a'));
  const MicroBatch later = machine.Submit();
  EXPECT_EQ(later.open[0].grammar, 1u);
  EXPECT_TRUE(later.define_grammars.empty());
}

SequenceSpec OfClass(SequenceSpec spec, PriorityClass priority_class) {
  spec.priority_class = priority_class;
  return spec;
}

TEST(SchedulerClasses, OfALowerClassOneIsAdmittedLaterAndPreemptedFirstWhoeverCameBefore) {
  Machine machine(TightOptions());
  machine.Add(OfClass(Spec(1, 7, 8), PriorityClass::kBatch));
  machine.Add(Spec(2, 7, 8));
  const MicroBatch first = machine.Submit();
  ASSERT_EQ(first.open.size(), 2u);
  EXPECT_EQ(first.open[0].sequence, 2u);
  EXPECT_THAT(machine.scheduler.RunningByClass(), ElementsAre(0, 1, 1));
  machine.Confirm();
  machine.Step();
  machine.Add(OfClass(Spec(3, 7, 2), PriorityClass::kBatch));
  machine.Add(OfClass(Spec(4, 7, 2), PriorityClass::kInteractive));
  EXPECT_THAT(machine.Submit().free, ElementsAre(1u));
  machine.Confirm();
  EXPECT_THAT(machine.RunToTheEnd(), ElementsAre(4u, 1u, 3u));
}

TEST(SchedulerClasses, WhatBeganInAJobThatIsGoneGoesBeforeWhatWaits) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 1;
  Machine machine(options);
  for (SequenceId id = 1; id <= 4; ++id) {
    SequenceSpec spec = Spec(id, 6, 8);
    if (id >= 3) spec.output = ComputeAlone(spec, options.context).output, spec.output.resize(2);
    machine.Add(std::move(spec));
  }
  EXPECT_THAT(machine.RunToTheEnd(), ElementsAre(3u, 4u, 1u, 2u));
}

TEST(SchedulerClasses, ATenantIsChargedForWhatIsComputedForItOnce) {
  SchedulerOptions options = SmallOptions();
  options.prefix_caching = true;
  Machine machine(options);
  SequenceSpec spec = Spec(1, 8, 2);
  spec.tenant = "a";
  machine.Add(spec);
  machine.Step();
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  machine.RunToTheEnd();
  EXPECT_EQ(machine.scheduler.queue().CounterOf("a"), 8 + 2 * 2);
  spec.id = 2;
  machine.Add(spec);
  machine.RunToTheEnd();
  EXPECT_EQ(machine.scheduler.queue().CounterOf("a"), 12 + 4 + 2 * 2) << "a block of the prompt was found";
}

constexpr int kSequences = 1024;

SchedulerOptions Options() {
  return {{.max_num_seqs = kSequences,
           .policy = Policy::kInterleaved,
           .max_num_batched_tokens = 2 * kSequences,
           .block_tokens = 16,
           .prefix_caching = false},
          {.group_blocks = {4 * kSequences}, .context = 64, .max_open_tokens = 4 * kSequences}};
}

class CountingMachine : public Machine {
 public:
  explicit CountingMachine(const SchedulerOptions& options) : Machine(options, /*checked=*/false) {}

  void Add(SequenceId id) { Machine::Add({.id = id, .prompt = {1, 2}, .max_new_tokens = 60}); }

  // The visits of a micro-batch on its way through the scheduler, and its slices.
  std::pair<uint64_t, size_t> Step() {
    const uint64_t before = scheduler.counters().visits;
    const size_t slices = Submit().slices.size();
    Confirm();
    return {scheduler.counters().visits - before, slices};
  }
};

TEST(SchedulerCost, AMicroBatchLooksTwiceAtEverySequenceThatItHolds) {
  CountingMachine machine(Options());
  for (SequenceId id = 0; id < kSequences; ++id) machine.Add(id);
  for (int step = 0; step < 4; ++step) {  // the first one admits them all
    const auto [visits, slices] = machine.Step();
    EXPECT_EQ(slices, kSequences);
    EXPECT_EQ(visits, 2 * slices) << "step " << step;
  }
}

TEST(SchedulerCost, AMicroBatchLooksAtNobodyElse) {
  SchedulerOptions options = Options();
  options.micro_batches = 256;
  CountingMachine machine(options);
  for (SequenceId id = 0; id < kSequences; ++id) machine.Add(id);
  machine.Step();
  const auto [visits, slices] = machine.Step();  // of 1,024 decoding ones each of 256 micro-batches takes 4
  EXPECT_EQ(slices, 4u);
  EXPECT_EQ(visits, 8u);
}

TEST(SchedulerCost, AdmissionOfOneDoesNotDependOnHowManyRunOrWait) {
  SchedulerOptions options = Options();
  options.max_num_seqs = kSequences / 2 + 1;
  options.micro_batches = 256;
  CountingMachine machine(options);
  for (SequenceId id = 0; id < kSequences / 2; ++id) machine.Add(id);
  machine.Step();
  for (SequenceId id = kSequences / 2; id < kSequences; ++id) machine.Add(id);
  const auto [visits, slices] = machine.Step();
  EXPECT_EQ(slices, 2 + 1u) << "two decode rows and a prompt";
  EXPECT_EQ(visits, 2 * slices);
}

TEST(SchedulerCost, NoPolicyLooksAtThoseThatWait) {
  for (const auto& [policy, name] : kPolicies) {
    SchedulerOptions options = Options();
    options.max_num_seqs = 8;
    options.policy = policy;
    CountingMachine machine(options);
    for (SequenceId id = 0; id < kSequences; ++id) machine.Add(id);
    for (int step = 0; step < 20; ++step) {
      const auto [visits, slices] = machine.Step();
      EXPECT_EQ(visits, 2 * slices) << name << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace stagecoach
