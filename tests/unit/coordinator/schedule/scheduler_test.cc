// The scheduler's contract, sentence by sentence. Its random histories are in scheduler_histories_test.cc, the
// composition of micro-batches in policies_test.cc.

#include "coordinator/schedule/scheduler.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/schedule/policy/interleaved.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

TEST(SchedulerOptions, EachFieldHasARangeAndTheErrorNamesIt) {
  EXPECT_TRUE(ValidateSchedulerOptions(SmallOptions()).ok());
  const auto message = [](auto change) {
    SchedulerOptions options = SmallOptions();
    change(options);
    const absl::Status status = ValidateSchedulerOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message([](auto& o) { o.max_num_seqs = 0; }), "`max_num_seqs` is 0, expected 1 to 4096");
  EXPECT_THAT(message([](auto& o) { o.max_num_seqs = 70000; }), HasSubstr("`max_num_seqs` is 70000"));
  EXPECT_THAT(message([](auto& o) { o.max_num_batched_tokens = 0; }), HasSubstr("`max_num_batched_tokens` is 0"));
  EXPECT_THAT(message([](auto& o) { o.prefill_chunk = -3; }), HasSubstr("`prefill_chunk` is -3"));
  EXPECT_THAT(message([](auto& o) { o.block_tokens = 0; }), HasSubstr("`block_tokens` is 0"));
  EXPECT_EQ(message([](auto& o) { o.group_blocks = {8, 0}; }), "`group_blocks` is 0, expected 1 to 1073741824");
  EXPECT_THAT(message([](auto& o) { o.group_blocks.clear(); }), HasSubstr("`group_blocks` is empty"));
  EXPECT_THAT(message([](auto& o) { o.context = 0; }), HasSubstr("`context` is 0"));
  EXPECT_THAT(message([](auto& o) { o.micro_batches = 2000; }), HasSubstr("`micro_batches` is 2000"));
  EXPECT_THAT(message([](auto& o) { o.max_open_tokens = 31; }), HasSubstr("`max_open_tokens` is 31, expected 32 to"));
  EXPECT_THAT(message([](auto& o) { o.max_prompt_logprobs = 21; }), HasSubstr("`max_prompt_logprobs` is 21"));
  EXPECT_THAT(message([](auto& o) { o.policy = static_cast<Policy>(9); }), HasSubstr("policy is 9"));
  EXPECT_THAT(message([](auto& o) { o.chunking = static_cast<Chunking>(9); }), HasSubstr("chunking is 9"));
  EXPECT_THAT(message([](auto& o) { o.slo_itl_s = -1; }), HasSubstr("`slo_itl_s` is -1"));
}

TEST(SchedulerOptions, PoliciesHaveNames) {
  for (const auto& [policy, name] : kPolicies) EXPECT_EQ(*ParsePolicy(PolicyName(policy)), policy);
  EXPECT_THAT(ParsePolicy("fair").status().message(), HasSubstr("'fair', expected one of prefill-first, interleaved"));
}

TEST(Scheduler, RefusesRequestsThatAreWrong) {
  Scheduler scheduler(SmallOptions());
  EXPECT_EQ(scheduler.Add(Spec(1, 0, 4)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler.Add(Spec(1, 4, 0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler.Add(Spec(1, 4, -1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler.Add({.id = 1, .prompt = {3, -4}, .max_new_tokens = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  for (const double weight : {0.0, -1.0, 1e-9, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    SequenceSpec spec = Spec(1, 4, 4);
    spec.weight = weight;
    EXPECT_EQ(scheduler.Add(std::move(spec)).code(), absl::StatusCode::kInvalidArgument) << weight;
  }
  for (const int priority : {-1, 3, 1 << 30}) {
    SequenceSpec spec = Spec(1, 4, 4);
    spec.priority_class = static_cast<PriorityClass>(priority);
    EXPECT_THAT(scheduler.Add(std::move(spec)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat("priority class ", priority))));
  }
  SequenceSpec scored = Spec(1, 4, 4);
  scored.sampling.prompt_logprobs = 1;
  EXPECT_THAT(scheduler.Add(std::move(scored)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the job has room for `max_prompt_logprobs` 0")));
  ASSERT_TRUE(scheduler.Add(Spec(1, 4, 4)).ok());
  EXPECT_EQ(scheduler.Add(Spec(1, 4, 4)).code(), absl::StatusCode::kAlreadyExists);
}

TEST(Scheduler, RefusesWhatCannotFitTheContextOrThePoolWithBothNumbers) {
  SchedulerOptions options = SmallOptions();
  Scheduler scheduler(options);
  const absl::Status full = scheduler.Add(Spec(1, 32, 1));
  EXPECT_EQ(full.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(full.message(), HasSubstr("the prompt has 32 tokens and needs room for a new one, the context holds 32"));
  options.group_blocks = {4};  // 16 tokens
  Scheduler poor(options);
  const absl::Status large = poor.Add(Spec(1, 10, 8));
  EXPECT_EQ(large.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(large.message(), HasSubstr("need KV for 17 tokens, the pool holds 16 (4 blocks of 4)"));
  EXPECT_TRUE(poor.Add(Spec(1, 10, 7)).ok());
}

TEST(Scheduler, RefusesARequestWithNothingLeftToProduce) {
  Scheduler scheduler(SmallOptions());
  SequenceSpec spec = Spec(1, 4, 2);
  spec.output = {5, 6};
  EXPECT_EQ(scheduler.Add(spec).code(), absl::StatusCode::kFailedPrecondition);
  spec.max_new_tokens = 10;
  spec.stop_tokens = {6};
  EXPECT_EQ(scheduler.Add(spec).code(), absl::StatusCode::kFailedPrecondition);
  spec.stop_tokens = {5};
  EXPECT_TRUE(scheduler.Add(spec).ok());
}

TEST(Scheduler, ChunksOfOnePromptFollowEachOtherWithoutWaiting) {
  SchedulerOptions options{{.policy = Policy::kInterleaved, .block_tokens = 32, .prefix_caching = false},
                           {.group_blocks = {32}, .context = 1024, .micro_batches = 2, .max_open_tokens = 1024}};
  Machine machine(options);
  machine.Add(Spec(1, 600, 4));
  const MicroBatch first = machine.Submit(), second = machine.Submit();
  EXPECT_EQ(machine.scheduler.in_flight(), 2);
  EXPECT_EQ(first.slices[0].count, 512);
  EXPECT_FALSE(first.slices[0].sample);
  ASSERT_EQ(first.slices[0].new_blocks.size(), 1u);
  EXPECT_EQ(first.slices[0].new_blocks[0].size(), 16u);
  EXPECT_EQ(second.slices[0].start, 512);
  EXPECT_EQ(second.slices[0].count, 88);
  EXPECT_TRUE(second.slices[0].sample);
  EXPECT_THAT(second.open, IsEmpty());
  EXPECT_FALSE(machine.scheduler.Next().has_value()) << "more in flight than allowed";
  EXPECT_THAT(machine.Confirm(), IsEmpty());
  EXPECT_EQ(machine.scheduler.Find(1)->confirmed, 512);
  EXPECT_FALSE(machine.scheduler.Next().has_value()) << "a decode row without its token";
  ASSERT_EQ(machine.Confirm().size(), 1u);
  EXPECT_EQ(machine.scheduler.Find(1)->state(), SequenceState::kDecoding);
  EXPECT_EQ(machine.Submit().slices[0].start, 600);
}

TEST(Scheduler, CountsMicroBatchesByTheirRowsOfEachKind) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 13, 3));
  machine.RunToTheEnd();
  const SchedulerCounters& counters = machine.scheduler.counters();
  EXPECT_EQ(counters.prefill_sizes[3], 2u) << "8 rows, and 5";
  EXPECT_EQ(counters.decode_sizes[0], 2u) << "one row twice";
  uint64_t micro_batches = 0;
  for (const uint64_t count : counters.prefill_sizes) micro_batches += count;
  EXPECT_EQ(micro_batches, 2u);
}

TEST(Scheduler, FreesRideOnTheNextMicroBatchAndFreesEveryBlockWhenASequenceFinishes) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 6, 1));
  machine.Submit();
  EXPECT_EQ(machine.scheduler.blocks().used(0), 2);
  const std::vector<SequenceEvent> events = machine.Confirm();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finished, FinishReason::kLength);
  EXPECT_EQ(machine.scheduler.blocks().used(0), 0);
  EXPECT_FALSE(machine.scheduler.HasUnfinished());
  EXPECT_FALSE(machine.scheduler.Next().has_value());
  machine.Add(Spec(2, 6, 1));
  const MicroBatch next = machine.Submit();
  EXPECT_THAT(next.free, ElementsAre(1u));
  ASSERT_EQ(next.open.size(), 1u);
  EXPECT_EQ(next.open[0].sequence, 2u);
}

TEST(Scheduler, NumbersEveryMicroBatchThereIsTheShutdownIncluded) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 20, 4));
  EXPECT_EQ(machine.Submit().number, 0u);
  EXPECT_EQ(machine.Submit().number, 1u);
  EXPECT_FALSE(machine.scheduler.Next().has_value()) << "what is not given takes no number";
  machine.Confirm();
  EXPECT_EQ(machine.Submit().number, 2u);
  EXPECT_EQ(machine.scheduler.Shutdown(), (MicroBatch{.number = 3, .shutdown = true}));
  machine.Confirm();
  machine.Confirm();
  EXPECT_EQ(machine.scheduler.in_flight(), 0);
}

TEST(Scheduler, LogitsThatAreNotFiniteEndTheSequenceAndNoOther) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 6, 4));
  machine.Add(Spec(2, 6, 4));
  machine.Submit();
  ASSERT_EQ(machine.results[0].sampled.size(), 2u);
  machine.results[0].sampled[0].invalid_logits = true;
  const std::vector<SequenceEvent> events = machine.Confirm();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0].tokens, IsEmpty());
  EXPECT_EQ(events[0].finished, FinishReason::kInvalidLogits);
  EXPECT_THAT(events[0].error, HasSubstr("the logits for position 6 are not finite"));
  EXPECT_THAT(events[0].error, HasSubstr("`kv_type` bf16"));
  EXPECT_EQ(events[1].tokens.size(), 1u);
  EXPECT_FALSE(events[1].finished.has_value());
  EXPECT_EQ(machine.scheduler.Find(1), nullptr);
}

TEST(Scheduler, AGrammarThatTakesTooLongEndsTheSequenceAndNoOther) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 6, 4));
  machine.Add(Spec(2, 6, 4));
  machine.Submit();
  machine.results[0].sampled[0].grammar_exhausted = true;
  const std::vector<SequenceEvent> events = machine.Confirm();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0].tokens, IsEmpty());
  EXPECT_EQ(events[0].finished, FinishReason::kGrammarExhausted);
  EXPECT_THAT(events[0].error, HasSubstr("at position 6 the request's grammar took too many steps"));
  EXPECT_FALSE(events[1].finished.has_value());
  EXPECT_EQ(machine.scheduler.Find(1), nullptr);
}

TEST(Scheduler, ARowThatGaveNoTokenIsChargedLikeOneThatEndedItsSequence) {
  // A replay of the run knows but the latter.
  std::vector<double> charged;
  for (const bool exhausted : {false, true}) {
    Machine machine(SmallOptions());
    for (const SequenceId id : {1, 2}) {
      SequenceSpec spec = Spec(id, 6, 4);
      spec.tenant = "a";
      if (id == 1) spec.stop_tokens = {kSimulatedVocabulary};
      machine.Add(std::move(spec));
    }
    machine.Submit();
    SampledToken& token = machine.results[0].sampled[0];
    token.grammar_exhausted = exhausted;
    token.token = kSimulatedVocabulary;
    machine.Confirm();
    EXPECT_EQ(machine.scheduler.Find(1), nullptr);
    charged.push_back(machine.scheduler.queue().CounterOf("a"));
  }
  EXPECT_EQ(charged[0], charged[1]);
  EXPECT_GT(charged[0], 12) << "more than the prompts";
}

TEST(Scheduler, ScoresFromLogitsThatAreNotFiniteAreNotReported) {
  Machine machine(SmallOptions());
  SequenceSpec spec = Spec(1, 6, 0);
  spec.score_from = 0;
  machine.Add(spec);
  machine.Submit();
  ASSERT_EQ(machine.results[0].targets.size(), 1u);
  machine.results[0].targets[0].invalid_logits = true;
  const std::vector<SequenceEvent> events = machine.Confirm();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].scores, IsEmpty());
  EXPECT_EQ(events[0].finished, FinishReason::kInvalidLogits);
  EXPECT_THAT(events[0].error, HasSubstr("one of the positions 1 to 6"));
}

TEST(Scheduler, APreemptedSequenceKeepsItsNameAndItsTokenInFlight) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 6, 8));
  machine.Submit();  // the whole prompt; its token is still to come
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  EXPECT_EQ(machine.scheduler.Find(1)->state(), SequenceState::kPreempted);
  EXPECT_EQ(machine.scheduler.blocks().used(0), 0);
  EXPECT_EQ(machine.scheduler.Preempt(1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(machine.scheduler.Next().has_value()) << "it is not drained";
  const std::vector<SequenceEvent> events = machine.Confirm();
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].tokens.size(), 1u);
  EXPECT_EQ(machine.scheduler.Find(1)->state(), SequenceState::kWaiting);
  const MicroBatch again = machine.Submit();
  EXPECT_THAT(again.free, ElementsAre(1u));
  ASSERT_EQ(again.open.size(), 1u);
  EXPECT_EQ(again.open[0].sequence, 1u);
  EXPECT_THAT(again.open[0].output, ElementsAre(events[0].tokens[0].token));
  EXPECT_EQ(again.slices[0].start, 0);
  EXPECT_EQ(again.slices[0].count, 7);
  EXPECT_TRUE(again.slices[0].sample);
  EXPECT_EQ(machine.scheduler.counters().preemptions, 1u);
}

TEST(Scheduler, ThePreemptedOneIsTheLatestAndItGoesToTheFrontOfTheQueue) {
  Machine machine(TightOptions());
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(Spec(id, 7, 8));
  EXPECT_EQ(machine.Submit().open.size(), 2u) << "two blocks each are promised";
  machine.Confirm();
  machine.Step();  // row 7 of both: the pool is full to the last token
  const MicroBatch batch = machine.Submit();
  EXPECT_THAT(batch.free, ElementsAre(2u)) << "sequence 1 asks first, sequence 2 came later";
  ASSERT_EQ(batch.slices.size(), 1u);
  EXPECT_EQ(batch.slices[0].sequence, 1u);
  EXPECT_EQ(machine.scheduler.Find(2)->state(), SequenceState::kWaiting);
  machine.Confirm();
  EXPECT_THAT(machine.RunToTheEnd(), ElementsAre(2u, 3u));
}

TEST(Scheduler, TheLatestPreemptsItselfWhenItIsTheOneThatAsks) {
  Machine machine(TightOptions());
  machine.Add(Spec(1, 5, 8));
  machine.Add(Spec(2, 7, 8));
  machine.Step();
  machine.Step();
  const MicroBatch batch = machine.Submit();  // sequence 2 begins its third block, sequence 1 stays in its second
  EXPECT_THAT(batch.free, ElementsAre(2u));
  ASSERT_EQ(batch.slices.size(), 1u);
  EXPECT_EQ(batch.slices[0].sequence, 1u);
}

TEST(Scheduler, NobodyOvertakesAPreemptedSequenceThatDrains) {
  Machine machine(SmallOptions());
  machine.Add(Spec(1, 6, 8));
  machine.Submit();
  machine.Add(Spec(2, 6, 8));
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  EXPECT_FALSE(machine.scheduler.Next().has_value());
  machine.Confirm();
  const MicroBatch batch = machine.Submit();
  ASSERT_EQ(batch.open.size(), 2u);
  EXPECT_EQ(batch.open[0].sequence, 1u);
}

TEST(Scheduler, ASequenceAdmittedAndPreemptedInOneMicroBatchIsNeverHeardOf) {
  SchedulerOptions options = SmallOptions();
  options.max_num_batched_tokens = 3;
  options.block_tokens = 1;
  options.group_blocks = {41};
  options.context = 20;
  options.micro_batches = 1;
  Machine machine(options);
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(Spec(id, 1, 19));
  // Decode rows of three sequences fill the budget until sequence 4 is owed a chunk, just when two blocks are left.
  while (machine.scheduler.blocks().free(0) > 2 + 3 * kStarvationBound) machine.Step();
  machine.Add(Spec(4, 1, 8));
  for (int i = 0; i < kStarvationBound; ++i) machine.Step();
  ASSERT_EQ(machine.scheduler.blocks().free(0), 2);
  ASSERT_EQ(machine.scheduler.counters().preemptions, 0u);
  const MicroBatch batch = machine.Submit();  // 4 is admitted, 1 takes the last block, 2 takes that of 4
  EXPECT_EQ(machine.scheduler.counters().preemptions, 1u);
  EXPECT_THAT(batch.open, IsEmpty());
  ASSERT_EQ(batch.slices.size(), 2u);
  EXPECT_EQ(batch.slices[0].sequence, 1u);
  EXPECT_EQ(batch.slices[1].sequence, 2u);
  EXPECT_EQ(machine.scheduler.Find(4)->state(), SequenceState::kWaiting);
  machine.Confirm();
  machine.RunToTheEnd();
}

TEST(Scheduler, AFullPoolIsNotThrashed) {
  SchedulerOptions options = SmallOptions();
  options.group_blocks = {10};
  options.context = 40;
  Machine machine(options);
  int64_t needed = 0;
  for (SequenceId id = 1; id <= 8; ++id) {
    machine.Add(Spec(id, 8, 24));
    needed += 8 + 24 - 1;
  }
  machine.RunToTheEnd();
  const SchedulerCounters& counters = machine.scheduler.counters();
  EXPECT_GT(counters.preemptions, 0u);
  EXPECT_LT(counters.prefill_rows + counters.decode_rows, static_cast<uint64_t>(2 * needed));
  EXPECT_THAT(counters.blocks_used_peak, ElementsAre(10));
}

TEST(BlockGroups, GetAsManyBlocksEach) {
  SchedulerOptions options = SmallOptions();
  options.group_blocks = {8, 6, 7};
  Machine machine(options);
  machine.Add(Spec(1, 7, 8));
  EXPECT_THAT(machine.Submit().slices[0].new_blocks, ElementsAre(SizeIs(2), SizeIs(2), SizeIs(2)));
  machine.Confirm();
  EXPECT_THAT(machine.Submit().slices[0].new_blocks, IsEmpty()) << "the eighth row has room in all groups";
  machine.Confirm();
  EXPECT_THAT(machine.Submit().slices[0].new_blocks, ElementsAre(SizeIs(1), SizeIs(1), SizeIs(1)));
  for (size_t group = 0; group < 3; ++group) EXPECT_EQ(machine.scheduler.blocks().used(group), 3);
  EXPECT_THAT(machine.scheduler.counters().blocks_used_peak, ElementsAre(3, 3, 3));
}

TEST(BlockGroups, TheSmallestDecidesWhatIsAcceptedAndAdmitted) {
  SchedulerOptions options = SmallOptions();
  options.group_blocks = {8, 4};
  Machine machine(options);
  EXPECT_THAT(machine.scheduler.Add(Spec(1, 10, 8)).message(), HasSubstr("the pool holds 16 (4 blocks of 4)"));
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(Spec(id, 7, 1));
  EXPECT_THAT(machine.Submit().open, SizeIs(2));
}

TEST(BlockGroups, PreemptForTheFirstThatRunsOut) {
  SchedulerOptions options = TightOptions();
  options.group_blocks = {8, 4, 8};
  Machine machine(options);
  for (SequenceId id = 1; id <= 2; ++id) machine.Add(Spec(id, 7, 8));
  machine.Step();
  machine.Step();  // row 7 of both: the second group is full to the last token
  const MicroBatch batch = machine.Submit();
  EXPECT_THAT(batch.free, ElementsAre(2u));
  ASSERT_EQ(batch.slices.size(), 1u);
  for (size_t group = 0; group < 3; ++group) EXPECT_EQ(machine.scheduler.blocks().used(group), 3);
}

TEST(Scheduler, ASequenceCanBeCancelledInEveryState) {
  for (const SequenceState state :
       {SequenceState::kWaiting, SequenceState::kPrefilling, SequenceState::kDecoding, SequenceState::kPreempted}) {
    Machine machine(SmallOptions());
    machine.Add(Spec(1, 12, 8));
    if (state != SequenceState::kWaiting) machine.Submit();
    if (state == SequenceState::kPreempted) {
      EXPECT_EQ(machine.scheduler.Preempt(1), absl::OkStatus());
    }
    if (state == SequenceState::kDecoding) {
      machine.Submit();
      machine.Confirm();
      machine.Confirm();
      machine.Submit();
    }
    ASSERT_EQ(machine.scheduler.Find(1)->state(), state);
    ASSERT_TRUE(machine.scheduler.Cancel(1).ok());
    EXPECT_EQ(machine.scheduler.Cancel(1).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(machine.scheduler.Preempt(1).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(machine.scheduler.blocks().used(0), 0);
    EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok());
    ASSERT_TRUE(machine.scheduler.Add(Spec(1, 3, 8)).ok()) << "the name is free again";
    EXPECT_EQ(machine.Submit().free.size(), state == SequenceState::kWaiting ? 0u : 1u);
    while (machine.results.size() > 1) EXPECT_THAT(machine.Confirm(), IsEmpty()) << "a result of the cancelled one";
    EXPECT_EQ(machine.Confirm().size(), 1u);
  }
}

TEST(Scheduler, ScoresEveryWantedRowOnceAndEndsWhenThePromptIsConfirmed) {
  SchedulerOptions options = SmallOptions();
  options.prefill_chunk = 4;
  options.max_prompt_logprobs = 2;
  Machine machine(options);
  SequenceSpec spec = Spec(1, 10, 0);
  spec.score_from = 6;
  spec.sampling.prompt_logprobs = 2;
  const auto tops = [&spec](std::vector<size_t> rows) {
    std::vector<TokenLogprob> tops;
    for (const size_t row : rows) {
      for (const int place : {0, 1}) tops.push_back(ModelTop({spec.prompt.data(), row + 1}, place));
    }
    return tops;
  };
  const ExpectedAnswer expected = ComputeAlone(spec, 32);
  machine.Add(spec);
  EXPECT_THAT(machine.Submit().slices[0].targets, IsEmpty());
  const MicroBatch second = machine.Submit();
  EXPECT_THAT(second.slices[0].targets, ElementsAre(kNoToken, spec.prompt[6], spec.prompt[7], spec.prompt[8]));
  EXPECT_FALSE(second.slices[0].sample);
  EXPECT_THAT(machine.Confirm(), IsEmpty());
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  std::vector<SequenceEvent> events = machine.Confirm();
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].scores.size(), 1u);
  EXPECT_EQ(events[0].scores[0].start, 5);
  EXPECT_THAT(events[0].scores[0].logprobs,
              ElementsAre(expected.scores.at(5), expected.scores.at(6), expected.scores.at(7)));
  EXPECT_EQ(events[0].scores[0].top, tops({5, 6, 7}));
  machine.Step();
  EXPECT_THAT(machine.Submit().slices[0].targets, IsEmpty()) << "published scores are not computed again";
  machine.Confirm();
  const MicroBatch last = machine.Submit();
  EXPECT_THAT(last.slices[0].targets, ElementsAre(spec.prompt[9], kNoToken));
  EXPECT_FALSE(last.slices[0].sample);
  events = machine.Confirm();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].scores[0].start, 8);
  EXPECT_EQ(events[0].scores[0].logprobs.size(), 1u);
  EXPECT_EQ(events[0].scores[0].top, tops({8}));
  EXPECT_EQ(events[0].finished, FinishReason::kScored);
  EXPECT_THAT(events[0].tokens, IsEmpty());
}

TEST(Scheduler, AResultThatDoesNotMatchIsRefusedAndChangesNothing) {
  SchedulerOptions options = SmallOptions();
  options.max_prompt_logprobs = 1;
  Machine machine(options);
  EXPECT_EQ(machine.scheduler.Confirm({}).status().code(), absl::StatusCode::kInternal);
  SequenceSpec spec = Spec(1, 6, 8);
  spec.score_from = 0;
  spec.sampling.prompt_logprobs = 1;
  machine.Add(spec);
  machine.Submit();
  const auto message = [&machine](auto change) {
    StepResult result = machine.results[0];
    change(result);
    const absl::Status status = machine.scheduler.Confirm(result).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok());
    return std::string(status.message());
  };
  EXPECT_THAT(message([](auto& r) { r.number = 1; }), HasSubstr("micro-batch 1: expected that of 0"));
  EXPECT_THAT(message([](auto& r) { r.sampled.clear(); }), HasSubstr("no token of sequence 1"));
  EXPECT_THAT(message([](auto& r) { r.sampled[0].position = 5; }), HasSubstr("at position 5, expected 6"));
  EXPECT_THAT(message([](auto& r) { r.sampled[0].token = -1; }), HasSubstr("token id -1"));
  EXPECT_THAT(message([](auto& r) { r.sampled.push_back(r.sampled[0]); }), HasSubstr("2 tokens, expected 1"));
  EXPECT_THAT(message([](auto& r) { r.targets.clear(); }), HasSubstr("no target log-probabilities"));
  EXPECT_THAT(message([](auto& r) { r.targets[0].logprobs.pop_back(); }), HasSubstr("has 5 target log-probabilities"));
  EXPECT_THAT(message([](auto& r) { r.targets[0].top.pop_back(); }), HasSubstr("has 5 log-probabilities beside"));
  EXPECT_THAT(message([](auto& r) { r.targets.push_back(r.targets[0]); }), HasSubstr("2 lists"));
  EXPECT_THAT(message([](auto& r) { r.sampled[0].sequence = 2; }), HasSubstr("no token of sequence 1 in its place"));
  EXPECT_EQ(machine.Confirm().size(), 1u);
}

TEST(Scheduler, OpensNoMoreTokensThanAFrameHolds) {
  SchedulerOptions options = SmallOptions();
  options.max_num_batched_tokens = 64;
  options.max_open_tokens = 32;
  options.group_blocks = {64};
  options.prefill_chunk = 64;
  Machine machine(options);
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(Spec(id, 12, 4));
  EXPECT_EQ(machine.Submit().open.size(), 2u);
  EXPECT_EQ(machine.Submit().open.size(), 1u);
}

}  // namespace
}  // namespace stagecoach
