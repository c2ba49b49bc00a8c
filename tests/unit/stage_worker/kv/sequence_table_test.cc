#include "stage_worker/kv/sequence_table.h"

#include <string>
#include <utility>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int32_t kBlockTokens = 16;

OpenSequence Open(SequenceId sequence) { return {.sequence = sequence, .prompt = {1}}; }

// Blocks of the same ids in both groups.
SequenceSlice Slice(SequenceId sequence, int32_t start, int32_t count, const std::vector<BlockId>& blocks = {}) {
  SequenceSlice slice{.sequence = sequence, .start = start, .count = count};
  if (!blocks.empty()) slice.new_blocks = {blocks, blocks};
  return slice;
}

// Of each group its own.
SequenceSlice SliceOf(SequenceId sequence, int32_t start, int32_t count, const BlockLists& blocks,
                      const std::vector<int32_t>& released = {}) {
  return {.sequence = sequence, .start = start, .count = count, .new_blocks = blocks, .released_blocks = released};
}
OpenSequence OpenOf(SequenceId sequence, int32_t rows, const BlockLists& shared) {
  return {.sequence = sequence, .prompt = {1}, .shared_blocks = shared, .shared_rows = rows};
}

OpenSequence OpenBehind(SequenceId sequence, int32_t rows, const std::vector<BlockId>& shared) {
  return OpenOf(sequence, rows, {shared, shared});
}

// A table of two groups, of 8 and 6 blocks, with sequence 1 open: 20 rows in blocks 3 and 5 of both.
class SequenceTableTest : public ::testing::Test {
 protected:
  SequenceTableTest() : table_(kBlockTokens, {8, 6}, 64) {
    EXPECT_TRUE(table_.Apply({.open = {Open(1)}, .slices = {Slice(1, 0, 20, {3, 5})}}).ok());
  }

  // The batch is refused with this message, and sequence 1 and the number of used blocks are as before.
  void ExpectRefused(const MicroBatch& batch, const std::string& message, const std::string& why = "") {
    SCOPED_TRACE(why);
    EXPECT_THAT(table_.Apply(batch), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    ASSERT_NE(table_.Find(1), nullptr);
    EXPECT_EQ(table_.Find(1)->rows, 20);
    EXPECT_THAT(table_.Find(1)->tables, Each(ElementsAre(3, 5)));
    EXPECT_EQ(table_.size(), 1u);
    for (size_t group = 0; group < 2; ++group) EXPECT_EQ(table_.blocks_in_use(group), 2);
  }

  SequenceTable table_;
};

TEST_F(SequenceTableTest, AppendsRowsAndBlocksInOrder) {
  MicroBatch batch;
  batch.slices = {Slice(1, 20, 12), Slice(1, 32, 1, {0})};
  ASSERT_TRUE(table_.Apply(batch).ok());
  EXPECT_EQ(table_.Find(1)->rows, 33);
  EXPECT_THAT(table_.Find(1)->tables, Each(ElementsAre(3, 5, 0)));
  for (size_t group = 0; group < 2; ++group) EXPECT_EQ(table_.blocks_in_use(group), 3);
}

TEST_F(SequenceTableTest, GivesABlockFreedByABatchAwayInTheSameBatch) {
  MicroBatch batch;
  batch.free = {1};
  batch.open = {Open(2), Open(1)};
  batch.slices = {Slice(2, 0, 16, {5}), Slice(1, 0, 1, {3})};
  ASSERT_TRUE(table_.Apply(batch).ok());
  EXPECT_THAT(table_.Find(2)->tables, Each(ElementsAre(5)));
  EXPECT_THAT(table_.Find(1)->tables, Each(ElementsAre(3)));
  EXPECT_EQ(table_.Find(1)->rows, 1);
}

TEST_F(SequenceTableTest, ForgetsAFreedSequence) {
  MicroBatch batch;
  batch.free = {1};
  ASSERT_TRUE(table_.Apply(batch).ok());
  EXPECT_EQ(table_.Find(1), nullptr);
  for (size_t group = 0; group < 2; ++group) EXPECT_EQ(table_.blocks_in_use(group), 0);
}

TEST_F(SequenceTableTest, RefusesAFreeOfAnUnknownSequence) {
  ExpectRefused({.free = {1, 7}}, "frees sequence 7, which is not open here");
  ExpectRefused({.free = {1, 1}}, "frees sequence 1 twice");
}

TEST_F(SequenceTableTest, RefusesToOpenASequenceTwice) {
  ExpectRefused({.open = {Open(1)}}, "opens sequence 1, which is open already");
  ExpectRefused({.open = {Open(2), Open(2)}}, "opens sequence 2, which is open already");
}

TEST_F(SequenceTableTest, RefusesRowsOfASequenceThatIsNotOpen) {
  ExpectRefused({.slices = {Slice(9, 0, 1, {0})}}, "rows for sequence 9, which is not open here");
  ExpectRefused({.free = {1}, .slices = {Slice(1, 20, 1)}}, "rows for sequence 1, which is not open here");
}

TEST_F(SequenceTableTest, RefusesRowsThatDoNotFollowTheLastOnes) {
  ExpectRefused({.slices = {Slice(1, 21, 1)}}, "starts at position 21, expected 20");
  ExpectRefused({.slices = {Slice(1, 20, 2), Slice(1, 20, 1)}}, "starts at position 20, expected 22");
  ExpectRefused({.slices = {Slice(1, 20, 0)}}, "has 0 rows, expected at least 1");
}

TEST_F(SequenceTableTest, RefusesABlockThatAnySequenceUses) {
  ExpectRefused({.open = {Open(2)}, .slices = {Slice(2, 0, 16, {5})}},
                "block 5 of block group 0, which sequence 1 uses");
  ExpectRefused({.slices = {Slice(1, 20, 1, {3})}}, "block 3 of block group 0, which sequence 1 uses");
  ExpectRefused({.open = {Open(2)}, .slices = {Slice(1, 20, 13, {0}), Slice(2, 0, 1, {0})}},
                "block 0 of block group 0, which this micro-batch gave away already");
}

TEST_F(SequenceTableTest, RefusesABlockOutOfRange) {
  ExpectRefused({.slices = {Slice(1, 20, 1, {8})}}, "block 8 of block group 0, the pool has blocks 0 to 7");
  ExpectRefused({.slices = {Slice(1, 20, 1, {-1})}}, "block -1 of block group 0, the pool has blocks 0 to 7");
}

TEST_F(SequenceTableTest, KeepsTheTablesOfTheGroupsApart) {
  ASSERT_TRUE(table_.Apply({.slices = {SliceOf(1, 20, 20, {{7}, {2}})}}).ok());
  EXPECT_THAT(table_.Find(1)->tables, ElementsAre(ElementsAre(3, 5, 7), ElementsAre(3, 5, 2)));
  EXPECT_TRUE(table_.Apply({.open = {Open(2)}, .slices = {SliceOf(2, 0, 1, {{2}, {0}})}}).ok())
      << "block 2 is taken in the other group only";
}

TEST_F(SequenceTableTest, RefusesBlocksThatAreNotAsManyOfEveryGroup) {
  const std::pair<BlockLists, const char*> cases[] = {
      {{{0}}, "sequence 1 is given blocks of 1 block groups, expected 2"},
      {{{0}, {0}, {0}}, "sequence 1 is given blocks of 3 block groups, expected 2"},
      {{{0}, {0, 1}}, "sequence 1 is given 2 blocks of block group 1, expected 1 as of group 0"},
      {{{0}, {6}}, "block 6 of block group 1, the pool has blocks 0 to 5"},
      {{{0}, {5}}, "block 5 of block group 1, which sequence 1 uses"},
  };
  for (const auto& [blocks, message] : cases) ExpectRefused({.slices = {SliceOf(1, 20, 20, blocks)}}, message);
}

TEST_F(SequenceTableTest, SharesFullBlocksAndCountsWhoHasThem) {
  MicroBatch batch;
  batch.open = {OpenBehind(2, 16, {3})};
  batch.slices = {Slice(2, 16, 17, {0, 1})};
  ASSERT_TRUE(table_.Apply(batch).ok());
  EXPECT_EQ(table_.Find(2)->rows, 33);
  EXPECT_THAT(table_.Find(2)->tables, Each(ElementsAre(3, 0, 1)));
  for (size_t group = 0; group < 2; ++group) {
    EXPECT_EQ(table_.references(group, 3), 2);
    EXPECT_EQ(table_.blocks_in_use(group), 4) << "each once";
  }
  batch = {};
  batch.slices = {Slice(2, 33, 16, {3})};
  EXPECT_THAT(std::string(table_.Apply(batch).message()), HasSubstr("block 3 of block group 0, which 2 sequences use"));
  batch.slices = {};
  batch.free = {1};
  ASSERT_TRUE(table_.Apply(batch).ok());
  EXPECT_EQ(table_.references(0, 3), 1);
  EXPECT_EQ(table_.blocks_in_use(0), 3);
  batch.free = {2};
  batch.open = {OpenBehind(3, 32, {3, 0})};
  batch.slices = {Slice(3, 32, 1, {5})};
  ASSERT_TRUE(table_.Apply(batch).ok()) << "nobody has them any more, but they are what they were";
  EXPECT_THAT(table_.Find(3)->tables, Each(ElementsAre(3, 0, 5)));
  EXPECT_EQ(table_.blocks_in_use(0), 3);
}

TEST_F(SequenceTableTest, RefusesToShareABlockThatIsNotFullOrWasFilledElsewhere) {
  const std::pair<OpenSequence, const char*> cases[] = {
      {OpenBehind(2, 32, {3, 5}), "sequence 2 is opened with shared block 5 of block group 0, which is not full"},
      {OpenBehind(2, 16, {0}), "shared block 0 of block group 0, which is not full"},
      {OpenBehind(2, 32, {3, 3}),
       "shared block 3 of block group 0 at place 1 of its table, but it was filled at place 0"},
      {OpenBehind(2, 16, {8}), "shared block 8 of block group 0, the pool has blocks 0 to 7"},
      {OpenBehind(2, 16, {-1}), "shared block -1 of block group 0"},
      {OpenOf(2, 16, {{3}, {5}}), "shared block 5 of block group 1, which is not full"},
  };
  for (const auto& [open, message] : cases) ExpectRefused({.open = {open}}, message);
  ExpectRefused({.open = {OpenBehind(2, 32, {3, 5})}, .slices = {Slice(1, 20, 12)}}, "which is not full",
                "this micro-batch fills it");
}

TEST_F(SequenceTableTest, RefusesSharedRowsThatAreNotThoseOfTheSharedBlocks) {
  const std::pair<OpenSequence, const char*> cases[] = {
      {OpenBehind(2, 17, {3}), "sequence 2 is opened with 17 shared rows, expected a multiple of 16 below 64"},
      {OpenBehind(2, -16, {3}), "-16 shared rows"},
      {OpenBehind(2, 64, {3, 5, 0, 1}), "64 shared rows"},
      {OpenBehind(2, 32, {3}), "1 shared blocks of block group 0, expected 2"},
      {OpenBehind(2, 0, {3}), "shared blocks of 2 block groups, expected 0"},
      {OpenOf(2, 16, {{3}}), "shared blocks of 1 block groups, expected 2"},
  };
  for (const auto& [open, message] : cases) ExpectRefused({.open = {open}}, message);
  ExpectRefused({.open = {OpenBehind(2, 16, {3})}, .slices = {Slice(2, 0, 20, {0})}},
                "a slice of sequence 2 starts at position 0, expected 16");
}

TEST_F(SequenceTableTest, RefusesToGiveAwayABlockThatIsShared) {
  MicroBatch batch;
  batch.free = {1};
  batch.open = {OpenBehind(2, 16, {3}), Open(4)};
  batch.slices = {Slice(4, 0, 1, {3})};
  ExpectRefused(batch, "sequence 4 is given block 3 of block group 0, which this micro-batch shares");
  batch.slices = {Slice(4, 0, 1, {5})};
  ASSERT_TRUE(table_.Apply(batch).ok());
  batch = {};
  batch.open = {OpenBehind(6, 32, {3, 5})};
  EXPECT_THAT(std::string(table_.Apply(batch).message()),
              HasSubstr("shared block 5 of block group 0, which is not full"))
      << "it was, before it was given away";
}

TEST_F(SequenceTableTest, RefusesFewerOrMoreBlocksThanTheRowsNeedAndMoreRowsThanTheContextHolds) {
  ExpectRefused({.slices = {Slice(1, 20, 13)}}, "33 rows in 2 blocks of 16 tokens, expected 3 blocks");
  ExpectRefused({.slices = {Slice(1, 20, 12, {0})}}, "32 rows in 3 blocks of 16 tokens, expected 2 blocks");
  ExpectRefused({.slices = {Slice(1, 20, 45, {0, 1, 2})}}, "65 rows, the context is 64");
}

// Rows see all positions in group 0 and their own and the 19 before it in group 1. Sequence 1 is open: 60 rows in
// blocks 0 to 3 of group 0 and 5 to 2 of group 1.
class WindowedTableTest : public ::testing::Test {
 protected:
  WindowedTableTest() : table_(kBlockTokens, {8, 6}, 128, {0, 20}) {
    EXPECT_TRUE(table_.Apply({.open = {Open(1)}, .slices = {SliceOf(1, 0, 60, {{0, 1, 2, 3}, {5, 4, 3, 2}})}}).ok());
  }

  void ExpectRefused(const MicroBatch& batch, const std::string& message) {
    const std::vector<BlockId> before = table_.Find(1)->tables[1];
    EXPECT_THAT(table_.Apply(batch), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    ASSERT_NE(table_.Find(1), nullptr);
    EXPECT_EQ(table_.Find(1)->rows, 60);
    EXPECT_EQ(table_.Find(1)->tables[1], before);
    EXPECT_EQ(table_.size(), 1u);
    EXPECT_EQ(table_.blocks_in_use(1), 4);
  }

  SequenceTable table_;
};

TEST_F(WindowedTableTest, ReleasesBlocksBehindTheWindowAndGivesThemAwayInTheSameMicroBatch) {
  MicroBatch batch;
  batch.open = {Open(2)};
  batch.slices = {SliceOf(1, 60, 5, {{4}, {5}}, {0, 2}), SliceOf(2, 0, 1, {{5}, {4}})};
  ASSERT_TRUE(table_.Apply(batch).ok()) << table_.Apply(batch);
  EXPECT_THAT(table_.Find(1)->tables,
              ElementsAre(ElementsAre(0, 1, 2, 3, 4), ElementsAre(kNoBlock, kNoBlock, 3, 2, 5)));
  EXPECT_THAT(table_.Find(1)->released, ElementsAre(0, 2));
  EXPECT_THAT(table_.Find(2)->tables[1], ElementsAre(4));
  EXPECT_EQ(table_.blocks_in_use(0), 6);
  EXPECT_EQ(table_.blocks_in_use(1), 4);
  batch = {};
  batch.slices = {SliceOf(1, 65, 2, {}, {0, 2})};
  EXPECT_TRUE(table_.Apply(batch).ok()) << "what is said again";
  batch.slices = {};
  batch.free = {1};
  ASSERT_TRUE(table_.Apply(batch).ok());
  EXPECT_EQ(table_.blocks_in_use(0), 1);
  EXPECT_EQ(table_.blocks_in_use(1), 1);
}

TEST_F(WindowedTableTest, RefusesToReleaseWhatARowStillSees) {
  ExpectRefused({.slices = {SliceOf(1, 60, 1, {}, {0, 3})}},
                "a slice of sequence 1: released_blocks[1] is 3, expected 0 to 2, of what the row at position 60 "
                "does not see, with a window of 20");
  ExpectRefused({.slices = {SliceOf(1, 60, 1, {}, {1, 2})}},
                "released_blocks[0] is 1, expected 0 to 0, of a block group without a window");
  ExpectRefused({.slices = {SliceOf(1, 60, 1, {}, {0, -1})}}, "released_blocks[1] is -1");
  ExpectRefused({.slices = {SliceOf(1, 60, 1, {}, {0, 2147483647})}}, "released_blocks[1] is 2147483647");
  ExpectRefused({.slices = {SliceOf(1, 60, 1, {}, {2})}}, "released_blocks has 1 entries, expected none or 2");
}

TEST_F(WindowedTableTest, RefusesToTakeAReleaseBack) {
  ExpectRefused({.slices = {SliceOf(1, 60, 1, {}, {0, 2}), SliceOf(1, 61, 1, {}, {0, 1})}},
                "a slice of sequence 1 has 1 released places of block group 1, which had 2 already");
}

TEST_F(WindowedTableTest, RefusesToReleaseWhatAnEarlierSliceOfTheSameMicroBatchSees) {
  ExpectRefused({.slices = {SliceOf(1, 60, 40, {{4, 5, 6}, {0, 1, 1}}), SliceOf(1, 100, 1, {}, {0, 5})}},
                "which this micro-batch gave away already");
  ExpectRefused({.slices = {SliceOf(1, 60, 20, {{4}, {0}}), SliceOf(1, 80, 31, {{5, 6}, {1, 3}}, {0, 3})}},
                "has 3 released places of block group 1, expected at most 2: rows of this micro-batch see the");
}

TEST_F(WindowedTableTest, RefusesABlockThatIsReleasedOnlyLater) {
  ExpectRefused({.open = {Open(2)}, .slices = {SliceOf(2, 0, 1, {{4}, {5}}), SliceOf(1, 60, 1, {}, {0, 2})}},
                "sequence 2 is given block 5 of block group 1, which sequence 1 uses");
}

TEST_F(WindowedTableTest, SharesOfAWindowOnlyWhatTheFirstRowSees) {
  MicroBatch batch = {.open = {OpenOf(2, 48, {{0, 1, 2}, {4, 3}})}, .slices = {SliceOf(2, 48, 1, {{4}, {0}})}};
  ASSERT_TRUE(table_.Apply(batch).ok()) << table_.Apply(batch);
  EXPECT_THAT(table_.Find(2)->tables, ElementsAre(ElementsAre(0, 1, 2, 4), ElementsAre(kNoBlock, 4, 3, 0)));
  EXPECT_EQ(table_.references(1, 4), 2);
  EXPECT_EQ(table_.references(1, 5), 1);
  ASSERT_TRUE(table_.Apply({.slices = {SliceOf(1, 60, 1, {}, {0, 2})}}).ok());
  EXPECT_EQ(table_.references(1, 4), 1) << "sequence 2 has it still";
  EXPECT_EQ(table_.references(1, 5), 0);
}

TEST_F(WindowedTableTest, RefusesToShareTooFewOrTheWrongBlocksOfAWindow) {
  const std::pair<BlockLists, const char*> cases[] = {
      {{{0, 1, 2}, {3}}, "sequence 2 is opened with 1 shared blocks of block group 1, expected 2 to 3"},
      {{{0, 1, 2}, {5, 4, 3, 2}}, "4 shared blocks of block group 1, expected 2 to 3"},
      {{{1, 2}, {4, 3}}, "2 shared blocks of block group 0, expected 3"},
      {{{0, 1, 2}, {5, 4}}, "shared block 5 of block group 1 at place 1 of its table, but it was filled at place 0"},
      {{{0, 1, 2}, {kNoBlock, 3}}, "shared block -1 of block group 1"},
  };
  for (const auto& [shared, message] : cases) ExpectRefused({.open = {OpenOf(2, 48, shared)}}, message);
}

}  // namespace
}  // namespace stagecoach
