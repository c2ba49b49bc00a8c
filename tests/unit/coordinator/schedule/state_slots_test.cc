// Slots of recurrent states, sentence by sentence: where the scheduler keeps snapshots, who begins behind them, and
// what goes when slots or blocks are scarce. Random histories with them: see scheduler_histories_test.cc.

#include "coordinator/schedule/state_slots.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/schedule/block_manager.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

// Blocks of 4 tokens; a state is as large as 4 of them.
SchedulerOptions StateOptions() {
  return {{.max_num_seqs = 3,
           .policy = Policy::kInterleaved,
           .max_num_batched_tokens = 64,
           .prefill_chunk = 64,
           .block_tokens = 4,
           .prefix_caching = true},
          {.group_blocks = {64},
           .state_slots = 12,
           .state_blocks = 4,
           .context = 120,
           .micro_batches = 2,
           .max_open_tokens = 480}};
}

SequenceSpec Turn(SequenceSpec spec, int64_t conversation_tokens) {
  spec.conversation_tokens = conversation_tokens;
  return spec;
}

std::vector<int64_t> Ends(const std::vector<MicroBatch>& batches, SequenceId id) {
  std::vector<int64_t> ends;
  for (const MicroBatch& batch : batches) {
    for (const SequenceSlice& slice : batch.slices) {
      if (slice.sequence == id) ends.push_back(int64_t{slice.start} + slice.count);
    }
  }
  return ends;
}

class StateMachine : public Machine {
 public:
  using Machine::Machine;

  std::vector<MicroBatch> RunAll() {
    std::vector<MicroBatch> ran;
    while (scheduler.HasUnfinished() && !::testing::Test::HasFailure()) {
      if (std::optional<MicroBatch> batch = TrySubmit()) ran.push_back(*std::move(batch));
      for (const SequenceEvent& event : Confirm()) {
        for (const SampledToken& token : event.tokens) tokens[event.sequence].push_back(token.token);
        cached[event.sequence] = event.cached_tokens;
      }
    }
    return ran;
  }
  // From its beginning to its end, alone: the ends of its slices.
  std::vector<int64_t> EndsOf(const SequenceSpec& spec) {
    Add(spec);
    const std::vector<int64_t> ends = Ends(RunAll(), spec.id);
    EXPECT_EQ(tokens[spec.id], ComputeAlone(spec, scheduler.options().context).output);
    return ends;
  }
  const StateSlots& slots() const { return scheduler.blocks().slots(); }

  std::map<SequenceId, std::vector<TokenId>> tokens;
  std::map<SequenceId, int64_t> cached;
};

TEST(States, ASequenceGoesOnInPlaceAndGivesItsSlotBack) {
  SchedulerOptions options = StateOptions();
  options.prefix_caching = false;
  StateMachine machine(options);
  machine.Add(Spec(1, 70, 3));
  const std::vector<MicroBatch> batches = machine.RunAll();
  ASSERT_THAT(batches, SizeIs(4)) << "a chunk, the rest, and two decode rows";
  EXPECT_EQ(batches[0].slices[0].state_read, kNoSlot);
  const SlotId slot = batches[0].slices[0].state_write;
  for (size_t i = 1; i < batches.size(); ++i) {
    EXPECT_EQ(batches[i].slices[0].state_read, slot);
    EXPECT_EQ(batches[i].slices[0].state_write, slot);
  }
  EXPECT_EQ(machine.slots().free(), 12);
}

TEST(States, APromptIsCutWhereItsConversationEndsAndEveryFewBlocks) {
  StateMachine machine(StateOptions());
  // The last block before 30 ends at 28; 16 and 32 are regular, but 32 is close to it.
  EXPECT_THAT(machine.EndsOf(Turn(Spec(1, 50, 1), 30)), ElementsAre(16, 28, 48, 50));
  EXPECT_EQ(machine.slots().evictable(), 3);
  // Without a word on it, of the whole prompt, whose last row is computed anyway.
  EXPECT_THAT(machine.EndsOf(Spec(2, 12, 2)), ElementsAre(8, 12, 13));
  EXPECT_EQ(machine.slots().evictable(), 4);
  EXPECT_EQ(machine.slots().used(), 0);
}

TEST(States, TheNextTurnBeginsBehindTheSnapshotOfItsConversation) {
  StateMachine machine(StateOptions());
  const SequenceSpec first = Turn(LikeOthers(1, 30, 3, 6), 30);
  machine.EndsOf(first);
  // The same conversation, but the answer is written otherwise than it was produced.
  const SequenceSpec second = Turn(LikeOthers(2, 30, 20, 2), 46);
  EXPECT_THAT(machine.EndsOf(second), ElementsAre(44, 50, 51)) << "from 28 on; 32 and 48 are close to 28 and 44";
  EXPECT_EQ(machine.cached[2], 28);
  EXPECT_EQ(machine.scheduler.counters().prefix_hits, 28);
  EXPECT_EQ(machine.scheduler.counters().prefix_stateless, 0);
}

TEST(States, AHitOffASnapshotIsShortenedAndWhatWasLostIsCounted) {
  StateMachine machine(StateOptions());
  machine.EndsOf(Turn(LikeOthers(1, 60, 4), 60));  // snapshots at 16, 32, 48 and 60
  EXPECT_EQ(machine.slots().evictable(), 4);
  EXPECT_THAT(machine.EndsOf(LikeOthers(2, 45, 3)), ElementsAre(44, 48)) << "what both have ends at 44";
  EXPECT_EQ(machine.cached[2], 32);
  EXPECT_EQ(machine.scheduler.counters().prefix_stateless, 12);
  machine.EndsOf(LikeOthers(3, 45, 7));
  EXPECT_EQ(machine.cached[3], 44) << "where the two before parted a snapshot was kept";
  EXPECT_EQ(machine.scheduler.counters().prefix_stateless, 12);
}

TEST(States, TwoThatAskTheSameReadOneSlotTwice) {
  StateMachine machine(StateOptions());
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(LikeOthers(id, 42, 0, 4));
  EXPECT_THAT(machine.Submit().slices, SizeIs(1)) << "the others wait for the first one's snapshot";
  EXPECT_EQ(machine.scheduler.waiting(), 2);
  MicroBatch batch;
  while (batch.open.empty()) {
    machine.Confirm();
    batch = machine.Submit();
  }
  ASSERT_THAT(batch.open, SizeIs(2));
  ASSERT_THAT(batch.slices, SizeIs(3));
  EXPECT_EQ(batch.open[0].shared_rows, 40);
  const SlotId snapshot = batch.slices[0].state_read;
  std::set<SlotId> written;
  for (const SequenceSlice& slice : batch.slices) {
    EXPECT_EQ(slice.state_read, snapshot);
    EXPECT_NE(slice.state_write, snapshot);
    EXPECT_TRUE(written.insert(slice.state_write).second);
  }
  for (const SequenceEvent& event : machine.Confirm()) machine.tokens[event.sequence].push_back(event.tokens[0].token);
  machine.RunAll();
  for (SequenceId id = 1; id <= 3; ++id) {
    EXPECT_EQ(machine.tokens[id], ComputeAlone(LikeOthers(id, 42, 0, 4), 120).output);
  }
  EXPECT_EQ(machine.scheduler.counters().prefill_rows, 42u + 2 + 2);
}

// The next turn computes its conversation's last answer again, in blocks for which those that the answer left must go.
TEST(States, ATurnKeepsItsSnapshotWhereTheBlocksThatItComputesAgainAreGivenAway) {
  SchedulerOptions options = StateOptions();
  options.group_blocks = {48};
  options.max_num_seqs = 1;
  options.prefill_chunk = 8;
  options.context = 200;
  StateMachine machine(options);
  for (SequenceId other = 1; other <= 3; ++other) machine.EndsOf(Spec(other, 57, 1));
  std::vector<TokenId> conversation(41, 1);
  for (SequenceId turn = 11; turn <= 13; ++turn) {
    machine.EndsOf({.id = turn, .prompt = conversation, .max_new_tokens = 36});
    const std::vector<TokenId>& answer = machine.tokens[turn];
    conversation.insert(conversation.end(), answer.begin(), answer.end());
  }
  EXPECT_GT(machine.scheduler.counters().prefix_stateless, 0) << "nothing was computed again";
  EXPECT_EQ(machine.cached[13], 76) << "of 77 tokens of the turn before";
  EXPECT_TRUE(machine.scheduler.CheckIntegrity().ok()) << machine.scheduler.CheckIntegrity();
}

TEST(States, TheFirstOfSeveralThatWaitKeepsASnapshotWhereTheyPart) {
  SchedulerOptions options = StateOptions();
  options.state_blocks = 16;
  StateMachine machine(options);
  for (SequenceId id = 1; id <= 3; ++id) machine.Add(LikeOthers(id, 22, 10 + static_cast<int64_t>(id)));
  const std::vector<MicroBatch> batches = machine.RunAll();
  EXPECT_THAT(Ends(batches, 1), ElementsAre(20, 32, 33));
  EXPECT_THAT(batches[0].slices, SizeIs(1)) << "there is room, but the others wait for it";
  EXPECT_EQ(machine.cached[2], 20);
  EXPECT_EQ(machine.cached[3], 20);
  for (SequenceId id = 1; id <= 3; ++id) {
    EXPECT_EQ(machine.tokens[id], ComputeAlone(LikeOthers(id, 22, 10 + static_cast<int64_t>(id)), 120).output);
  }
}

TEST(States, APreemptedSequenceBeginsAgainBehindItsLastSnapshot) {
  StateMachine machine(StateOptions());
  const SequenceSpec spec = Turn(Spec(1, 30, 20), 26);
  machine.Add(spec);
  for (int step = 0; step < 12; ++step) {
    machine.Submit();
    for (const SequenceEvent& event : machine.Confirm()) machine.tokens[1].push_back(event.tokens[0].token);
  }
  ASSERT_TRUE(machine.scheduler.Preempt(1).ok());
  EXPECT_EQ(machine.slots().used(), 0);
  const MicroBatch again = machine.Submit();
  EXPECT_EQ(again.open.at(0).shared_rows, 24) << "its K and V are there for more, but no state";
  EXPECT_NE(again.slices[0].state_read, kNoSlot);
  for (const SequenceEvent& event : machine.Confirm()) machine.tokens[1].push_back(event.tokens[0].token);
  machine.RunAll();
  EXPECT_EQ(machine.tokens[1], ComputeAlone(spec, 120).output);
}

TEST(States, WithAsFewSlotsAsSequencesAllRunAndSnapshotsAreTakenOver) {
  SchedulerOptions options = StateOptions();
  options.state_slots = 3;
  StateMachine machine(options);
  for (SequenceId id = 1; id <= 6; ++id) machine.Add(Spec(id, 30, 5));
  machine.Submit();
  machine.Submit();
  EXPECT_EQ(machine.scheduler.running(), 3);
  machine.Confirm();
  machine.RunAll();
  EXPECT_EQ(machine.slots().used(), 0);
}

// A slot that is given up while a micro-batch is composed is not written by it.
TEST(States, WhatAPreemptionGivesUpIsGivenAwayByTheNextMicroBatch) {
  SchedulerOptions options = StateOptions();
  options.max_num_seqs = options.state_slots = 2;
  options.group_blocks = {8};
  options.context = 32;
  options.micro_batches = 1;
  StateMachine machine(options);
  machine.Add(Spec(1, 8, 20));
  machine.Add(Spec(2, 8, 20));
  machine.Add(Spec(3, 4, 2));
  machine.RunAll();
  EXPECT_GT(machine.scheduler.counters().preemptions, 0u);
  EXPECT_EQ(machine.tokens[2], ComputeAlone(Spec(2, 8, 20), 32).output);
}

TEST(States, OptionsThatCannotWorkAreRefused) {
  const auto message = [](int32_t slots, int32_t blocks) {
    SchedulerOptions options = StateOptions();
    options.state_slots = slots;
    options.state_blocks = blocks;
    return std::string(ValidateSchedulerOptions(options).message());
  };
  EXPECT_EQ(message(3, 1), "");
  EXPECT_EQ(message(0, 0), "");
  EXPECT_EQ(message(2, 1), "`state_slots` is 2, expected 3 to 1048576");
  EXPECT_EQ(message(3, 0), "`state_blocks` is 0, expected 1 to 2147483647");
}

// --- slots and snapshots by themselves -------------------------------------------------------------------------------

TEST(StateSlots, AreUsedByReferenceAndKeptByEntriesAndFreeOtherwise) {
  StateSlots slots(3);
  slots.BeginMicroBatch();
  const SlotId a = slots.Take(), b = slots.Take();
  EXPECT_EQ(slots.used(), 2);
  slots.SetEntry(a, 7);
  slots.AddReference(a);
  EXPECT_FALSE(slots.IsOwn(a));
  slots.Drop(a);
  EXPECT_FALSE(slots.IsOwn(a)) << "who dropped it may have read it in this micro-batch";
  slots.Drop(b);
  EXPECT_EQ(slots.free(), 2);
  EXPECT_EQ(slots.available(), 1);
  EXPECT_NE(slots.Take(), b);
  EXPECT_EQ(slots.Take(), kNoSlot);
  slots.BeginMicroBatch();
  EXPECT_TRUE(slots.IsOwn(a));
  EXPECT_EQ(slots.Take(), b);
  slots.Drop(a);
  EXPECT_EQ(slots.evictable(), 1);
  EXPECT_EQ(slots.available(), 0);
  slots.SetEntry(a, kNoBlock);
  EXPECT_EQ(slots.free(), 1);
  EXPECT_TRUE(slots.CheckIntegrity().ok()) << slots.CheckIntegrity();
}

// Chains of one-token blocks, with snapshots; a state is as large as two blocks.
struct Snapshots : ::testing::Test {
  // A chain of so many blocks that begins with `first`, with snapshots behind these numbers of blocks.
  std::vector<PrefixRef> Chain(TokenId first, int64_t blocks, const std::vector<int64_t>& snapshots) {
    const BlockLists tables = *manager_.Allocate({static_cast<int32_t>(blocks)});
    std::vector<PrefixRef> chain;
    uint64_t hash = static_cast<uint64_t>(first) * 1000;
    for (int64_t i = 0; i < blocks; ++i) {
      const std::vector<TokenId> tokens = {i == 0 ? first : static_cast<TokenId>(i)};
      chain.push_back(manager_.Remember({++hash, chain.empty() ? PrefixRef() : chain.back(), "", tokens},
                                        {tables[0][static_cast<size_t>(i)]}));
      if (std::find(snapshots.begin(), snapshots.end(), i + 1) == snapshots.end()) continue;
      manager_.BeginMicroBatch();
      const SlotId slot = manager_.SlotToWrite(kNoSlot);
      EXPECT_NE(slot, kNoSlot);
      manager_.KeepSnapshot(chain.back(), slot);
      manager_.DropSlot(slot);
    }
    EXPECT_TRUE(manager_.Free(tables, chain).ok());
    ExpectIntegrity();
    return chain;
  }
  std::vector<int64_t> SnapshotsOf(const std::vector<PrefixRef>& chain) {
    std::vector<int64_t> there;
    for (size_t i = 0; i < chain.size(); ++i) {
      if (manager_.Holds(chain[i]) && manager_.SnapshotOf(chain[i]) != kNoSlot)
        there.push_back(static_cast<int64_t>(i) + 1);
    }
    return there;
  }
  int64_t Held(const std::vector<PrefixRef>& chain) {
    return std::count_if(chain.begin(), chain.end(), [&](const PrefixRef& entry) { return manager_.Holds(entry); });
  }
  // Takes a slot or blocks, which nobody gives back.
  void TakeSlot() {
    manager_.BeginMicroBatch();
    EXPECT_NE(manager_.SlotToWrite(kNoSlot), kNoSlot);
    ExpectIntegrity();
  }
  void TakeBlocks(int32_t count) {
    EXPECT_TRUE(manager_.Allocate({count}).ok());
    ExpectIntegrity();
  }
  void ExpectIntegrity() { EXPECT_TRUE(manager_.CheckIntegrity().ok()) << manager_.CheckIntegrity(); }

  BlockManager manager_{{20}, {}, /*state_slots=*/4, /*state_blocks=*/2};
};

TEST_F(Snapshots, TheOneThatCostsLeastToComputeAgainGoesFirst) {
  const auto a = Chain(1, 8, {2, 7, 8}), b = Chain(2, 3, {3});
  TakeSlot();
  EXPECT_THAT(SnapshotsOf(a), ElementsAre(2, 7)) << "one block behind the one before it";
  TakeSlot();
  EXPECT_THAT(SnapshotsOf(a), ElementsAre(7)) << "two blocks";
  TakeSlot();
  EXPECT_THAT(SnapshotsOf(b), IsEmpty()) << "three, and the other one now costs seven";
  TakeSlot();
  EXPECT_THAT(SnapshotsOf(a), IsEmpty());
}

TEST_F(Snapshots, WhatIsNotUsedLosesToWhatComes) {
  const auto old = Chain(1, 4, {4});
  for (TokenId first = 2; first < 30 && !SnapshotsOf(old).empty(); ++first) {
    if (first == 20) manager_.UseSnapshot(old.back());
    const auto newer = Chain(first, 1, {1});
    if (first == 20) manager_.DropSlot(manager_.SnapshotOf(old.back()));
    EXPECT_THAT(SnapshotsOf(newer), SizeIs(1)) << first;
    // Each takes the slot of an earlier one, which raises the clock by half.
  }
  EXPECT_THAT(SnapshotsOf(old), IsEmpty());
}

TEST_F(Snapshots, BlocksThatNoSnapshotFollowsGoBeforeAllOthers) {
  const auto a = Chain(1, 10, {4}), b = Chain(2, 8, {8});
  TakeBlocks(2);
  EXPECT_EQ(Held(a) + Held(b), 18) << "two were free";
  TakeBlocks(6);
  EXPECT_EQ(Held(a), 4) << "those behind its snapshot";
  EXPECT_EQ(Held(b), 8);
  TakeBlocks(1);
  EXPECT_EQ(Held(a), 3) << "the snapshot of fewer blocks, and one of these";
  EXPECT_EQ(manager_.slots().evictable(), 1);
  EXPECT_THAT(SnapshotsOf(b), ElementsAre(8));
  TakeBlocks(3);
  EXPECT_EQ(Held(b), 8) << "what is left of them can serve nobody";
  TakeBlocks(1);
  EXPECT_EQ(Held(b), 7);
  EXPECT_EQ(manager_.slots().free(), 4);
}

TEST_F(Snapshots, ASnapshotThatIsReadOutlivesItsEntry) {
  const auto a = Chain(1, 10, {10});
  const SlotId slot = manager_.SnapshotOf(a.back());
  manager_.UseSnapshot(a.back());
  TakeBlocks(20);
  EXPECT_EQ(Held(a), 0);
  EXPECT_EQ(manager_.slots().references(slot), 1);
  manager_.BeginMicroBatch();
  EXPECT_EQ(manager_.SlotToWrite(slot), slot) << "nobody else needs it";
  manager_.DropSlot(slot);
  EXPECT_EQ(manager_.slots().free(), 4);
  ExpectIntegrity();
}

TEST_F(Snapshots, AGuessTakesAFreeSlotOrTheLeastSnapshotAndNeverOneThatIsRead) {
  const auto a = Chain(1, 4, {4}), b = Chain(2, 8, {8});
  const SlotId least = manager_.SnapshotOf(a.back());
  manager_.UseSnapshot(b.back());
  manager_.BeginMicroBatch();
  for (int i = 0; i < 2; ++i) EXPECT_NE(manager_.SlotForGuess(), kNoSlot);
  EXPECT_THAT(SnapshotsOf(a), ElementsAre(4)) << "two were free";
  EXPECT_EQ(manager_.SlotForGuess(), least);
  EXPECT_THAT(SnapshotsOf(a), IsEmpty());
  EXPECT_EQ(manager_.SlotForGuess(), kNoSlot);
  manager_.DropSlot(least);
  EXPECT_EQ(manager_.SlotForGuess(), kNoSlot) << "a slice of this micro-batch may have named it";
  manager_.BeginMicroBatch();
  EXPECT_EQ(manager_.SlotForGuess(), least);
  EXPECT_THAT(SnapshotsOf(b), ElementsAre(8));
  ExpectIntegrity();
}

TEST_F(Snapshots, BranchesServeAsLongAsAnyOfThemHasASnapshot) {
  const BlockLists trunk = *manager_.Allocate({3}), left = *manager_.Allocate({1}), right = *manager_.Allocate({1});
  std::vector<PrefixRef> chain;
  for (TokenId i = 0; i < 3; ++i) {
    const std::vector<TokenId> tokens = {i};
    chain.push_back(manager_.Remember({static_cast<uint64_t>(i) + 1, i == 0 ? PrefixRef() : chain.back(), "", tokens},
                                      {trunk[0][static_cast<size_t>(i)]}));
  }
  std::vector<PrefixRef> branches[2] = {chain, chain};
  for (const int side : {0, 1}) {
    const std::vector<TokenId> tokens = {static_cast<TokenId>(10 + side)};
    branches[side].push_back(manager_.Remember({static_cast<uint64_t>(10 + side), chain.back(), "", tokens},
                                               {(side == 0 ? left : right)[0][0]}));
    manager_.BeginMicroBatch();
    const SlotId slot = manager_.SlotToWrite(kNoSlot);
    manager_.KeepSnapshot(branches[side].back(), slot);
    manager_.DropSlot(slot);
  }
  ASSERT_TRUE(manager_.Free(left, {}).ok() && manager_.Free(right, {}).ok());
  ASSERT_TRUE(manager_.Free(trunk, branches[0]).ok());
  ASSERT_TRUE(manager_.Free({{}}, branches[1]).ok());
  ExpectIntegrity();
  TakeBlocks(15);
  TakeBlocks(1);
  EXPECT_EQ(Held(branches[0]) + Held(branches[1]), 3 + 3 + 1) << "one branch, and no block of the trunk";
  TakeBlocks(1);
  EXPECT_EQ(Held(branches[0]) + Held(branches[1]), 3 + 3);
  TakeBlocks(3);
  EXPECT_EQ(Held(branches[0]), 0);
  EXPECT_EQ(manager_.slots().free(), 4);
}

}  // namespace
}  // namespace stagecoach
