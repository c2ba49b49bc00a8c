// Block groups with a window, sentence by sentence: what sequences have of them, and what the prefix cache makes of
// blocks that go alone. Random histories with windows: see scheduler_histories_test.cc.

#include <string>

#include "coordinator/schedule/block_manager.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

// Blocks of 4 tokens; rows of group 1 see their own position and the 5 before it.
SchedulerOptions WindowOptions() {
  return {
      {.max_num_seqs = 4,
       .policy = Policy::kInterleaved,
       .max_num_batched_tokens = 32,
       .prefill_chunk = 8,
       .block_tokens = 4,
       .prefix_caching = false},
      {.group_blocks = {40, 6}, .group_windows = {0, 6}, .context = 80, .micro_batches = 2, .max_open_tokens = 160}};
}

// Runs one sequence to its end; the rows that it found in the prefix cache.
int64_t CachedRows(Machine& machine, const SequenceSpec& spec) {
  EXPECT_TRUE(machine.scheduler.Add(spec).ok());
  int64_t cached = -1;
  while (machine.scheduler.HasUnfinished() && !::testing::Test::HasFailure()) {
    for (const SequenceEvent& event : machine.Step()) cached = event.cached_tokens;
  }
  return cached;
}

TEST(Windows, ALongSequenceHasAsManyBlocksAsItsWindowAndAChunkNeed) {
  Machine machine(WindowOptions());
  machine.Add(Spec(1, 60, 16));
  machine.RunToTheEnd();
  // 75 rows; and the window and a chunk are 13 positions, which lie in four blocks.
  EXPECT_THAT(machine.scheduler.counters().blocks_used_peak, ElementsAre(19, 4));
}

TEST(Windows, ABlockIsReleasedWithTheFirstSliceThatDoesNotSeeItAndMayComeBackWithIt) {
  SchedulerOptions options = WindowOptions();
  options.group_blocks = {40, 1};
  options.group_windows = {0, 1};  // rows see themselves alone: one block is enough
  Machine machine(options);
  machine.Add(Spec(1, 3, 10));
  EXPECT_THAT(machine.Submit().slices[0].new_blocks, ElementsAre(ElementsAre(0), ElementsAre(0)));
  machine.Confirm();
  EXPECT_THAT(machine.Submit().slices[0].released_blocks, IsEmpty());
  machine.Confirm();
  const SequenceSlice slice = machine.Submit().slices[0];
  EXPECT_EQ(slice.start, 4);
  EXPECT_THAT(slice.released_blocks, ElementsAre(0, 1));
  EXPECT_THAT(slice.new_blocks, ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(Windows, AdmissionAsksForWhatTheWindowNeedsHoweverLongThePromptIs) {
  SchedulerOptions options = WindowOptions();
  options.group_blocks = {40, 8};
  Machine machine(options);
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(Spec(id, 40, 2));
  machine.Submit();
  EXPECT_EQ(machine.scheduler.running(), 2) << "four blocks each";
  EXPECT_EQ(machine.scheduler.waiting(), 1);
}

TEST(Windows, WhereThePoolIsSmallerThanAChunkNeedsChunksAreSmaller) {
  SchedulerOptions options = WindowOptions();
  options.group_blocks = {40, 3};
  Machine machine(options);
  machine.Add(Spec(1, 40, 2));
  EXPECT_EQ(machine.Step().size(), 0u);
  EXPECT_EQ(machine.Submit().slices[0].count, 4) << "one block is there, beside two with the 5 positions before";
  machine.Confirm();
  machine.RunToTheEnd();
}

TEST(Windows, AHitEndsWhereTheWindowsBlocksAreStillThere) {
  SchedulerOptions options = WindowOptions();
  options.prefix_caching = true;
  Machine machine(options);
  EXPECT_EQ(CachedRows(machine, LikeOthers(1, 40, 0)), 0);
  EXPECT_EQ(machine.scheduler.blocks().evictable(0), 10);
  EXPECT_EQ(machine.scheduler.blocks().evictable(1), 6) << "the last ones";
  EXPECT_EQ(CachedRows(machine, LikeOthers(2, 40, 3)), 40) << "its window is that of the prompt's end";
  EXPECT_EQ(CachedRows(machine, LikeOthers(3, 20, 3)), 0) << "what lies before 20 is known, but its window is gone";
  EXPECT_EQ(CachedRows(machine, LikeOthers(4, 20, 3)), 20) << "which has been computed again";
}

TEST(Windows, AHitIsShortenedToTheLongestThatHasItsWindow) {
  SchedulerOptions options = WindowOptions();
  options.group_blocks = {40, 10};
  options.prefix_caching = true;
  Machine machine(options);
  EXPECT_EQ(CachedRows(machine, LikeOthers(1, 40, 0)), 0);
  // Takes 7 of its 10 blocks: the 6 that were released while it went on, and the deepest.
  EXPECT_EQ(CachedRows(machine, Spec(2, 28, 1)), 0);
  EXPECT_EQ(CachedRows(machine, LikeOthers(4, 40, 3)), 36) << "40 rows are known, but not the window of the last 4";
  EXPECT_EQ(CachedRows(machine, LikeOthers(3, 27, 0)), 0) << "no window before 24 is whole";
}

TEST(Windows, ALongPromptLeavesTheEndsOfConversationsInTheCache) {
  SchedulerOptions options = WindowOptions();
  options.group_blocks = {80, 16};
  options.context = 200;
  options.max_open_tokens = 400;
  options.prefix_caching = true;
  Machine machine(options);
  EXPECT_EQ(CachedRows(machine, LikeOthers(1, 21, 0)), 0);
  EXPECT_EQ(CachedRows(machine, Spec(2, 160, 1)), 0) << "it passes forty blocks of sixteen";
  EXPECT_EQ(CachedRows(machine, LikeOthers(3, 21, 8)), 20);
}

TEST(Windows, PreemptionAndSiblingsGoOnWithThem) {
  SchedulerOptions options = WindowOptions();
  options.prefix_caching = true;
  options.group_blocks = {24, 9};
  Machine machine(options);
  for (SequenceId id = 1; id <= 4; ++id) machine.Add(LikeOthers(id, 24, 0, 8));
  machine.Submit();
  EXPECT_EQ(machine.scheduler.running(), 1) << "the others wait for its prompt";
  machine.Confirm();
  machine.Step();
  machine.Step();
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  machine.RunToTheEnd();
  EXPECT_GE(machine.scheduler.counters().prefix_hits, 3 * 20);
}

TEST(Windows, OptionsThatCannotWorkAreRefused) {
  const auto message = [](std::vector<int32_t> blocks, std::vector<int64_t> windows) {
    SchedulerOptions options = WindowOptions();
    options.group_blocks = blocks;
    options.group_windows = windows;
    return std::string(ValidateSchedulerOptions(options).message());
  };
  EXPECT_EQ(message({40, 3}, {0, 6}), "");
  EXPECT_EQ(message({2, 2}, {0, 6}), "");
  EXPECT_EQ(message({40, 40}, {0}), "`group_windows` has 1 entries, expected none or 2, one a block group");
  EXPECT_EQ(message({40, 40}, {0, -1}), "`group_windows` is -1, expected 0 to 2147483647");
  EXPECT_EQ(message({40, 40}, {6, 6}), "`group_windows` has a window for every block group, expected at least one 0");
  EXPECT_EQ(message({40, 2}, {0, 6}),
            "`group_blocks` of block group 1 is 2, expected at least 3: a row sees as many with a window of 6");
}

// Two entries, one after the other, of tokens {1, 2} and {3, 4}.
struct WindowedEntries : ::testing::Test {
  WindowedEntries() : manager_({4, 4}, {5, 0}) {
    tables_ = *manager_.Allocate({2, 2});
    chain_ = Remember(tables_);
  }

  std::vector<PrefixRef> Remember(const BlockLists& tables) {
    const std::vector<TokenId> first = {1, 2}, second = {3, 4};
    const PrefixRef root = manager_.Remember({10, {}, "", first}, {tables[0][0], tables[1][0]});
    return {root, manager_.Remember({11, root, "", second}, {tables[0][1], tables[1][1]})};
  }
  void ExpectIntegrity() { EXPECT_TRUE(manager_.CheckIntegrity().ok()) << manager_.CheckIntegrity(); }

  BlockManager manager_;  // the window is that of group 0
  BlockLists tables_;
  std::vector<PrefixRef> chain_;
};

TEST_F(WindowedEntries, AReleasedBlockIsEvictableAloneAndItsEntryStays) {
  EXPECT_EQ(manager_.anchor(), 1u);
  manager_.Release(0, tables_[0][0]);
  ExpectIntegrity();
  EXPECT_EQ(manager_.evictable(0), 1);
  EXPECT_EQ(manager_.evictable(1), 0);
  EXPECT_EQ(manager_.available(0), 3);
  ASSERT_TRUE(manager_.Allocate({3, 0}).ok());
  ExpectIntegrity();
  EXPECT_EQ(manager_.BlockOf(chain_[0], 0), kNoBlock);
  EXPECT_TRUE(manager_.Holds(chain_[0]) && manager_.Holds(chain_[1]));
  tables_[0][0] = kNoBlock;
  ASSERT_TRUE(manager_.Free(tables_, chain_).ok());
  ExpectIntegrity();
  EXPECT_EQ(manager_.evictable(0), 1);
  EXPECT_EQ(manager_.evictable(1), 2);
  EXPECT_THAT(manager_.Share(chain_, {1, 0}), ElementsAre(ElementsAre(kNoBlock, tables_[0][1]), tables_[1]));
  ExpectIntegrity();
}

TEST_F(WindowedEntries, ABlockThatIsSharedIsReleasedByTheLastWhoHasIt) {
  manager_.Share(chain_);
  manager_.Release(0, tables_[0][0]);
  EXPECT_EQ(manager_.evictable(0), 0);
  manager_.Release(0, tables_[0][0]);
  EXPECT_EQ(manager_.evictable(0), 1);
  ExpectIntegrity();
}

TEST_F(WindowedEntries, AnEntryTakesTheBlockThatItLostFromWhoeverFillsOneAlike) {
  manager_.Release(0, tables_[0][0]);
  tables_[0][0] = kNoBlock;
  ASSERT_TRUE(manager_.Free(tables_, chain_).ok());
  const BlockLists others = *manager_.Allocate({3, 2});  // among them the one of the first entry
  EXPECT_EQ(manager_.BlockOf(chain_[0], 0), kNoBlock);
  EXPECT_EQ(Remember(others), chain_);
  ExpectIntegrity();
  EXPECT_EQ(manager_.BlockOf(chain_[0], 0), others[0][0]);
  EXPECT_EQ(manager_.BlockOf(chain_[1], 0), tables_[0][1]) << "this was there";
  // The entries are given up for their other blocks, while that block is in use.
  const BlockLists rest = *manager_.Allocate({0, 2});
  ExpectIntegrity();
  EXPECT_FALSE(manager_.Holds(chain_[0]));
  EXPECT_EQ(manager_.references(0, others[0][0]), 1);
  ASSERT_TRUE(manager_.Free(others, chain_).ok());
  ASSERT_TRUE(manager_.Free(rest).ok());
  ExpectIntegrity();
  EXPECT_EQ(manager_.free(0), 4);
  EXPECT_EQ(manager_.free(1), 4);
}

}  // namespace
}  // namespace stagecoach
