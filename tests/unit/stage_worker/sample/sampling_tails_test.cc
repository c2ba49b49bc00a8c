#include "stage_worker/sample/sampling_tails.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int64_t kTokens = 258;
constexpr TokenId kEnd = 256, kControl = 257;

// Token i is the byte i, then the end and a control token.
std::shared_ptr<const GrammarVocabulary> ByteVocabulary() {
  using Kind = GrammarVocabulary::Kind;
  std::vector<std::string> texts(kTokens);
  std::vector<Kind> kinds(kTokens, Kind::kText);
  for (int byte = 0; byte < 256; ++byte) texts[static_cast<size_t>(byte)].push_back(static_cast<char>(byte));
  kinds[kEnd] = Kind::kEnd;
  kinds[kControl] = Kind::kControl;
  return std::make_shared<const GrammarVocabulary>(std::move(texts), std::move(kinds));
}

OpenSequence OpenUnder(SequenceId sequence, GrammarId grammar, const std::string& output = "") {
  return {.sequence = sequence, .prompt = {1, 2}, .output = {output.begin(), output.end()}, .grammar = grammar};
}

std::string Allowed(const SamplingTail& tail) {
  std::string text;
  for (TokenId token = 0; token < kTokens; ++token) {
    if ((tail.allowed()->bits[static_cast<size_t>(token) / 64] >> (token % 64) & 1) == 0) continue;
    text += token == kEnd ? "$" : std::string(1, static_cast<char>(token));
  }
  return text;
}

class SamplingTailsTest : public ::testing::Test {
 protected:
  static constexpr size_t kMost = 3;

  absl::Status Apply(const MicroBatch& batch) {
    const absl::Status status = tails_.Validate(batch);
    if (status.ok()) tails_.Commit(batch);
    return status;
  }
  void Define(GrammarId id, const std::string& program) {
    ASSERT_TRUE(Apply({.define_grammars = {{id, program}}}).ok());
  }
  void ExpectRefused(const MicroBatch& batch, const std::string& error) {
    const size_t before = tails_.grammars();
    EXPECT_THAT(Apply(batch), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(error)));
    EXPECT_EQ(tails_.grammars(), before);
  }
  std::string AllowedOf(SequenceId sequence) {
    SamplingTail& tail = tails_.Of(sequence);
    if (tail.lacks_mask()) tails_.MakeMask(&tail);
    return Allowed(tail);
  }

  MaskCounters counters_;
  int reads_ = 0;
  absl::Status vocabulary_error_;
  SamplingTails tails_{kMost,
                       [this]() -> absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> {
                         ++reads_;
                         if (!vocabulary_error_.ok()) return vocabulary_error_;
                         return ByteVocabulary();
                       },
                       &counters_};
};

TEST_F(SamplingTailsTest, FollowASequencesGrammarFromTokenToToken) {
  ASSERT_TRUE(
      Apply({.define_grammars = {{5, testing::RunOfBytes('a', 'c', 1, 2)}}, .open = {OpenUnder(1, 5), OpenUnder(2, 0)}})
          .ok());
  EXPECT_EQ(AllowedOf(1), "abc");
  EXPECT_FALSE(tails_.Of(1).allowed()->complete);
  EXPECT_TRUE(tails_.Of(1).Append('b'));
  EXPECT_TRUE(tails_.Of(1).lacks_mask());
  EXPECT_EQ(AllowedOf(1), "abc$");
  EXPECT_TRUE(tails_.Of(1).allowed()->complete);
  EXPECT_TRUE(tails_.Of(1).Append('c'));
  EXPECT_EQ(AllowedOf(1), "$");
  EXPECT_FALSE(tails_.Of(1).Append('a'));
  EXPECT_EQ(tails_.Of(2).allowed(), nullptr);
  EXPECT_FALSE(tails_.Of(2).lacks_mask());
  EXPECT_TRUE(tails_.Of(2).Append(7));
  EXPECT_THAT(tails_.Of(2).history().tokens(), ElementsAre(1, 2, 7));
}

TEST_F(SamplingTailsTest, OpenedWithOutputStandWhereThoseThatSampledItStand) {
  Define(1, testing::Lists(2));
  ASSERT_TRUE(Apply({.open = {OpenUnder(1, 1)}}).ok());
  const std::string text = "[1,[2]];[[";
  for (size_t length = 0; length <= text.size(); ++length) {
    const SequenceId again = 100 + length;
    ASSERT_TRUE(Apply({.open = {OpenUnder(again, 1, text.substr(0, length))}}).ok());
    EXPECT_EQ(AllowedOf(again), AllowedOf(1)) << length;
    EXPECT_EQ(tails_.Of(again).history().size(), tails_.Of(1).history().size());
    if (length < text.size()) {
      EXPECT_TRUE(tails_.Of(1).Append(text[length]));
    }
  }
  EXPECT_EQ(AllowedOf(1), "0123456789[");
}

TEST_F(SamplingTailsTest, MakeMasksAheadOfRowsWhileAnyLacksOne) {
  EXPECT_FALSE(tails_.MakeAnyMask());
  Define(1, testing::RunOfBytes('a', 'b', 1));
  ASSERT_TRUE(Apply({.open = {OpenUnder(1, 1), OpenUnder(2, 1), OpenUnder(3, 0)}}).ok());
  EXPECT_TRUE(tails_.MakeAnyMask());
  EXPECT_TRUE(tails_.MakeAnyMask());
  EXPECT_FALSE(tails_.MakeAnyMask());
  EXPECT_EQ(Allowed(tails_.Of(1)), "ab");
  EXPECT_GT(counters_.ns, 0u);
  EXPECT_EQ(counters_.hits, 1u) << "the other's";
  tails_.Of(2).Append('a');
  EXPECT_TRUE(tails_.MakeAnyMask());
  EXPECT_EQ(Allowed(tails_.Of(2)), "ab$");
}

TEST_F(SamplingTailsTest, AskForTheVocabularyOnceAndOnlyWhereThereIsAGrammar) {
  ASSERT_TRUE(Apply({.open = {OpenUnder(1, 0)}}).ok());
  EXPECT_EQ(reads_, 0);
  Define(1, testing::RunOfBytes('a', 'b', 1));
  Define(2, testing::RunOfBytes('a', 'c', 1));
  EXPECT_EQ(reads_, 1);
}

TEST_F(SamplingTailsTest, NameAGrammarThatCannotBeAndKeepWhatTheyHad) {
  Define(1, testing::RunOfBytes('a', 'b', 1));
  ASSERT_TRUE(Apply({.open = {OpenUnder(1, 1)}}).ok());
  ExpectRefused({.open = {OpenUnder(2, 9)}}, "grammar 9 is to be that of sequence 2, but is not there");
  ExpectRefused({.define_grammars = {{1, testing::RunOfBytes('a', 'b', 1)}}}, "grammar 1 is defined, but is there");
  ExpectRefused({.drop_grammars = {8}}, "grammar 8 is dropped, but is not there");
  ExpectRefused({.drop_grammars = {1}}, "grammar 1 is dropped, but is that of 1 open sequences");
  ExpectRefused({.define_grammars = {{2, "nonsense"}}}, "grammar 2 does not decode: ");
  ExpectRefused({.open = {OpenUnder(2, 1, "ax")}},
                "grammar 1 does not allow the output of sequence 2: token 120 at place 1");
  GrammarAutomaton atom;
  atom.states.resize(2);
  atom.states[0].atoms = {{kTokens, 1}};
  atom.states[1].accepting = true;
  ExpectRefused({.define_grammars = {{2, testing::ProgramBytes(atom)}}},
                "grammar 2 cannot be followed: the grammar names token 258, the vocabulary has 0 to 257");
  const std::string program = testing::RunOfBytes('a', 'b', 1);
  ExpectRefused({.define_grammars = {{2, program}, {3, program}, {4, program}}},
                "grammar 4 is one more than the 3 that may be there at once");
  EXPECT_EQ(AllowedOf(1), "ab") << "nothing has changed";
}

TEST_F(SamplingTailsTest, AFreeInTheSameMicroBatchMakesADropPossibleAndADropMakesRoom) {
  const std::string program = testing::RunOfBytes('a', 'b', 1);
  for (GrammarId id = 1; id <= kMost; ++id) {
    ASSERT_TRUE(Apply({.define_grammars = {{id, program}}, .open = {OpenUnder(id, id)}}).ok());
  }
  ASSERT_TRUE(Apply({.free = {1, 2},
                     .drop_grammars = {1},
                     .define_grammars = {{7, testing::RunOfBytes('x', 'x', 1)}},
                     .open = {OpenUnder(9, 7), OpenUnder(2, 2, "ab")}})
                  .ok());
  EXPECT_EQ(tails_.grammars(), kMost);
  EXPECT_EQ(AllowedOf(9), "x");
  EXPECT_EQ(AllowedOf(2), "ab$");
  ExpectRefused({.open = {OpenUnder(1, 1)}}, "grammar 1 is to be that of sequence 1, but is not there");
  ExpectRefused({.free = {9}, .drop_grammars = {7}, .open = {OpenUnder(9, 7)}},
                "grammar 7 is to be that of sequence 9, but is not there");
}

TEST_F(SamplingTailsTest, WhereTheVocabularyCannotBeHadNoGrammarCanBeFollowed) {
  vocabulary_error_ = absl::UnimplementedError("the file has no tokenizer");
  ExpectRefused({.define_grammars = {{1, testing::RunOfBytes('a', 'b', 1)}}},
                "grammar 1 cannot be followed: the file has no tokenizer");
}

// Against tails that never sampled anything else.
TEST(FollowingTails, StandWhereTheTokensSayThatTheyWereGivenLast) {
  MaskCounters counters;
  SamplingTails tails(
      2, [] { return ByteVocabulary(); }, &counters, /*most_cut=*/4);
  MicroBatch batch = {.define_grammars = {{1, testing::Lists(2)}}, .open = {OpenUnder(1, 1, "[1")}};
  ASSERT_TRUE(tails.Validate(batch).ok());
  tails.Commit(batch);
  EXPECT_EQ(tails.Of(1).opened(), 4);
  SequenceId next = 2;
  const auto expect = [&](const std::string& output) {
    const MicroBatch again = {.open = {OpenUnder(next, 1, output)}};
    ASSERT_TRUE(tails.Validate(again).ok());
    tails.Commit(again);
    SamplingTail &tail = tails.Of(1), &fresh = tails.Of(next++);
    for (SamplingTail* of : {&tail, &fresh}) {
      if (of->lacks_mask()) tails.MakeMask(of);
    }
    EXPECT_EQ(Allowed(tail), Allowed(fresh)) << output;
    EXPECT_THAT(tail.history().tokens(), ::testing::ElementsAreArray(fresh.history().tokens()));
    ASSERT_EQ(tail.history().output_counts().size(), fresh.history().output_counts().size());
    for (size_t i = 0; i < fresh.history().output_counts().size(); ++i) {
      EXPECT_EQ(tail.history().output_counts()[i].token, fresh.history().output_counts()[i].token);
      EXPECT_EQ(tail.history().output_counts()[i].count, fresh.history().output_counts()[i].count);
    }
  };
  const auto follow = [&](int64_t start, const std::string& text, bool ends) {
    const std::vector<TokenId> tokens(text.begin(), text.end());
    tails.Of(1).Follow(start, tokens, ends);
  };
  for (const char token : {',', '1', ',', '1'}) EXPECT_TRUE(tails.Of(1).Append(token));
  follow(4, ",[", true);  // instead of ,1,1]
  expect("[1,[");
  follow(0, "ab", false);  // what it was opened with stays
  expect("[1,[");
  follow(4, ",[2", true);  // the same and one more
  expect("[1,[2");
  EXPECT_TRUE(tails.Of(1).Append(']'));
  follow(5, "[", false);  // nothing says that it ends there
  expect("[1,[2]");
  follow(5, "[", true);
  expect("[1,[");
  follow(6, "3]", false);
  expect("[1,[3]");
}

}  // namespace
}  // namespace stagecoach
