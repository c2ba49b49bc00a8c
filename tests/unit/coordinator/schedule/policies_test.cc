// What the policies put into micro-batches, and when prompts and decoding take turns. A composition is written as
// "sequence:first row+rows ...".

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/schedule/policy/interleaved.h"
#include "coordinator/schedule/policy/phases.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

SchedulerOptions Options(Policy policy) {
  return {{.max_num_seqs = 8,
           .policy = policy,
           .max_num_batched_tokens = 128,
           .prefill_chunk = 64,
           .block_tokens = 16,
           .prefix_caching = false},
          {.group_blocks = {256}, .context = 1024, .micro_batches = 1, .max_open_tokens = 4096}};
}

class Composer : public Machine {
 public:
  explicit Composer(const SchedulerOptions& options) : Machine(options, /*checked=*/false) {}

  void Add(SequenceId id, int64_t prompt, int64_t new_tokens = 500) {
    Machine::Add({.id = id, .prompt = std::vector<TokenId>(prompt, 1), .max_new_tokens = new_tokens});
  }
  // Of the same lengths.
  void AddAll(SequenceId first, SequenceId last, int64_t prompt, int64_t new_tokens = 500) {
    for (SequenceId id = first; id <= last; ++id) Add(id, prompt, new_tokens);
  }

  std::vector<SequenceSlice> Submit() { return Machine::Submit().slices; }
  std::vector<SequenceSlice> Step() {
    std::vector<SequenceSlice> slices = Submit();
    Confirm();
    return slices;
  }
  // The same, with what the slowest stage took: for the step, for each row, for each pair of rows.
  std::vector<SequenceSlice> Step(double fixed_us, double row_us, double pair_us = 0) {
    const MicroBatch batch = Machine::Submit();
    double us = fixed_us;
    for (const SequenceSlice& s : batch.slices) us += row_us * s.count + pair_us * s.count * (s.count + 2.0 * s.start);
    Confirm();
    scheduler.ObserveStepTime(batch, static_cast<int64_t>(us));
    return batch.slices;
  }

  // That steps of up to 512 rows take little, and their rows all of it.
  void TeachThatRowsAreCheap() {
    MicroBatch batch;
    for (int32_t step = 0; step < 16; ++step) {
      batch.slices = {{.sequence = 1000, .count = step % 2 == 0 ? 512 : 1}};
      scheduler.ObserveStepTime(batch, 2 * batch.rows());
    }
  }

  static std::string Describe(const std::vector<SequenceSlice>& slices) {
    return absl::StrJoin(slices, " ", [](std::string* out, const SequenceSlice& slice) {
      absl::StrAppend(out, slice.sequence, ":", slice.start, "+", slice.count);
    });
  }
  std::vector<std::string> Steps(int count) {
    std::vector<std::string> steps;
    for (int i = 0; i < count; ++i) steps.push_back(Describe(Step()));
    return steps;
  }
  // That decode rows fill a budget of four rows, and prompts get their turn by the bound.
  void ExpectTurnsOfAPromptBesideAFullBudget() {
    AddAll(1, 4, 1);
    Step();
    Add(5, 40);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < kStarvationBound; ++i) EXPECT_EQ(Step().back().sequence, 4u);
      EXPECT_EQ(Describe(Step()), absl::StrCat("5:", 4 * round, "+4"));
    }
  }
  bool busy() const { return scheduler.HasUnfinished(); }
  int64_t decoding() const { return scheduler.decoding(); }
};

// Sequence 1 decodes when the prompt of sequence 2 arrives.
std::vector<std::string> CompositionsBesideALongPrompt(Policy policy) {
  Composer composer(Options(policy));
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 200);
  return composer.Steps(5);
}

TEST(Policies, DifferFromEachOtherOnTheSameArrivals) {
  EXPECT_THAT(CompositionsBesideALongPrompt(Policy::kPrefillFirst),
              ElementsAre("2:0+64", "2:64+64", "2:128+64", "2:192+8", "1:5+1 2:200+1"));
  EXPECT_THAT(CompositionsBesideALongPrompt(Policy::kInterleaved),
              ElementsAre("1:5+1 2:0+64", "1:6+1 2:64+64", "1:7+1 2:128+64", "1:8+1 2:192+8", "1:9+1 2:200+1"));
  EXPECT_THAT(CompositionsBesideALongPrompt(Policy::kDecodePriority),
              ElementsAre("1:5+1 2:0+32", "1:6+1 2:32+32", "1:7+1 2:64+32", "1:8+1 2:96+32", "1:9+1 2:128+32"));
}

// Those that decode wait for what goes before them, whether they were ready when it left or not.
TEST(Policies, DecodePriorityGivesPromptsNoWholeChunkBetweenDecodeGroups) {
  for (const int32_t micro_batches : {1, 2, 4}) {
    SchedulerOptions options = Options(Policy::kDecodePriority);
    options.micro_batches = micro_batches;
    Composer composer(options);
    composer.Add(1, 5);
    composer.Step();
    composer.Add(2, 900);
    EXPECT_EQ(Composer::Describe(composer.Submit()), "1:5+1 2:0+32") << micro_batches;
    for (int i = 1; i < micro_batches; ++i) {
      EXPECT_EQ(Composer::Describe(composer.Submit()), absl::StrCat("2:", 32 * i, "+32"))
          << "the only row is in flight";
    }
  }
}

TEST(Policies, DecodePriorityAndThrottledGiveWholeChunksWhileNobodyDecodes) {
  for (const Policy policy : {Policy::kDecodePriority, Policy::kThrottled}) {
    Composer composer(Options(policy));
    composer.Add(1, 200);
    EXPECT_THAT(composer.Steps(4), ElementsAre("1:0+64", "1:64+64", "1:128+64", "1:192+8")) << PolicyName(policy);
  }
}

TEST(Policies, DecodePriorityLetsNoPromptStarve) {
  Composer composer(Options(Policy::kDecodePriority));
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 900);
  int32_t since = 0, full = 0;
  for (int step = 0; step < 20; ++step) {
    int32_t rows = 0;
    for (const SequenceSlice& slice : composer.Step()) rows += slice.sequence == 2 ? slice.count : 0;
    if (rows == 64) {
      ++full;
      EXPECT_EQ(since, kStarvationBound);
      since = 0;
    } else {
      EXPECT_EQ(rows, kPrefillQuantum);
      ++since;
    }
  }
  EXPECT_EQ(full, 2);
}

TEST(Policies, InterleavedAndThrottledLetNoPromptStarveBesideDecodeRowsThatFillTheBudget) {
  for (const Policy policy : {Policy::kInterleaved, Policy::kThrottled}) {
    SCOPED_TRACE(PolicyName(policy));
    SchedulerOptions options = Options(policy);
    options.max_num_batched_tokens = 4;
    Composer(options).ExpectTurnsOfAPromptBesideAFullBudget();
  }
}

TEST(Policies, InterleavedFillsTheBudgetWithChunksOfSeveralPrompts) {
  Composer composer(Options(Policy::kInterleaved));
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 70);
  composer.Add(3, 40);
  composer.Add(4, 90);
  EXPECT_THAT(composer.Steps(3),
              ElementsAre("1:5+1 2:0+64 3:0+40 4:0+23", "1:6+1 3:40+1 2:64+6 4:23+64", "1:7+1 2:70+1 3:41+1 4:87+3"));
}

TEST(Policies, PrefillFirstDecodesWhenTheNextPromptCannotBeAdmitted) {
  SchedulerOptions options = Options(Policy::kPrefillFirst);
  options.max_num_seqs = 1;
  Composer composer(options);
  composer.Add(1, 5, /*new_tokens=*/3);
  composer.Add(2, 5);
  EXPECT_THAT(composer.Steps(4), ElementsAre("1:0+5", "1:5+1", "1:6+1", "2:0+5"));
}

TEST(Policies, ThrottledSpreadsAPromptOverMicroBatchesBesideDecodeRows) {
  Composer composer(Options(Policy::kThrottled));
  composer.TeachThatRowsAreCheap();
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 400);
  // An eighth of what is left each time.
  EXPECT_THAT(composer.Steps(4), ElementsAre("1:5+1 2:0+50", "1:6+1 2:50+44", "1:7+1 2:94+39", "1:8+1 2:133+34"));
  EXPECT_THAT(composer.Steps(2), ElementsAre("1:9+1 2:167+30", "1:10+1 2:197+26"));
}

TEST(Policies, ThrottledLetsNoWholeChunkPassAFirstTokenThatIsUnderWay) {
  SchedulerOptions options = Options(Policy::kThrottled);
  options.micro_batches = 2;
  const auto behind_it = [&](int64_t new_tokens) {
    Composer composer(options);
    composer.Add(1, 5, new_tokens);
    composer.Submit();
    composer.Add(2, 400);
    const std::string composition = Composer::Describe(composer.Submit());
    composer.Confirm();
    composer.Confirm();
    return composition;
  };
  EXPECT_EQ(behind_it(2), absl::StrCat("2:0+", kThrottledLeastRows)) << "nothing was measured yet";
  EXPECT_EQ(behind_it(1), "2:0+64") << "it is the only one, and nobody waits for another";
}

TEST(Policies, ThrottledKeepsTheGapToAQuarterOfASecondByItself) {
  SchedulerOptions options = Options(Policy::kThrottled);
  options.max_num_batched_tokens = options.prefill_chunk = 512;
  options.context = options.max_open_tokens = 4096;
  options.micro_batches = 2;
  Composer composer(options);
  composer.Add(1, 5);
  for (int step = 0; step < 20; ++step) composer.Step(/*fixed_us=*/5000, /*row_us=*/1000);
  composer.Add(2, 2000);
  std::vector<int32_t> chunks;
  while (composer.decoding() < 2) {
    const std::vector<SequenceSlice> slices = composer.Step(5000, 1000);
    if (slices.back().sequence == 2) chunks.push_back(slices.back().count);
  }
  EXPECT_LE(chunks[0], 61) << "a third of 0.8 * 250 ms, less 5 for the step and 1 for the other row";
  EXPECT_NEAR(*std::max_element(chunks.begin(), chunks.end()), 94, 2) << "half of it";
  EXPECT_EQ(std::count_if(chunks.begin(), chunks.begin() + 10, [](int32_t rows) { return rows < 40; }), 0);
}

TEST(Policies, ThrottledFillsTheBudgetWithSeveralPromptsWhenNobodyDecodes) {
  Composer composer(Options(Policy::kThrottled));
  composer.TeachThatRowsAreCheap();
  composer.Add(1, 200);
  composer.Add(2, 30);
  composer.Add(3, 50);
  EXPECT_THAT(composer.Steps(2), ElementsAre("1:0+64 2:0+30 3:0+34", "2:30+1 1:64+19"));
}

TEST(Policies, ThrottledFillsStepsThatFitTheGapWithSeveralPromptsWhereChunksAreShort) {
  Composer composer(Options(Policy::kThrottled));
  composer.TeachThatRowsAreCheap();
  composer.Add(1, 5);
  composer.Step();
  composer.AddAll(2, 5, 400);
  EXPECT_EQ(Composer::Describe(composer.Step()), "1:5+1 2:0+64 3:0+63") << "not 64 rows, the chunk of one prompt";
}

TEST(Policies, ThrottledCountsWhatCouldBeAdmittedAsWaiting) {
  SchedulerOptions options = Options(Policy::kThrottled);
  options.max_num_batched_tokens = options.prefill_chunk = 512;
  for (const auto& [places, rows] : {std::pair(8, 200), std::pair(2, 50)}) {  // an eighth of four prompts, or of one
    options.max_num_seqs = places;
    Composer composer(options);
    composer.TeachThatRowsAreCheap();
    composer.Add(1, 5);
    composer.Step();
    composer.AddAll(2, 5, 400);
    EXPECT_EQ(Composer::Describe(composer.Step()), absl::StrCat("1:5+1 2:0+", rows)) << places << " places";
  }
}

TEST(Policies, ThrottledTakesThoseThatWaitToFindAsMuchInThePrefixCacheAsThoseBeforeThem) {
  SchedulerOptions options = Options(Policy::kThrottled);
  options.max_num_batched_tokens = options.prefill_chunk = 512;
  options.prefix_caching = true;
  Composer composer(options);
  composer.TeachThatRowsAreCheap();
  composer.Add(1, 5);
  composer.Step();
  composer.Add(2, 320);
  while (composer.decoding() < 2) composer.Step();
  composer.Add(3, 320);
  EXPECT_EQ(composer.Step().back().count, 16) << "all but what must be computed is found";
  composer.Add(4, 900);
  const SequenceSlice slice = composer.Step().back();
  EXPECT_EQ(slice.start, 320);
  EXPECT_EQ(slice.count, 60) << "an eighth of 900 less the 304 of 645 that were found so far";
}

TEST(Policies, ThrottledKeepsTheWantedGapOnceItKnowsWhatARowCosts) {
  SchedulerOptions options = Options(Policy::kThrottled);
  options.max_num_batched_tokens = options.prefill_chunk = 512;
  options.slo_itl_s = 0.03;
  Composer composer(options);
  composer.Add(1, 5);
  for (int step = 0; step < 20; ++step) composer.Step(/*fixed_us=*/1000, /*row_us=*/500);
  composer.Add(2, 900);
  for (int step = 0; step < 2; ++step) composer.Step(1000, 500);  // each twice what was seen
  for (int step = 0; step < 5; ++step) {
    EXPECT_NEAR(composer.Step(1000, 500).back().count, 57, 2) << "(30 - 1 - 0.5) / 0.5, step " << step;
  }
  // Now rows take twice as long.
  for (int step = 0; step < 10; ++step) composer.Step(1000, 1000);
  EXPECT_LT(composer.Step(1000, 1000).back().count, 57);
}

TEST(Policies, PhasesComputesAllPromptsThatFitAndThenDecodes) {
  SchedulerOptions options = Options(Policy::kPhases);
  options.max_num_seqs = 8;
  options.micro_batches = 2;
  Composer composer(options);
  for (SequenceId id = 1; id <= 16; ++id) composer.Add(id, 100, /*new_tokens=*/10 + 10 * (id % 8));
  // How often prompts gave way to decode rows, and these to prompts.
  int to_decode = 0, to_prompts = 0;
  bool decoding = false;
  while (composer.busy()) {
    const std::vector<SequenceSlice> slices = composer.Step(1000, 100);
    const auto decodes = std::count_if(slices.begin(), slices.end(), [](const auto& s) { return s.start >= 100; });
    ASSERT_TRUE(decodes == 0 || decodes == static_cast<int64_t>(slices.size())) << Composer::Describe(slices);
    if (!decoding && decodes > 0 && ++to_decode == 1) {
      EXPECT_EQ(slices.back().sequence, 4u) << "the first of two groups of eight sequences";
    }
    if (decoding && decodes == 0) ++to_prompts;
    decoding = decodes > 0;
  }
  EXPECT_EQ(to_decode, to_prompts + 1);
  EXPECT_GE(to_prompts, 1);
  EXPECT_LT(to_prompts, 8) << "eight prompts waited, and not each had a phase of its own";
}

TEST(Policies, PhasesKeepsItsGroupsEqualAsSequencesEnd) {
  SchedulerOptions options = Options(Policy::kPhases);
  options.max_num_seqs = 32;
  options.micro_batches = 4;
  Composer composer(options);
  for (SequenceId id = 1; id <= 29; ++id) composer.Add(id, 8, /*new_tokens=*/20 + 7 * (id % 5));
  std::deque<size_t> sizes;  // of what is under way
  int since_one_ended = 0, equal_rounds = 0;
  while (composer.busy()) {
    while (composer.results.size() < 4) {
      const std::optional<MicroBatch> batch = composer.TrySubmit();
      if (!batch) break;
      sizes.push_back(batch->slices.front().start >= 8 ? batch->slices.size() : 0);
    }
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    // Whose sequences end is shorter until all have come back.
    if (since_one_ended >= 8 && sizes.size() == 4) {
      EXPECT_LE(*most - *least, 1u) << composer.decoding() << " decode";
      ++equal_rounds;
    }
    const int64_t before = composer.decoding();
    composer.Confirm();
    since_one_ended = composer.decoding() == before ? since_one_ended + 1 : 0;
    sizes.pop_front();
  }
  EXPECT_GT(equal_rounds, 20);
}

TEST(Chunks, OfEqualTimeShrinkAsAPromptGoesOn) {
  for (const Policy policy : {Policy::kInterleaved, Policy::kPhases}) {
    const char* const name = PolicyName(policy);
    SchedulerOptions options = Options(policy);
    options.max_num_batched_tokens = options.prefill_chunk = 256;
    options.chunking = Chunking::kEqualTime;
    options.context = 16384;
    options.max_open_tokens = 65536;
    options.group_blocks = {1024};
    Composer composer(options);
    composer.Add(1, 3000, 1);
    std::vector<int32_t> rows;
    while (composer.busy()) rows.push_back(composer.Step(1000, 100, 0.2).front().count);
    ASSERT_GT(rows.size(), 12u) << name;
    for (int chunk = 0; chunk < 8; ++chunk) EXPECT_EQ(rows[chunk], 256) << name << ": before anything is known";
    for (size_t chunk = 9; chunk + 1 < rows.size(); ++chunk) {
      EXPECT_LT(rows[chunk], 160) << name << ", chunk " << chunk;
      EXPECT_LE(rows[chunk], rows[chunk - 1]) << name << ", chunk " << chunk;
      EXPECT_EQ(rows[chunk] % 16, 0) << name;
    }
  }
}

TEST(Chunks, OfEqualTimeShareAMicroBatchThatTakesNoLongerForSeveralPrompts) {
  constexpr int32_t kChunk = 128;
  constexpr double kRowUs = 100, kPairUs = 0.03;
  for (const int32_t budget : {kChunk, 2 * kChunk}) {
    SchedulerOptions options = Options(Policy::kInterleaved);
    options.max_num_batched_tokens = budget;
    options.prefill_chunk = kChunk;
    options.chunking = Chunking::kEqualTime;
    options.context = options.max_open_tokens = 16384;
    options.group_blocks = {2048};
    Composer composer(options);
    composer.Add(1, 1600, 1);
    for (int step = 0; step < 10; ++step) composer.Step(1000, kRowUs, kPairUs);
    for (SequenceId id = 2; id <= 5; ++id) composer.Add(id, 300 * static_cast<int64_t>(id), 1);
    const double most_us = 1.02 * (kRowUs + kPairUs * kChunk) * budget;
    int shared = 0;
    while (composer.busy()) {
      const std::vector<SequenceSlice> slices = composer.Step(1000, kRowUs, kPairUs);
      double us = 0;
      for (const SequenceSlice& s : slices) us += kRowUs * s.count + kPairUs * s.count * (s.count + 2.0 * s.start);
      EXPECT_LE(us, most_us) << Composer::Describe(slices);
      shared += slices.size() > 1 ? 1 : 0;
    }
    EXPECT_GT(shared, 3) << budget;
  }
}

TEST(Chunks, OfEqualTimeKeepToTheRowsOfAMicroBatchAndEndWithTheContext) {
  constexpr int64_t kContext = 2000;
  constexpr int32_t kChunk = 120;
  const std::map<SequenceId, std::pair<int64_t, int64_t>> prompts_and_outputs = {
      {1, {kContext - 1, 500}}, {2, {kContext - 10, 500}}, {3, {700, 300}}, {4, {30, 60}}};
  for (const auto& [policy, name] : kPolicies) {
    for (const int32_t budget : {48, 100, 300}) {
      SchedulerOptions options = Options(policy);
      options.max_num_batched_tokens = budget;
      options.prefill_chunk = kChunk;
      options.chunking = Chunking::kEqualTime;
      options.context = kContext;
      options.max_open_tokens = 8 * kContext;
      options.group_blocks = {1024};
      Composer composer(options);
      for (const auto& [id, lengths] : prompts_and_outputs) composer.Add(id, lengths.first, lengths.second);
      std::map<SequenceId, int64_t> rows;
      int shrunk = 0;
      while (composer.busy()) {
        const std::vector<SequenceSlice> slices = composer.Step(1000, 100, 1);
        int64_t sum = 0;
        for (const SequenceSlice& slice : slices) {
          EXPECT_EQ(slice.start, rows[slice.sequence]);
          EXPECT_LE(slice.count, std::min(kChunk, budget));
          rows[slice.sequence] += slice.count;
          sum += slice.count;
          shrunk += slice.count == kEqualTimeLeastRows ? 1 : 0;
        }
        ASSERT_LE(sum, budget) << name << ": " << Composer::Describe(slices);
      }
      for (const auto& [id, lengths] : prompts_and_outputs) {
        const auto& [prompt, output] = lengths;
        EXPECT_EQ(rows[id], std::min(prompt + output, kContext) - 1) << name << ", sequence " << id;
      }
      if (policy == Policy::kPrefillFirst) {
        EXPECT_EQ(shrunk > 0, budget > kEqualTimeLeastRows) << budget;
      }
    }
  }
}

TEST(DecodeRows, AreSpreadEvenlyOverTheMicroBatchesInFlight) {
  SchedulerOptions options = Options(Policy::kInterleaved);
  options.micro_batches = 4;
  Composer composer(options);
  composer.AddAll(1, 7, 3);
  composer.Step();
  std::vector<std::vector<SequenceSlice>> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(composer.Submit());
  EXPECT_EQ(Composer::Describe(batches[0]), "1:3+1 2:3+1");
  EXPECT_EQ(Composer::Describe(batches[1]), "3:3+1 4:3+1");
  EXPECT_EQ(Composer::Describe(batches[2]), "5:3+1 6:3+1");
  EXPECT_EQ(Composer::Describe(batches[3]), "7:3+1") << "it does not wait for its share to fill up";
  for (int round = 0; round < 20; ++round) {
    composer.Confirm();
    EXPECT_THAT(composer.Submit(), SizeIs(round % 4 == 3 ? 1 : 2));
  }
}

TEST(DecodeRows, TakeTurnsEvenWhenOneMicroBatchIsInFlightAtATime) {
  SchedulerOptions options = Options(Policy::kInterleaved);
  options.micro_batches = 4;
  Composer composer(options);
  composer.AddAll(1, 8, 3);
  composer.Step();
  std::map<SequenceId, int> rows;
  for (int step = 0; step < 40; ++step) {
    for (const SequenceSlice& slice : composer.Step()) ++rows[slice.sequence];
  }
  EXPECT_THAT(rows, SizeIs(8));
  EXPECT_THAT(rows, ::testing::Each(Pair(::testing::_, 10)));
}

// Four stages, half of the 64 sequences ended.
PhaseLoad HalfEmpty() {
  return {.running = 32,
          .admissible = 32,
          .admissible_rows = 32 * 200,
          .budget_rows = 512,
          .groups = 4,
          .stages = 4,
          .cost = RowCost{.fixed_us = 1600, .row_us = 100}};
}

struct PhaseSwitch : ::testing::Test {
  PhaseLoad load = HalfEmpty();
};

TEST_F(PhaseSwitch, IntensitiesAreThoseOfTheFormula) {
  EXPECT_NEAR(DecodeIntensity(HalfEmpty()), 8.0 / 24 / (16.0 / 32), 1e-9);
  EXPECT_EQ(PhaseStepRows(HalfEmpty()), 184);  // the root of 16 * 6400 / 3
  EXPECT_NEAR(PrefillIntensity(HalfEmpty()), 1 - 3 * (184 - 16.0) / (6400 + 16 * 35 + 3 * (184 + 16)), 1e-9);
}

TEST_F(PhaseSwitch, StepsShrinkAsRowsRunOut) {
  int64_t before = load.budget_rows;
  for (const int64_t rows : {1 << 30, 100000, 10000, 1000, 1}) {
    load.admissible_rows = rows;
    EXPECT_LE(PhaseStepRows(load), before);
    before = PhaseStepRows(load);
  }
  EXPECT_EQ(before, 64);
  load.budget_rows = 7;
  EXPECT_EQ(PhaseStepRows(load), 7);
  load.stages = 1;
  load.budget_rows = 512;
  EXPECT_EQ(PhaseStepRows(load), 512) << "there is no pipeline to fill";
}

TEST_F(PhaseSwitch, PromptsGetTheirPhaseAtOnceWhenNothingRuns) {
  load.running = 0;
  load.admissible = load.admissible_rows = 1;
  EXPECT_TRUE(PrefillPays(load));
  load.cost = RowCost{.fixed_us = 0, .row_us = 0};
  EXPECT_TRUE(PrefillPays(load));
}

TEST_F(PhaseSwitch, OneFreePlaceIsNotWorthTheBubbleAndManyAre) {
  load.running = 63;
  load.admissible = 1;
  load.admissible_rows = 200;
  EXPECT_FALSE(PrefillPays(load));
  EXPECT_TRUE(PrefillPays(HalfEmpty()));
}

TEST_F(PhaseSwitch, WithoutAPipelineThereIsNoBubbleToFear) {
  load.stages = load.groups = 1;
  load.running = 63;
  load.admissible = 1;
  load.admissible_rows = 200;
  EXPECT_TRUE(PrefillPays(load));
}

TEST_F(PhaseSwitch, SmallDecodeBatchesCostMoreWhereReadingTheWeightsDoes) {
  PhaseLoad cheap = HalfEmpty(), dear = HalfEmpty();
  cheap.cost = RowCost{.fixed_us = 100, .row_us = 100};
  dear.cost = RowCost{.fixed_us = 100000, .row_us = 100};
  EXPECT_GT(DecodeIntensity(cheap), DecodeIntensity(dear));
  EXPECT_NEAR(DecodeIntensity(dear), 0.5, 0.01) << "half of the rows for the same reading";
  dear.cost = RowCost{.fixed_us = 1, .row_us = 0};
  EXPECT_NEAR(DecodeIntensity(dear), 0.5, 0.01) << "rows that cost nothing";
}

// deepseek-v3's experts: what a step of 64 rows reads is nearly all, and a step of one row a thirtieth.
PhaseLoad WithExperts() {
  PhaseLoad load = HalfEmpty();
  load.cost = RowCost{.fixed_us = 1600,
                      .row_us = 100,
                      .read_us = 1600,
                      .reads = {.experts = 0.97, .chosen = 8.0 / 256},
                      .most_rows = 1000};
  return load;
}

TEST_F(PhaseSwitch, ExpertsWantLargerStepsOfPrompts) {
  PhaseLoad load = WithExperts();
  load.admissible_rows = 1000;
  const double saturated = load.cost->FixedUs(1e6) / 100;
  EXPECT_NEAR(static_cast<double>(PhaseStepRows(load)), std::sqrt(saturated * 1000 / 3), 2);
  PhaseLoad line = HalfEmpty();
  line.admissible_rows = 1000;
  EXPECT_GT(PhaseStepRows(load), 4 * PhaseStepRows(line));
}

TEST_F(PhaseSwitch, StepsWithExpertsGrowNoFasterThanWhatIsKnown) {
  PhaseLoad load = WithExperts();
  load.cost->row_us = 0;  // hidden so far
  load.cost->most_rows = 3;
  EXPECT_EQ(PhaseStepRows(load), 128);
  load.cost->most_rows = 128;
  EXPECT_EQ(PhaseStepRows(load), 256);
  load.cost->most_rows = 500;
  EXPECT_EQ(PhaseStepRows(load), 512);
  load.cost->reads = {};
  load.cost->most_rows = 3;
  EXPECT_EQ(PhaseStepRows(load), 512) << "without experts a line tells";
}

TEST_F(PhaseSwitch, SmallDecodeBatchesOfExpertsReadLessAsWell) {
  PhaseLoad load = WithExperts();
  load.running = load.admissible = 8;
  load.cost->row_us = 1;
  PhaseLoad dense = load;
  dense.cost->read_us = 0;
  EXPECT_NEAR(DecodeIntensity(dense), 0.5, 0.01) << "two rows a group take as long as four";
  EXPECT_GT(DecodeIntensity(load), 0.75) << "and read much less here";
}

TEST_F(PhaseSwitch, FewerSequencesThanGroupsLeaveStagesEmpty) {
  load.cost = RowCost{.fixed_us = 0, .row_us = 100};
  load.running = 1;
  load.admissible = 3;
  EXPECT_NEAR(DecodeIntensity(load), 0.25, 1e-9);
}

}  // namespace
}  // namespace stagecoach
