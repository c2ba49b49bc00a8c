// What the scheduler makes of the prefix cache, sentence by sentence. Random histories with it: see
// scheduler_histories_test.cc; which blocks are kept: block_manager_test.cc.

#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

SchedulerOptions ReuseOptions() {
  return {{.max_num_seqs = 4,
           .policy = Policy::kInterleaved,
           .max_num_batched_tokens = 32,
           .prefill_chunk = 16,
           .block_tokens = 4,
           .prefix_caching = true},
          {.group_blocks = {16, 12}, .context = 40, .micro_batches = 2, .max_open_tokens = 160}};
}

class ReuseMachine : public Machine {
 public:
  using Machine::Machine;

  // Until all is done: the tokens of sequence `id`, and its last event.
  std::vector<TokenId> Finish(SequenceId id, SequenceEvent* last = nullptr) {
    std::vector<TokenId> tokens;
    while (scheduler.HasUnfinished()) {
      if (results.empty()) Submit();
      for (const SequenceEvent& event : Confirm()) {
        if (event.sequence != id) continue;
        for (const SampledToken& token : event.tokens) tokens.push_back(token.token);
        if (event.finished && last != nullptr) *last = event;
      }
    }
    return tokens;
  }

  // From its beginning to its end, alone: the rows that the cache had.
  int64_t CachedOf(const SequenceSpec& spec) {
    SequenceEvent last;
    EXPECT_TRUE(scheduler.Add(spec).ok());
    EXPECT_EQ(Finish(spec.id, &last), ComputeAlone(spec, scheduler.options().context).output);
    return last.cached_tokens;
  }
};

struct PrefixReuse : ::testing::Test {
  ReuseMachine machine{ReuseOptions()};
};

TEST_F(PrefixReuse, APromptThatBeginsLikeAnEarlierOneBeginsBehindItsFullBlocks) {
  EXPECT_EQ(machine.CachedOf(LikeOthers(1, 10, 3, 2)), 0);
  const SequenceSpec spec = LikeOthers(2, 10, 5, 3);
  machine.Add(spec);
  const MicroBatch batch = machine.Submit();
  ASSERT_THAT(batch.open, SizeIs(1));
  EXPECT_EQ(batch.open[0].shared_rows, 8);
  EXPECT_THAT(batch.open[0].shared_blocks, ElementsAre(SizeIs(2), SizeIs(2)));
  EXPECT_EQ(batch.open[0].prompt, spec.prompt) << "the stages have all tokens, for the sampler";
  EXPECT_EQ(batch.slices[0].start, 8);
  EXPECT_EQ(batch.slices[0].count, 7);
  EXPECT_THAT(batch.slices[0].new_blocks, ElementsAre(SizeIs(2), SizeIs(2)));
  SequenceEvent last;
  EXPECT_EQ(machine.Finish(2, &last), ComputeAlone(spec, 40).output);
  EXPECT_EQ(last.cached_tokens, 8);
  const SchedulerCounters& counters = machine.scheduler.counters();
  EXPECT_EQ(counters.prefix_queries, 13 + 15);
  EXPECT_EQ(counters.prefix_hits, 8);
  EXPECT_EQ(counters.prefill_rows, 13u + 7u);
}

TEST_F(PrefixReuse, OffNothingIsShared) {
  SchedulerOptions options = ReuseOptions();
  options.prefix_caching = false;
  ReuseMachine machine(options);
  for (SequenceId id = 1; id <= 2; ++id) EXPECT_EQ(machine.CachedOf(LikeOthers(id, 12, 0, 4)), 0);
  EXPECT_EQ(machine.scheduler.blocks().evictable(), 0);
  EXPECT_EQ(machine.scheduler.counters().prefix_queries, 0);
}

TEST_F(PrefixReuse, OneRowIsAlwaysComputed) {
  EXPECT_EQ(machine.CachedOf(LikeOthers(1, 12, 0, 1)), 0);
  EXPECT_EQ(machine.CachedOf(LikeOthers(2, 12, 0, 1)), 8) << "three full blocks, of which the last has the last row";
  EXPECT_EQ(machine.CachedOf(LikeOthers(3, 12, 1, 1)), 12);
}

TEST_F(PrefixReuse, WhatWasProducedIsSharedLikeAPrompt) {
  const SequenceSpec first = LikeOthers(1, 6, 0, 9);
  EXPECT_EQ(machine.CachedOf(first), 0);
  SequenceSpec second{.id = 2, .prompt = first.prompt, .max_new_tokens = 2};
  const std::vector<TokenId> output = ComputeAlone(first, 40).output;
  second.prompt.insert(second.prompt.end(), output.begin(), output.end());
  second.prompt.push_back(5);
  EXPECT_EQ(machine.CachedOf(second), 12) << "15 tokens, of which the last was never computed";
}

TEST_F(PrefixReuse, AnotherSaltSharesNothing) {
  EXPECT_EQ(machine.CachedOf(LikeOthers(1, 12, 1, 1)), 0);
  SequenceSpec salted = LikeOthers(2, 12, 1, 1);
  salted.salt = "a tenant";
  EXPECT_EQ(machine.CachedOf(salted), 0);
  salted.id = 3;
  EXPECT_EQ(machine.CachedOf(salted), 12);
}

TEST_F(PrefixReuse, ABlockIsKnownFromTheNextMicroBatchOnWithoutWaitingForItsResult) {
  machine.Add(LikeOthers(1, 8, 1, 2));
  machine.Add(LikeOthers(2, 8, 9, 2));
  const MicroBatch first = machine.Submit();
  ASSERT_THAT(first.open, SizeIs(2));
  EXPECT_EQ(first.open[1].shared_rows, 0);
  machine.Add(LikeOthers(3, 8, 5, 2));
  EXPECT_EQ(machine.Submit().open.at(0).shared_rows, 8);
  machine.Finish(3);
}

TEST_F(PrefixReuse, RowsThatAreToBeScoredAreComputed) {
  EXPECT_EQ(machine.CachedOf(LikeOthers(1, 20, 1, 1)), 0);
  for (const auto& [score_from, cached] : {std::pair(0, 0), std::pair(8, 4), std::pair(9, 8), std::pair(21, 20)}) {
    SequenceSpec spec = LikeOthers(10 + score_from, 20, 1, 1);
    spec.score_from = score_from;
    machine.Add(spec);
    EXPECT_EQ(machine.Submit().open.at(0).shared_rows, cached) << score_from;
    std::map<int64_t, float> scores;
    while (machine.scheduler.HasUnfinished()) {
      if (machine.results.empty()) machine.Submit();
      for (const SequenceEvent& event : machine.Confirm()) {
        for (const TargetLogprobs& more : event.scores) {
          for (size_t i = 0; i < more.logprobs.size(); ++i)
            scores[more.start + static_cast<int64_t>(i)] = more.logprobs[i];
        }
      }
    }
    EXPECT_EQ(scores, ComputeAlone(spec, 40).scores) << score_from;
  }
}

TEST_F(PrefixReuse, APreemptedSequenceGoesOnWhereItWasAndItsFirstAdmissionIsReported) {
  const SequenceSpec spec = LikeOthers(1, 9, 0, 8);
  machine.Add(spec);
  std::vector<TokenId> tokens;
  for (int step = 0; step < 5; ++step) {
    machine.Submit();
    for (const SequenceEvent& event : machine.Confirm()) tokens.push_back(event.tokens.at(0).token);
  }
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  EXPECT_EQ(machine.scheduler.blocks().used(0), 0);
  const MicroBatch again = machine.Submit();
  EXPECT_EQ(again.open.at(0).shared_rows, 12) << "9 + 4 rows were computed, three full blocks";
  EXPECT_EQ(again.slices[0].count, 14 - 12);
  SequenceEvent last;
  for (const TokenId token : machine.Finish(1, &last)) tokens.push_back(token);
  EXPECT_EQ(tokens, ComputeAlone(spec, 40).output);
  EXPECT_EQ(last.cached_tokens, 0);
}

TEST_F(PrefixReuse, ACancelledSequenceLeavesItsBlocksToTheOneThatIsSentAgain) {
  machine.Add(LikeOthers(1, 30, 0, 4));
  machine.Submit();  // 16 of its rows
  ASSERT_TRUE(machine.scheduler.Cancel(1).ok());
  machine.Add(LikeOthers(2, 30, 0, 4));
  EXPECT_EQ(machine.Submit().open.at(0).shared_rows, 16);
  EXPECT_EQ(machine.Finish(2), ComputeAlone(LikeOthers(2, 30, 0, 4), 40).output);
}

TEST_F(PrefixReuse, SequencesWithTheSamePromptWaitForOneToComputeItAndOthersPass) {
  SchedulerOptions options = ReuseOptions();
  options.prefill_chunk = 8;
  options.max_num_batched_tokens = 16;
  options.micro_batches = 4;
  ReuseMachine machine(options);
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(LikeOthers(id, 18, 0, 3));
  machine.Add(LikeOthers(4, 2, 3, 3));
  const MicroBatch first = machine.Submit();
  ASSERT_THAT(first.open, SizeIs(2));
  EXPECT_EQ(first.open[1].sequence, 4u) << "behind the two that wait for sequence 1";
  EXPECT_EQ(machine.scheduler.waiting(), 2);
  EXPECT_THAT(machine.Submit().open, IsEmpty()) << "the second chunk of sequence 1, which ends its full blocks";
  const MicroBatch third = machine.Submit();
  ASSERT_THAT(third.open, SizeIs(2));
  for (const OpenSequence& open : third.open) EXPECT_EQ(open.shared_rows, 16);
  EXPECT_EQ(third.rows(), 3 * 2) << "only the last partial block is computed again";
  EXPECT_EQ(machine.scheduler.blocks().references(0, third.open[0].shared_blocks[0][0]), 3);
  EXPECT_EQ(machine.Finish(3), ComputeAlone(LikeOthers(3, 18, 0, 3), 40).output);
}

TEST_F(PrefixReuse, ALeaderThatGoesHandsTheRoleOn) {
  for (const bool cancel : {true, false}) {
    SchedulerOptions options = ReuseOptions();
    options.max_num_batched_tokens = 8;
    options.prefill_chunk = 8;
    ReuseMachine machine(options);
    for (SequenceId id = 1; id <= 3; ++id) machine.Add(LikeOthers(id, 18, 0, 3));
    machine.Submit();
    EXPECT_EQ((cancel ? machine.scheduler.Cancel(1) : machine.scheduler.Preempt(1)), absl::OkStatus());
    EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok()) << machine.scheduler.CheckIntegrity();
    machine.Confirm();
    const MicroBatch next = machine.Submit();
    ASSERT_THAT(next.open, SizeIs(1));
    EXPECT_EQ(next.open[0].sequence, cancel ? 2u : 1u);
    EXPECT_EQ(next.open[0].shared_rows, 8);
    EXPECT_EQ(machine.Finish(3), ComputeAlone(LikeOthers(3, 18, 0, 3), 40).output);
    EXPECT_EQ(machine.scheduler.counters().prefill_rows, 18u + (cancel ? 1 : 2) * 2u) << "no full block twice";
  }
}

TEST_F(PrefixReuse, ASiblingCanBeCancelledWhileItWaits) {
  SchedulerOptions options = ReuseOptions();
  options.max_num_batched_tokens = 8;
  ReuseMachine machine(options);
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(LikeOthers(id, 18, 0, 3));
  machine.Submit();
  machine.Submit();
  ASSERT_TRUE(machine.scheduler.Cancel(2).ok());
  EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok()) << machine.scheduler.CheckIntegrity();
  EXPECT_EQ(machine.scheduler.waiting(), 1);
  EXPECT_EQ(machine.Finish(3), ComputeAlone(LikeOthers(3, 18, 0, 3), 40).output);
}

TEST_F(PrefixReuse, AdmissionCountsHitsOnceAndEvictableBlocksAsFreeUnlessTheyAreHits) {
  SchedulerOptions options = ReuseOptions();
  options.group_blocks = {8, 8};
  options.context = 32;
  ReuseMachine machine(options);
  EXPECT_EQ(machine.CachedOf(LikeOthers(1, 16, 1, 1)), 0);
  EXPECT_EQ(machine.scheduler.blocks().evictable(), 4);
  EXPECT_EQ(machine.scheduler.blocks().free(0), 4);
  // 16 shared rows and 10 of its own, and one more: 7 blocks, of which 4 are there. A second like it needs 3 more.
  machine.Add(LikeOthers(2, 16, 10, 1));
  machine.Add(LikeOthers(3, 16, 9, 1));
  ASSERT_THAT(machine.Submit().open, SizeIs(1));
  EXPECT_EQ(machine.scheduler.blocks().used(0), 7);
  EXPECT_EQ(machine.scheduler.blocks().evictable(), 0);
  EXPECT_EQ(machine.Finish(3), ComputeAlone(LikeOthers(3, 16, 9, 1), 32).output);
  // What has nothing in common takes all, and nothing is left of the others.
  EXPECT_EQ(machine.CachedOf(LikeOthers(4, 0, 31, 1)), 0);
  EXPECT_EQ(machine.CachedOf(LikeOthers(5, 16, 1, 1)), 0);
  EXPECT_EQ(machine.scheduler.counters().preemptions, 0u);
}

}  // namespace
}  // namespace stagecoach
