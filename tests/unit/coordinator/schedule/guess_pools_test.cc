// Guessed rows, and the blocks and slots that they need.

#include <algorithm>
#include <vector>

#include "tests/unit/coordinator/schedule/guess_machine.h"

namespace stagecoach {
namespace {

struct WindowedGuesses : GuessMachine {
  static SchedulerOptions WithWindow() {
    SchedulerOptions options = Options();
    options.group_blocks = {64, 12};
    options.group_windows = {0, 5};
    return options;
  }
  WindowedGuesses() : GuessMachine(WithWindow()) {}
};

TEST_F(WindowedGuesses, GiveBackWhatTheRowsSeeNoMoreThatMayTakeTheirPlace) {
  Decode({Spec(1, 7, 60)});
  int released = 0;
  while (scheduler_.counters().guesses < 40 && !HasFailure()) {
    for (const MicroBatch& batch : Fill()) {
      for (const SequenceSlice& slice : batch.slices) released += slice.guess && !slice.released_blocks.empty() ? 1 : 0;
    }
    Confirm();
  }
  EXPECT_GE(released, 8) << "40 rows in blocks of 4";
  guess_ = [](const Sequence& sequence) {
    return sequence.handed_out % 3 > 0 ? RightGuess(sequence) : WrongGuess(sequence);
  };
  RunToTheEnd();
  EXPECT_GT(scheduler_.counters().guesses_void, 0u);
}

struct TightGuesses : GuessMachine {
  static SchedulerOptions Tight() {
    SchedulerOptions options = Options();
    options.group_blocks = {7};
    options.context = 27;
    return options;
  }
  TightGuesses() : GuessMachine(Tight()) {}
};

TEST_F(TightGuesses, TakeNoBlockThatRunningSequencesWerePromised) {
  Decode({Spec(1, 6, 20), Spec(2, 7, 20)});
  scheduler_.SetDecodeGroups(1);
  EXPECT_EQ(Fill().size(), 2u);
  EXPECT_EQ(scheduler_.Find(1)->guesses.size(), 1u) << "at position 7, in the block that it has";
  EXPECT_EQ(scheduler_.Find(2)->guesses.size(), 0u);
  RunToTheEnd();
}

struct GuessesBesideAQueue : GuessMachine {
  static SchedulerOptions Small() {
    SchedulerOptions options = Options();
    options.group_blocks = {8};
    options.context = 28;
    return options;
  }
  GuessesBesideAQueue() : GuessMachine(Small()) {}
};

TEST_F(GuessesBesideAQueue, TakeNoBlockWhileItsHeadLacksSome) {
  Decode({Spec(1, 6, 20)});
  Add(Spec(2, 12, 4));
  EXPECT_EQ(Fill().size(), 2u) << "the guess at position 7 is in a block that it has";
  EXPECT_EQ(scheduler_.queue().in_turn(), 1);
  ASSERT_TRUE(scheduler_.Cancel(2).ok());
  specs_.erase(2);
  EXPECT_EQ(Fill().size(), 2u) << "nobody waits for the next block";
  RunToTheEnd();
}

struct FullPoolGuesses : GuessMachine {
  static SchedulerOptions Full() {
    SchedulerOptions options = Options();
    options.group_blocks = {4};
    options.context = 16;
    return options;
  }
  FullPoolGuesses() : GuessMachine(Full()) {}
};

TEST_F(FullPoolGuesses, OfASequenceThatTheirMicroBatchPreemptsAreNotInIt) {
  Decode({Spec(1, 7, 9), Spec(2, 5, 9)});
  scheduler_.SetDecodeGroups(1);
  Fill();
  EXPECT_EQ(scheduler_.Find(2)->guesses.size(), 2u);
  Confirm();
  const MicroBatch batch = Submit();
  EXPECT_THAT(Starts(batch), ElementsAre(8));
  EXPECT_EQ(batch.slices[0].sequence, 1u);
  EXPECT_EQ(scheduler_.Find(2)->state(), SequenceState::kPreempted);
  RunToTheEnd();
}

struct StatefulGuesses : GuessMachine {
  static SchedulerOptions WithStates() {
    SchedulerOptions options = Options();
    options.max_num_seqs = 2;
    options.state_slots = 4;
    options.state_blocks = 2;
    return options;
  }
  StatefulGuesses() : GuessMachine(WithStates()) {}
};

TEST_F(StatefulGuesses, WriteSlotsOfTheirOwnAndAMissReadsTheOneBeforeThem) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongAt({9});
  const MicroBatch known = Submit(), right = Submit(), wrong = Submit();
  EXPECT_THAT(Fill(), IsEmpty()) << "two slots are to spare";
  const SlotId first = known.slices[0].state_write, second = right.slices[0].state_write;
  EXPECT_EQ(right.slices[0].state_read, first);
  EXPECT_EQ(wrong.slices[0].state_read, second);
  EXPECT_NE(first, second);
  EXPECT_EQ(scheduler_.blocks().slots().used(), 3);
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kRight);
  EXPECT_EQ(scheduler_.blocks().slots().used(), 2);
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kWrong);
  EXPECT_EQ(scheduler_.blocks().slots().used(), 1);
  guess_ = NoGuess;
  const MicroBatch again = Submit();
  EXPECT_THAT(Starts(again), ElementsAre(9));
  EXPECT_EQ(again.slices[0].state_read, second);
  EXPECT_EQ(again.slices[0].state_write, second);
  RunToTheEnd();
}

TEST_F(StatefulGuesses, OfAllSequencesHaveNoMoreSlotsThanAreToSpare) {
  Decode({Spec(1, 7, 20), Spec(2, 7, 20)});
  guess_ = [](const Sequence& sequence) {
    return sequence.handed_out % 4 > 0 ? RightGuess(sequence) : WrongGuess(sequence);
  };
  Fill();
  EXPECT_EQ(scheduler_.Find(1)->guesses.size() + scheduler_.Find(2)->guesses.size(), 2u);
  RunToTheEnd();
}

struct CachedGuesses : GuessMachine {
  static SchedulerOptions Cached() {
    SchedulerOptions options = Options();
    options.prefix_caching = true;
    return options;
  }
  CachedGuesses() : GuessMachine(Cached()) {}

  size_t KnownBlocks() const { return scheduler_.Find(1)->chain.size(); }
  // A prompt of all tokens of the first sequence and one more.
  SequenceEvent ConfirmFirstOf(SequenceId id) {
    SequenceSpec spec = Spec(id, 0, 1);
    const Sequence& first = *scheduler_.Find(1);
    for (int64_t p = 0; p < first.tokens(); ++p) spec.prompt.push_back(first.token(p));
    spec.prompt.push_back(1);
    Add(spec);
    while (!HasFailure()) {
      Fill();
      for (SequenceEvent& event : Confirm()) {
        if (event.sequence == id) return event;
      }
    }
    return {};
  }
};

TEST_F(CachedGuesses, ABlockIsKnownOnceTheGuessThatFillsItHasHeld) {
  Decode({Spec(1, 6, 20)});
  for (int i = 0; i < 2; ++i) Submit();  // 6, 7
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kRight);
  EXPECT_EQ(KnownBlocks(), 1u) << "its row is on its way";
  Confirm();
  EXPECT_EQ(KnownBlocks(), 2u);
  guess_ = NoGuess;
  EXPECT_EQ(ConfirmFirstOf(2).cached_tokens, 8);
  guess_ = WrongGuess;
  RunToTheEnd();
}

TEST_F(CachedGuesses, SequencesThatShareBlocksFallBackBehindThem) {
  guess_ = [](const Sequence& sequence) {
    return sequence.handed_out % 3 > 0 ? RightGuess(sequence) : WrongGuess(sequence);
  };
  SequenceSpec same = Spec(1, 9, 20);
  Decode({same});
  for (SequenceId id = 2; id <= 4; ++id) {
    same.id = id;
    Add(same);
  }
  RunToTheEnd();
  EXPECT_EQ(scheduler_.counters().prefix_hits, 3 * 8);
  EXPECT_GT(scheduler_.counters().guesses_void, 0u);
}

TEST_F(CachedGuesses, ABlockThatAVoidRowFilledIsKnownOnceTheRightOneIsOnItsWay) {
  Decode({Spec(1, 6, 20)});
  guess_ = WrongAt({7});
  for (int i = 0; i < 2; ++i) Submit();  // 6, the wrong 7
  Confirm();
  guess_ = NoGuess;
  EXPECT_EQ(KnownBlocks(), 1u);
  EXPECT_THAT(Starts(Submit()), ElementsAre(7));
  EXPECT_EQ(KnownBlocks(), 2u);
  EXPECT_EQ(ConfirmFirstOf(2).cached_tokens, 8);
  guess_ = WrongGuess;
  RunToTheEnd();
}

}  // namespace
}  // namespace stagecoach
