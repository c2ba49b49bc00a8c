#include "stage_worker/kv/slot_table.h"

#include <string>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

SequenceSlice StateSlice(SequenceId sequence, int32_t start, int32_t count, SlotId read, SlotId write) {
  SequenceSlice slice{.sequence = sequence, .start = start, .count = count};
  slice.state_read = read;
  slice.state_write = write;
  return slice;
}

// Four slots; slot 1 is the state of 20 rows, slot 2 of 32.
class SlotTableTest : public ::testing::Test {
 protected:
  SlotTableTest() : table_(4) {
    EXPECT_TRUE(Apply({StateSlice(5, 0, 20, kNoSlot, 1), StateSlice(6, 0, 32, kNoSlot, 2)}).ok());
  }

  absl::Status Apply(const std::vector<SequenceSlice>& slices) {
    const MicroBatch batch = {.number = 12, .slices = slices};
    const absl::Status status = table_.Validate(batch);
    if (status.ok()) table_.Commit(batch);
    return status;
  }

  // With this message and nothing changed: the same check gives the same answer again, and a good batch is taken.
  void ExpectRefused(const std::vector<SequenceSlice>& slices, const std::string& message) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(Apply(slices), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    }
    EXPECT_EQ(table_.rows(1), 20);
    EXPECT_EQ(table_.rows(2), 32);
    EXPECT_EQ(table_.rows(3), SlotTable::kNeverWritten);
    const MicroBatch good = {.slices = {StateSlice(5, 20, 1, 1, 1), StateSlice(6, 32, 1, 2, 3)}};
    EXPECT_TRUE(table_.Validate(good).ok());
  }

  SlotTable table_;
};

TEST_F(SlotTableTest, FollowsStatesInPlaceAndToOtherSlots) {
  ASSERT_TRUE(Apply({StateSlice(5, 20, 7, 1, 1), StateSlice(6, 32, 1, 2, 3)}).ok());
  EXPECT_EQ(table_.rows(1), 27);
  EXPECT_EQ(table_.rows(2), 32);  // a snapshot now
  EXPECT_EQ(table_.rows(3), 33);
  ASSERT_TRUE(Apply({StateSlice(7, 32, 4, 2, 0)}).ok());
  EXPECT_EQ(table_.rows(0), 36);
  ASSERT_TRUE(Apply({StateSlice(8, 0, 5, kNoSlot, 2)}).ok());  // cleared by reading zeros
  EXPECT_EQ(table_.rows(2), 5);
}

TEST_F(SlotTableTest, LetsTwoSlicesReadOneSlotThatNoneWrites) {
  ASSERT_TRUE(Apply({StateSlice(7, 32, 4, 2, 0), StateSlice(8, 32, 9, 2, 3)}).ok());
  EXPECT_EQ(table_.rows(0), 36);
  EXPECT_EQ(table_.rows(3), 41);
}

TEST_F(SlotTableTest, RefusesSlotsOutsideOfThePool) {
  ExpectRefused({StateSlice(5, 20, 1, 1, 4)}, "sequence 5 writes state slot 4, the pool has slots 0 to 3");
  ExpectRefused({StateSlice(5, 20, 1, 1, kNoSlot)}, "writes state slot -1, the pool has slots 0 to 3");
  ExpectRefused({StateSlice(5, 20, 1, 4, 1)}, "reads state slot 4, the pool has slots 0 to 3");
  ExpectRefused({StateSlice(5, 20, 1, -2, 1)}, "reads state slot -2");
  ExpectRefused({StateSlice(5, 20, 1, 1, -2)}, "writes state slot -2");
}

TEST_F(SlotTableTest, RefusesToReadWhatIsNotTheStateOfTheRowsBefore) {
  ExpectRefused({StateSlice(5, 20, 1, 3, 3)}, "starts at position 20 and reads state slot 3, which was never written");
  ExpectRefused({StateSlice(5, 20, 1, 2, 1)}, "reads state slot 2, which is the state of 32 rows");
  ExpectRefused({StateSlice(5, 21, 1, 1, 1)}, "starts at position 21 and reads state slot 1, which is the state of 20");
  ExpectRefused({StateSlice(5, 0, 1, 1, 1)}, "starts at position 0 and reads state slot 1, which is the state of 20");
  ExpectRefused({StateSlice(5, -1, 1, 3, 3)}, "which was never written");
}

TEST_F(SlotTableTest, RefusesZerosBehindTheFirstRow) {
  ExpectRefused({StateSlice(5, 20, 1, kNoSlot, 1)},
                "starts at position 20 and reads no state slot, expected the slot of its rows so far");
}

TEST_F(SlotTableTest, RefusesSlotsThatOneSliceWritesAndAnotherNames) {
  const std::string message = "names state slot 1, which one of several slices of micro-batch 12 writes";
  ExpectRefused({StateSlice(5, 20, 1, 1, 1), StateSlice(7, 0, 1, kNoSlot, 1)}, message);
  ExpectRefused({StateSlice(7, 0, 1, kNoSlot, 1), StateSlice(5, 20, 1, 1, 3)}, message);
  ExpectRefused({StateSlice(5, 20, 1, 1, 3), StateSlice(7, 0, 1, kNoSlot, 1)}, message);
  ExpectRefused({StateSlice(5, 20, 1, 1, 1), StateSlice(5, 20, 1, 1, 3)}, message);
  ExpectRefused({StateSlice(5, 20, 1, 1, 1), StateSlice(5, 21, 1, 1, 1)}, "is the state of 20 rows");
}

TEST(SlotTable, OfAModelWithoutRecurrentLayersHasNoneToName) {
  SlotTable table(0);
  EXPECT_TRUE(table.Validate({.slices = {StateSlice(5, 20, 1, kNoSlot, kNoSlot)}}).ok());
  for (const auto& [read, write] : {std::pair(0, kNoSlot), std::pair(kNoSlot, 0)}) {
    EXPECT_THAT(table.Validate({.slices = {StateSlice(5, 0, 1, read, write)}}),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the model has no recurrent layers")));
  }
  table.Commit({.slices = {StateSlice(5, 20, 1, kNoSlot, kNoSlot)}});
}

}  // namespace
}  // namespace stagecoach
