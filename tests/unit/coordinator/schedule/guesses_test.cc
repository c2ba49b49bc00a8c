// Guessed rows: when they are sent, and what becomes of them.

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "tests/unit/coordinator/schedule/guess_machine.h"

namespace stagecoach {
namespace {

struct Guesses : GuessMachine {
  using GuessMachine::GuessMachine;
};

TEST_F(Guesses, FillThePlacesOfOneWhoIsAloneAndEachThatHeldMakesRoomForTheNext) {
  Decode({Spec(1, 7, 20)});
  const std::vector<MicroBatch> batches = Fill();
  ASSERT_EQ(batches.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(Starts(batches[static_cast<size_t>(i)]), ElementsAre(7 + i));
    EXPECT_EQ(GuessesOf(batches[static_cast<size_t>(i)]), i > 0 ? 1 : 0);
  }
  for (int i = 0; i < 6; ++i) {
    const SequenceEvent event = ConfirmOne();
    EXPECT_EQ(event.guess, SequenceEvent::Guess::kRight);
    EXPECT_EQ(event.tokens.size(), 1u);
    EXPECT_THAT(Starts(Submit()), ElementsAre(11 + i));
  }
  RunToTheEnd();
  EXPECT_EQ(scheduler_.counters().guesses_right, scheduler_.counters().guesses);
  EXPECT_EQ(scheduler_.counters().guesses_void, 0u);
  EXPECT_EQ(scheduler_.counters().decode_rows, 1u) << "every row but the first was a guess";
}

TEST_F(Guesses, AreVoidBehindAWrongOneWhoseRightRowLeavesAtOnce) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongAt({8});
  Fill();
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kWrong);
  guess_ = NoGuess;
  const MicroBatch right = Submit();
  EXPECT_THAT(Starts(right), ElementsAre(8));
  EXPECT_FALSE(right.slices[0].guess);
  EXPECT_EQ(machine_.results.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(machine_.results.front().sampled[0].is_void);
    EXPECT_THAT(Confirm(), IsEmpty());
    EXPECT_THAT(Fill(), IsEmpty()) << "its row is on its way";
  }
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kNone);
  EXPECT_EQ(scheduler_.counters().guesses_void, 3u);
  RunToTheEnd();
}

TEST_F(Guesses, AWrongOneAtABlockBorderKeepsTheBlockThatItTook) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongGuess;
  Submit();
  const MicroBatch wrong = Submit();
  EXPECT_THAT(Starts(wrong), ElementsAre(8));
  EXPECT_EQ(wrong.slices[0].new_blocks.size(), 1u);
  Confirm();
  guess_ = NoGuess;
  const MicroBatch right = Submit();
  EXPECT_THAT(Starts(right), ElementsAre(8));
  EXPECT_THAT(right.slices[0].new_blocks, IsEmpty());
  RunToTheEnd();
}

TEST_F(Guesses, OfAPreemptedSequenceCountWhereTheyHoldAndOnlyDrainWhereTheyAreVoid) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongAt({10});
  Fill();
  Confirm();
  guess_ = NoGuess;
  ASSERT_TRUE(scheduler_.Preempt(1).ok());
  EXPECT_EQ(ConfirmOne().tokens.size(), 1u);
  EXPECT_EQ(ConfirmOne().tokens.size(), 1u);
  EXPECT_EQ(scheduler_.Find(1)->state(), SequenceState::kPreempted);
  EXPECT_THAT(Confirm(), IsEmpty());
  EXPECT_EQ(scheduler_.Find(1)->state(), SequenceState::kWaiting);
  RunToTheEnd();
}

TEST_F(Guesses, OfACancelledSequenceChangeNothingOfALaterOneWithItsId) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongAt({9});
  Fill();
  ASSERT_TRUE(scheduler_.Cancel(1).ok());
  SequenceSpec other = Spec(2, 10, 5);
  other.id = 1;
  Add(other);
  for (int i = 0; i < 4; ++i) EXPECT_THAT(Confirm(), IsEmpty());
  EXPECT_EQ(scheduler_.Find(1)->tokens(), 10);
  guess_ = WrongGuess;
  RunToTheEnd();
}

TEST_F(Guesses, AreVoidBehindAStopTokenWhichNobodyGuesses) {
  SequenceSpec spec = Spec(1, 7, 20);
  spec.stop_tokens = {ComputeAlone(spec, 128).output[3]};
  ASSERT_EQ(ComputeAlone(spec, 128).output.size(), 4u);
  Decode({spec});
  EXPECT_EQ(Fill().size(), 3u) << "a guess is a stop token";
  Confirm();
  Confirm();
  EXPECT_EQ(ConfirmOne().finished, FinishReason::kStop);
  RunToTheEnd();
  EXPECT_EQ(scheduler_.counters().guesses, 2u);
}

TEST_F(Guesses, BehindAStopTokenOrTokensThatMeanNothingAreAcceptedAsTheyAre) {
  SequenceSpec spec = Spec(1, 7, 20);
  spec.stop_tokens = {ComputeAlone(spec, 128).output[1]};
  Decode({spec, Spec(2, 7, 20)}, 2);
  scheduler_.SetDecodeGroups(1);
  guess_ = [](const Sequence& sequence) {
    return sequence.spec().id == 1 ? WrongGuess(sequence) : RightGuess(sequence);
  };
  EXPECT_EQ(Fill().size(), 2u);
  machine_.results.front().sampled[1].invalid_logits = true;
  const std::vector<SequenceEvent> events = Confirm();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].finished, FinishReason::kStop);
  EXPECT_EQ(events[1].finished, FinishReason::kInvalidLogits);
  const std::vector<SampledToken>& behind = machine_.results.front().sampled;
  ASSERT_EQ(behind.size(), 2u);
  EXPECT_TRUE(behind[0].is_void);
  EXPECT_FALSE(behind[1].is_void) << "the last stage knows of no end";
  EXPECT_THAT(Confirm(), IsEmpty());
  EXPECT_FALSE(scheduler_.HasUnfinished());
}

TEST_F(Guesses, EndWithTheLastPossibleRow) {
  Decode({Spec(1, 7, 6)});
  RunToTheEnd();
  EXPECT_EQ(*std::max_element(asked_.begin(), asked_.end()), 11) << "the row at 11 gives the last token";
  EXPECT_EQ(scheduler_.counters().guesses_void, 0u);
}

TEST_F(Guesses, ForOnePositionBeforeAndBehindARewindAreToldApart) {
  Decode({Spec(1, 7, 20)});
  const std::vector<TokenId> answer = ComputeAlone(specs_[1], 128).output;
  guess_ = [&](const Sequence& sequence) {
    return sequence.handed_out == 8 ? WrongGuess(sequence) : answer[static_cast<size_t>(sequence.handed_out - 7)];
  };
  for (int i = 0; i < 3; ++i) Submit();  // 7, the wrong 8, 9
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kWrong);
  for (int i = 0; i < 2; ++i) Submit();  // the right 8, 9
  EXPECT_EQ(machine_.batches[1].slices[0].tokens, machine_.batches[3].slices[0].tokens);
  EXPECT_THAT(Confirm(), IsEmpty());
  EXPECT_TRUE(machine_.results.front().sampled[0].is_void) << "its token is right, what it stands on is not";
  EXPECT_THAT(Confirm(), IsEmpty());
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kRight);
  EXPECT_EQ(ConfirmOne().tokens.size(), 1u);
  RunToTheEnd();
}

TEST_F(Guesses, OfAGroupGoOnWhenOneOfItsSequencesMisses) {
  std::vector<SequenceSpec> specs;
  for (SequenceId id = 1; id <= 8; ++id) specs.push_back(Spec(id, 7, 20));
  Decode(specs);
  scheduler_.SetDecodeGroups(1);
  guess_ = [](const Sequence& sequence) {
    return sequence.spec().id == 5 && sequence.handed_out == 8 ? WrongGuess(sequence) : RightGuess(sequence);
  };
  std::vector<MicroBatch> batches = Fill();
  ASSERT_EQ(batches.size(), 4u);
  for (const MicroBatch& batch : batches) EXPECT_EQ(batch.rows(), 8);
  Confirm();
  batches = Fill();
  ASSERT_EQ(batches.size(), 1u) << "it waits for nobody";
  EXPECT_EQ(batches[0].rows(), 8);
  EXPECT_EQ(GuessesOf(batches[0]), 7);
  EXPECT_EQ(batches[0].slices[0].sequence, 5u);
  RunToTheEnd();
}

TEST_F(Guesses, JoinKnownRowsOnlyUpToAGroupsShare) {
  Decode({Spec(1, 7, 20), Spec(2, 7, 20), Spec(3, 7, 20)});
  scheduler_.SetDecodeGroups(2);  // of two rows and one
  std::vector<int> rows, guesses;
  for (const MicroBatch& batch : Fill()) {
    rows.push_back(batch.rows());
    guesses.push_back(GuessesOf(batch));
  }
  EXPECT_THAT(rows, ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(guesses, ElementsAre(0, 1, 2, 2));
  RunToTheEnd();
}

TEST_F(Guesses, LeaveGroupsTheirSizeAtTheBeginning) {
  Decode({Spec(1, 7, 20), Spec(2, 7, 20), Spec(3, 7, 20), Spec(4, 7, 20), Spec(5, 7, 20)});
  scheduler_.SetDecodeGroups(2);
  EXPECT_EQ(Submit().rows(), 3);
  const MicroBatch second = Submit();
  EXPECT_EQ(second.rows() - GuessesOf(second), 2);
  EXPECT_EQ(GuessesOf(second), 1) << "it leaves anyway, with room for one";
  RunToTheEnd();
}

TEST_F(Guesses, WaitUntilNoPromptIsInFlightAndMakeRoomForOne) {
  Decode({Spec(1, 7, 40)});
  Fill();
  Add(Spec(2, 40, 4));
  EXPECT_THAT(Fill(), IsEmpty());
  Confirm();
  for (const MicroBatch& batch : Fill()) EXPECT_EQ(GuessesOf(batch), 0);
  while (!HasFailure() && scheduler_.Find(2)->state() != SequenceState::kDecoding) {
    Confirm();
    for (const MicroBatch& batch : Fill()) {
      const bool prompts = std::any_of(machine_.batches.begin(), machine_.batches.end(),
                                       [](const MicroBatch& of) { return of.rows() > 2; });
      if (prompts) {
        EXPECT_EQ(GuessesOf(batch), 0);
      }
    }
  }
  RunToTheEnd();
}

TEST_F(Guesses, EndWhereNobodyKnowsOnAndGoOnOnceSomebodyDoes) {
  Decode({Spec(1, 7, 20)});
  guess_ = [](const Sequence& sequence) { return sequence.handed_out == 9 ? kNoToken : RightGuess(sequence); };
  EXPECT_EQ(Fill().size(), 2u);
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kRight);
  EXPECT_THAT(Fill(), IsEmpty());
  EXPECT_EQ(ConfirmOne().guess, SequenceEvent::Guess::kNone);
  const std::vector<MicroBatch> batches = Fill();
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_THAT(Starts(batches[0]), ElementsAre(9));
  EXPECT_EQ(GuessesOf(batches[0]), 0);
  EXPECT_EQ(GuessesOf(batches[1]), 1);
  RunToTheEnd();
}

TEST_F(Guesses, AreNoneWhereTheFeedMakesNone) {
  Decode({Spec(1, 7, 20), Spec(2, 7, 20), Spec(3, 7, 20), Spec(4, 7, 20)});
  may_guess_ = false;
  EXPECT_EQ(Fill().size(), 4u);
  RunToTheEnd();
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_EQ(scheduler_.counters().guesses, 0u);
}

TEST_F(Guesses, LeavePlacesToRowsBesidePromptsThatTakeMore) {
  Decode({Spec(1, 7, 40)}, 2);
  for (SequenceId id = 2; id <= 6; ++id) Add(Spec(id, 40, 2));
  EXPECT_EQ(Fill().size(), 4u);
  Confirm();
  EXPECT_GT(scheduler_.in_flight(), 2);
  const std::vector<MicroBatch> next = Fill();
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(next[0].slices[0].sequence, 1u);
  RunToTheEnd();
}

TEST_F(Guesses, AreNoneWithoutPlacesAndVoidOnesDrainThen) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongGuess;
  Fill();
  const uint64_t guesses = scheduler_.counters().guesses;
  scheduler_.SetGuessPlaces(0);
  RunToTheEnd();
  EXPECT_EQ(scheduler_.counters().guesses, guesses);
  EXPECT_EQ(scheduler_.counters().guesses_void, guesses);
}

TEST_F(Guesses, OutcomesThatTheLastStageCannotHaveAreRefused) {
  Decode({Spec(1, 7, 20)});
  guess_ = WrongAt({9});
  Fill();
  const auto refused = [&](const std::function<void(SampledToken&)>& change) {
    StepResult result = machine_.results.front();
    change(result.sampled[0]);
    return scheduler_.Confirm(result).status();
  };
  const auto make_void = [](SampledToken& token) { token.is_void = true, token.token = kNoToken; };
  EXPECT_THAT(refused(make_void), StatusIs(absl::StatusCode::kInternal, HasSubstr("no token at position 8")));
  Confirm();
  EXPECT_THAT(refused(make_void),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the guess at position 8 proved right")));
  EXPECT_THAT(refused([](SampledToken& token) { token.token = kNoToken; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("token id -1")));
  Confirm();
  EXPECT_THAT(refused([](SampledToken& token) { token.is_void = false, token.token = 3; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the guess at position 9 proved wrong")));
  EXPECT_THAT(refused([](SampledToken& token) { token.token = 3; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("token id 3 of a void row")));
  RunToTheEnd();
}

TEST(GuessOptions, AreFewerThanTheMicroBatchesInFlight) {
  SchedulerOptions options = GuessMachine::Options();
  EXPECT_TRUE(ValidateSchedulerOptions(options).ok());
  options.most_guesses = 4;
  EXPECT_THAT(
      ValidateSchedulerOptions(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected less than the 4 micro-batches in flight")));
  options.most_groups = 5;
  EXPECT_TRUE(ValidateSchedulerOptions(options).ok());
  options.most_guesses = -1;
  EXPECT_FALSE(ValidateSchedulerOptions(options).ok());
}

struct NarrowGuesses : Guesses {
  static SchedulerOptions Narrow() {
    SchedulerOptions options = Options();
    options.max_num_batched_tokens = 2;
    return options;
  }
  NarrowGuesses() : Guesses(Narrow()) {}
};

TEST_F(NarrowGuesses, TakeTheRowsThatAreLeftInTurn) {
  Decode({Spec(1, 7, 90), Spec(2, 7, 90), Spec(3, 7, 90)});
  scheduler_.SetDecodeGroups(1);
  std::map<SequenceId, int> rows;
  for (int i = 0; i < 45; ++i) {
    for (const MicroBatch& batch : Fill()) {
      for (const SequenceSlice& slice : batch.slices) ++rows[slice.sequence];
    }
    Confirm();
  }
  for (SequenceId id = 1; id <= 3; ++id) EXPECT_NEAR(rows[id], 32, 3) << "of 96 rows, sequence " << id;
  RunToTheEnd();
}

}  // namespace
}  // namespace stagecoach
