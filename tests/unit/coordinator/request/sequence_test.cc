#include "coordinator/request/sequence.h"

#include <set>
#include <utility>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using S = SequenceState;
constexpr S kStates[] = {S::kWaiting, S::kPrefilling, S::kDecoding, S::kPreempted, S::kFinished};

TEST(Sequence, HasExactlyTheDocumentedTransitions) {
  const std::set<std::pair<S, S>> edges = {
      {S::kWaiting, S::kPrefilling},   {S::kWaiting, S::kFinished},    {S::kPrefilling, S::kDecoding},
      {S::kPrefilling, S::kPreempted}, {S::kPrefilling, S::kFinished}, {S::kDecoding, S::kPreempted},
      {S::kDecoding, S::kFinished},    {S::kPreempted, S::kWaiting},   {S::kPreempted, S::kFinished},
  };
  for (const S from : kStates) {
    for (const S to : kStates) {
      EXPECT_EQ(IsValidTransition(from, to), edges.contains({from, to}))
          << SequenceStateName(from) << " to " << SequenceStateName(to);
    }
  }
}

TEST(Sequence, MovesAlongItsEdges) {
  Sequence sequence({.id = 1, .prompt = {5}});
  for (const S next : {S::kPrefilling, S::kDecoding, S::kPreempted, S::kWaiting, S::kPrefilling, S::kFinished}) {
    sequence.MoveTo(next);
    EXPECT_EQ(sequence.state(), next);
  }
}

TEST(SequenceDeathTest, AForbiddenTransitionIsOurBug) {
  Sequence sequence({.id = 12, .prompt = {5}});
  EXPECT_DEATH(sequence.MoveTo(S::kDecoding), "sequence 12 from waiting to decoding");
}

TEST(Sequence, TokensAreThePromptThenTheOutput) {
  Sequence sequence({.id = 1, .prompt = {5, 6}, .output = {7}});
  sequence.Append(8);
  EXPECT_EQ(sequence.tokens(), 4);
  for (int64_t p = 0; p < 4; ++p) EXPECT_EQ(sequence.token(p), 5 + p);
  EXPECT_EQ(sequence.last_token(), 8);
  EXPECT_EQ(sequence.output(), (std::vector<TokenId>{7, 8}));
}

TEST(SequenceDeathTest, ATokenPastTheEndIsOurBug) {
  const Sequence sequence({.id = 1, .prompt = {5, 6}});
  EXPECT_DEATH(sequence.token(2), "position");
}

constexpr RoomLimits kLimits = {.context = 100, .blocks = 5, .block_tokens = 16};  // 80 tokens of KV

TEST(RequestRoom, ARequestNeedsKvForAllTokensButTheLastNewOne) {
  EXPECT_TRUE(CheckRoom(60, 21, kLimits).ok());
  const absl::Status status = CheckRoom(60, 22, kLimits);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      status.message(),
      HasSubstr("60 prompt tokens and up to 22 new ones need KV for 81 tokens, the pool holds 80 (5 blocks of 16)"));
}

TEST(RequestRoom, NewTokensBeyondTheContextAreNotCounted) {
  const RoomLimits large = {.context = 100, .blocks = 10, .block_tokens = 16};
  EXPECT_TRUE(CheckRoom(99, 1000000, large).ok());
  EXPECT_FALSE(CheckRoom(100, 1, large).ok());
  EXPECT_TRUE(CheckRoom(100, 0, large).ok()) << "only scored";
  EXPECT_FALSE(CheckRoom(101, 0, large).ok());
}

}  // namespace
}  // namespace stagecoach
