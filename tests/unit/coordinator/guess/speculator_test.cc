// The guesses of a job: who says them, what is never said, and what a call may take.

#include "coordinator/guess/speculator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/guess/guess_line.h"
#include "tests/unit/coordinator/guess/naive_match.h"

namespace stagecoach {
namespace {

using testing::GuesserOfPosition;
using testing::GuessingByPosition;
using testing::GuessLine;
using testing::Joined;
using testing::NaiveContinuation;
using testing::RandomText;
using testing::SpecOf;
using testing::Tokens;

Tokens Repeated(const Tokens& part, int times) {
  Tokens text;
  for (int i = 0; i < times; ++i) text = Joined(text, part);
  return text;
}

constexpr int32_t kManyRows = 100;  // more than any test sends

TEST(Speculator, TakesPredictionThenSureSuffixThenDraftThenAnySuffix) {
  const Tokens once = {1, 2, 3, 1, 2}, often = Repeated({1, 2, 3}, 30);
  const auto guess_of = [](Tokens prompt, bool draft, Tokens prediction) {
    Speculator speculator(GuessingByPosition([draft](int64_t) { return draft ? 700 : kNoToken; }, true));
    speculator.SetRows(kManyRows, 0);
    SequenceSpec spec = SpecOf(1, std::move(prompt));
    spec.prediction = std::move(prediction);
    return GuessLine(&speculator, std::move(spec)).Ask();
  };
  EXPECT_EQ(guess_of(once, true, {9, 8}), 9);
  EXPECT_EQ(guess_of(often, true, {9, 8}), 9);
  EXPECT_EQ(guess_of(often, true, {}), 1);
  EXPECT_EQ(guess_of(once, true, {}), 700);
  EXPECT_EQ(guess_of(once, false, {}), 3);
  EXPECT_EQ(guess_of({1, 2}, false, {}), kNoToken);
}

TEST(Speculator, GuessesWhatTheLongestMatchOfTextAndRunSays) {
  std::mt19937 random(21);
  int guessed = 0;
  for (int i = 0; i < 20; ++i) {
    Speculator speculator({.vocab = 1000});
    speculator.SetRows(4, 0);
    Tokens text = RandomText(&random, 80, 5);
    GuessLine line(&speculator, SpecOf(1, text));
    for (int step = 0; step < 60; ++step) {
      const Tokens& guesses = line.sequence().guesses;
      for (int question = static_cast<int>(random() % 6); question > 0; --question) {
        const SuffixIndex::Continuation next = NaiveContinuation(text, Joined(text, guesses));
        const TokenId expected = line.sequence().slices_in_flight == 4 || next.length < 1 ? kNoToken : next.token;
        ASSERT_EQ(random() % 2 == 0 ? line.Ask() : line.Send(), expected);
        guessed += expected == kNoToken ? 0 : 1;
      }
      // Mostly what was guessed.
      text.push_back(guesses.empty() || random() % 4 == 0 ? static_cast<TokenId>(random() % 5) : guesses.front());
      line.Come(text.back());
    }
  }
  EXPECT_GT(guessed, 500);
}

TEST(Speculator, NeverGuessesWhatIsNoRealToken) {
  const Tokens answers = {0, -7, 99, 100, 101, 1'000'000, 41, 42, 43};
  Speculator::Options options =
      GuessingByPosition([&answers](int64_t position) { return answers[static_cast<size_t>(position) - 1]; });
  options.vocab = 100;
  options.unused = {41, 43};
  Speculator speculator(options);
  speculator.SetRows(kManyRows, 0);
  GuessLine line(&speculator, SpecOf(1, {5}));
  Tokens said;
  for (size_t i = 0; i < answers.size(); ++i) {
    said.push_back(line.Ask());
    line.Come(5);
  }
  const TokenId none = kNoToken;
  EXPECT_THAT(said, ElementsAre(0, none, 99, none, none, none, none, 42, none));
}

TEST(Speculator, KeepsNoMoreRowsInFlightThanItsAcceptanceHas) {
  Speculator speculator(GuessingByPosition([](int64_t) { return 7; }));
  GuessLine line(&speculator, SpecOf(1, {5}));
  EXPECT_FALSE(speculator.MayGuess(0, 0));
  EXPECT_EQ(line.Ask(), kNoToken);
  speculator.SetRows(3, 8);  // a new one has 0.5
  EXPECT_TRUE(speculator.MayGuess(0, 0));
  line.SendAll();
  EXPECT_EQ(line.sequence().guesses.size(), 2u);
  line.Come(7);
  EXPECT_EQ(line.Send(), 7);
  EXPECT_EQ(line.Send(), kNoToken);
  line.Come(8);
  line.sequence().slices_in_flight = 3;  // two void ones beside the right one
  EXPECT_EQ(line.Ask(), kNoToken);
  --line.sequence().slices_in_flight;
  EXPECT_EQ(line.Ask(), 7);
  speculator.SetRows(3, 16);
  EXPECT_EQ(line.Ask(), kNoToken);
  speculator.SetRows(1, 0);
  EXPECT_FALSE(speculator.MayGuess(0, 0));
  EXPECT_EQ(line.Ask(), kNoToken);
}

// Says 7, and counts how often it is asked.
class AskedGuesser : public Guesser {
 public:
  AskedGuesser(int* questions, const uint64_t* version) : questions_(*questions), version_(*version) {}
  void Append(TokenId /*token*/) override {}
  std::optional<Guess> Next(absl::Span<const TokenId> /*run*/) const override {
    ++questions_;
    return Guess{7, 0.5};
  }
  uint64_t version() const override { return version_; }

 private:
  int& questions_;
  const uint64_t& version_;
};

TEST(Speculator, AsksOnceWhatTheSchedulerAsksAtEveryTurn) {
  int questions = 0;
  uint64_t version = 0;
  Speculator speculator({.suffix = false, .vocab = 1000, .more = [&](const Sequence& /*sequence*/) {
                           return std::make_unique<AskedGuesser>(&questions, &version);
                         }});
  speculator.SetRows(4, 0);
  SequenceSpec spec = SpecOf(1, {5});
  spec.stop_tokens = {7};  // so it is never sent
  GuessLine line(&speculator, std::move(spec));
  const auto asked_for_a_thousand = [&] {
    const int before = questions;
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(line.Ask(), 7);
    return questions - before;
  };
  EXPECT_EQ(asked_for_a_thousand(), 1);
  line.Come(8);
  EXPECT_EQ(asked_for_a_thousand(), 1) << "another history";
  line.Send();
  EXPECT_EQ(asked_for_a_thousand(), 1) << "another run";
  ++version;
  EXPECT_EQ(asked_for_a_thousand(), 1) << "it has learnt something";
}

TEST(Speculator, AsksAgainOnceAPredictionIsIndexed) {
  Speculator speculator({.vocab = 1000});
  speculator.SetRows(4, 0);
  SequenceSpec spec = SpecOf(1, {1, 2, 3});
  spec.prediction = Tokens(2 * Speculator::kTokensATurn + 1, 9);
  GuessLine line(&speculator, std::move(spec));
  EXPECT_EQ(line.Ask(), kNoToken);
  EXPECT_EQ(line.Ask(), kNoToken);
  EXPECT_EQ(line.Ask(), 9);
}

TEST(Speculator, CountsTheGuessesThatWereSentAlone) {
  Speculator speculator(GuessingByPosition([](int64_t) { return 7; }));
  speculator.SetRows(kManyRows, 0);
  GuessLine line(&speculator, SpecOf(1, {5}));
  const GuesserCounts& draft = speculator.counts()[2];
  EXPECT_STREQ(draft.name, "draft");
  EXPECT_EQ(line.Ask(), 7);
  EXPECT_EQ(line.Ask(), 7);
  line.Come(7);  // it was not sent
  EXPECT_EQ(draft.tried, 0u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(line.Ask(), 7);  // nor that one, at first
    EXPECT_EQ(line.Send(), 7);
  }
  line.Come(7);
  line.Come(7);
  EXPECT_EQ(draft.tried, 2u);
  EXPECT_EQ(draft.right, 2u);
  line.Come(8);  // so the fourth never has an outcome
  line.Come(7);
  EXPECT_EQ(draft.tried, 3u);
  EXPECT_EQ(draft.right, 2u);
}

TEST(Speculator, FeedsABoundedNumberOfTokensACall) {
  const Tokens prompt(5000, 3);
  for (const int open : {1, 16, 200}) {
    std::map<SequenceId, int64_t> fed;
    Speculator::Options options{.suffix = false, .vocab = 1000};
    options.more = [&fed](const Sequence& sequence) {
      class FeedCounter : public Guesser {
       public:
        explicit FeedCounter(int64_t* fed) : fed_(*fed) {}
        void Append(TokenId /*token*/) override { ++fed_; }
        std::optional<Guess> Next(absl::Span<const TokenId> /*run*/) const override { return Guess{4, 0.5}; }

       private:
        int64_t& fed_;
      };
      return std::make_unique<FeedCounter>(&fed[sequence.spec().id]);
    };
    Speculator speculator(options);
    std::vector<std::unique_ptr<GuessLine>> lines;
    lines.reserve(static_cast<size_t>(open));
    for (int i = 0; i < open; ++i) {
      lines.push_back(std::make_unique<GuessLine>(&speculator, SpecOf(static_cast<SequenceId>(i), prompt)));
    }
    GuessLine& line = *lines[0];
    int64_t& tokens = fed[0];
    EXPECT_EQ(tokens, 0) << "it may wait for long";
    speculator.SetRows(2, 0);
    const int64_t most = std::max(Speculator::kTokensAtLeast, Speculator::kTokensATurn / open);
    int64_t before = 0;
    for (; tokens < line.sequence().tokens(); before = tokens) {
      const TokenId guess = line.Ask();
      ASSERT_LE(tokens - before, most);
      ASSERT_EQ(guess, tokens == line.sequence().tokens() ? 4 : kNoToken);
      before = tokens;
      line.Come(9);
      ASSERT_LE(tokens - before, most);
      ASSERT_GT(tokens, before);
    }
    line.Come(9);
    EXPECT_EQ(tokens, line.sequence().tokens());
  }
}

TEST(Speculator, FeedsNothingMoreWhereOpenSequencesHaveEnoughInTheirIndices) {
  Speculator speculator({.vocab = 1000, .most_tokens = 20});
  speculator.SetRows(4, 0);
  const Tokens text = Repeated({1, 2, 3}, 5);
  GuessLine first(&speculator, SpecOf(1, text)), second(&speculator, SpecOf(2, text));
  EXPECT_EQ(first.Ask(), 1);
  EXPECT_EQ(second.Ask(), kNoToken) << "it has a part of its text";
  speculator.Close(1);
  EXPECT_EQ(second.Ask(), 1);
  for (int i = 0; i < 5; ++i) second.Come(text[static_cast<size_t>(i)]);
  EXPECT_EQ(second.Ask(), 3);
  second.Come(3);
  EXPECT_EQ(second.Ask(), kNoToken);
}

TEST(Speculator, ADraftAloneHasNoIndexToFill) {
  Speculator::Options options = GuessingByPosition([](int64_t position) { return static_cast<TokenId>(position); });
  options.most_tokens = 20;
  Speculator speculator(options);
  speculator.SetRows(4, 0);
  GuessLine line(&speculator, SpecOf(1, Repeated({1, 2, 3}, 10)));
  EXPECT_EQ(line.Ask(), 30);
  line.Come(7);
  EXPECT_EQ(line.Ask(), 31);
}

TEST(Speculator, FindsTheOutputOfEndedRequestsOfTheSameSalt) {
  for (const bool cancelled : {false, true}) {
    Speculator speculator({.vocab = 10'000});
    speculator.SetRows(4, 0);
    GuessLine first(&speculator, SpecOf(1, {1, 2, 3}, "mine"));
    for (const TokenId token : {11, 12, 13, 14}) first.Come(token);
    GuessLine beside(&speculator, SpecOf(2, {11, 12}, "mine"));
    EXPECT_EQ(beside.Ask(), kNoToken) << "it has not ended";
    if (cancelled) {
      speculator.Close(1);
    } else {
      first.ComeAndEnd(15);
    }
    EXPECT_EQ(beside.Ask(), 13);
    GuessLine last(&speculator, SpecOf(3, {13, 14}, "mine")), other(&speculator, SpecOf(4, {11, 12}, "other"));
    EXPECT_EQ(last.Ask(), cancelled ? kNoToken : 15);
    EXPECT_EQ(other.Ask(), kNoToken);
    GuessLine prompt(&speculator, SpecOf(5, {1, 2}, "mine"));
    EXPECT_EQ(prompt.Ask(), kNoToken) << "prompts are not kept";
  }
}

TEST(Speculator, KeepsTheEndOfALongOutput) {
  constexpr auto kStored = static_cast<TokenId>(Speculator::kStoredTokens);
  Speculator speculator({.vocab = 1'000'000});
  GuessLine line(&speculator, SpecOf(1, {0}));
  const TokenId all = 3 * kStored + 100;
  for (TokenId token = 1; token <= all; ++token) line.Come(token);
  speculator.Close(1);
  speculator.SetRows(2, 0);
  const auto next = [&](TokenId token) { return GuessLine(&speculator, SpecOf(9, {token - 1, token})).Ask(); };
  EXPECT_EQ(next(all - 1), all);
  speculator.Close(9);
  EXPECT_EQ(next(all - kStored + 2), all - kStored + 3);
  speculator.Close(9);
  EXPECT_EQ(next(all - kStored - 10), kNoToken);
}

TEST(Speculator, LearnsTheShareOfPositionsThatItHasRightSentOrNot) {
  for (const bool sent : {false, true}) {
    for (const int sixteenths : {0, 4, 8, 13, 16}) {
      // Of those that it has not right, it has a half wrong, and says nothing for the others.
      const auto right = [&](int64_t position) { return position * 7 % 16 < sixteenths; };
      Speculator speculator(GuessingByPosition([&](int64_t position) {
        if (!right(position) && position / 16 % 2 == 0) return kNoToken;
        return static_cast<TokenId>(position % 900 + (right(position) ? 0 : 1));
      }));
      speculator.SetRows(sent ? 4 : 1, 0);
      GuessLine line(&speculator, SpecOf(1, {0}));
      for (int i = 0; i < 400; ++i) {
        line.SendAll();
        line.Come(static_cast<TokenId>(line.sequence().tokens() % 900));
      }
      const auto expected = static_cast<size_t>(sixteenths);
      int32_t near = speculator.shares()[expected];
      if (expected > 0) near += speculator.shares()[expected - 1];
      if (expected < 16) near += speculator.shares()[expected + 1];
      EXPECT_EQ(near, 1) << sixteenths << ", sent: " << sent << ", shares "
                         << ::testing::PrintToString(speculator.shares());
      EXPECT_EQ(speculator.counts()[2].tried > 0, sent);
    }
  }
}

// Three of four guesses are right, of a draft that guesses at one position in 16; the suffix says something at most.
TEST(Speculator, LearnsNothingFromPositionsAtWhichADraftRests) {
  class Resting : public GuesserOfPosition {
   public:
    using GuesserOfPosition::GuesserOfPosition;
    bool rests() const override { return true; }
  };
  const auto answer = [](int64_t position) {
    return position % 16 != 0 ? kNoToken : static_cast<TokenId>(position % 64 == 0 ? 900 : 5);
  };
  Speculator speculator({.vocab = 1000, .more = [&](const Sequence&) { return std::make_unique<Resting>(answer); }});
  GuessLine line(&speculator, SpecOf(1, {0}));
  std::mt19937 random(29);
  while (line.sequence().tokens() < 16 * 200) {
    line.Come(line.sequence().tokens() % 16 == 0 ? 5 : static_cast<TokenId>(random() % 20));
  }
  EXPECT_EQ(speculator.shares()[11] + speculator.shares()[12] + speculator.shares()[13], 1)
      << ::testing::PrintToString(speculator.shares());
}

TEST(Speculator, AsksAgainAGuesserThatWasWrongForAWhile) {
  bool right = false;
  Speculator speculator(GuessingByPosition([&right](int64_t) { return right ? 7 : 8; }));
  speculator.SetRows(3, 6);
  GuessLine line(&speculator, SpecOf(1, {5}));
  for (int i = 0; i < 100; ++i) {
    line.SendAll();
    line.Come(7);
  }
  EXPECT_EQ(line.Ask(), kNoToken);
  right = true;
  int until = 0;
  for (; line.Ask() == kNoToken; ++until) line.Come(7);
  EXPECT_GT(until, 10);
  EXPECT_LT(until, 40);
}

TEST(Speculator, BeginsASequenceWithWhatThoseBeforeItHad) {
  Speculator speculator(GuessingByPosition([](int64_t) { return 7; }));
  for (SequenceId id = 1; id <= 3; ++id) {
    GuessLine line(&speculator, SpecOf(id, {5}));
    const size_t share = id == 1 ? 8 : 16;
    EXPECT_EQ(speculator.shares()[share], 1) << id;
    for (int i = 0; i < 300; ++i) line.Come(7);
    speculator.Close(id);
  }
}

TEST(Speculator, TrustsAGuesserAsMuchAsItKeptToOthers) {
  Speculator speculator(GuessingByPosition([](int64_t) { return 700; }, true));
  speculator.SetRows(2, 0);
  const Tokens text = Repeated({1, 2, 3}, 30);
  for (SequenceId id = 1; id <= 30; ++id) {
    GuessLine line(&speculator, SpecOf(id, text, "of its own"));
    if (id == 1) {
      EXPECT_EQ(line.Ask(), 1) << "the suffix is sure";
    }
    line.Ask();
    line.Come(50);  // what nobody said
    speculator.Close(id);
  }
  EXPECT_EQ(GuessLine(&speculator, SpecOf(31, text)).Ask(), 700);
}

TEST(Speculator, CountsEveryOpenSequenceInOneShare) {
  std::mt19937 random(23);
  Speculator speculator(GuessingByPosition([&random](int64_t) { return static_cast<TokenId>(random() % 3); }, true));
  speculator.SetRows(3, 0);
  std::map<SequenceId, std::unique_ptr<GuessLine>> lines;
  for (int i = 0; i < 2000; ++i) {
    const SequenceId id = random() % 20;
    if (lines.count(id) == 0) {
      lines[id] = std::make_unique<GuessLine>(&speculator, SpecOf(id, RandomText(&random, 1 + random() % 30, 3)));
    } else if (random() % 30 == 0) {
      if (random() % 2 == 0) lines[id]->ComeAndEnd(1);
      speculator.Close(id);
      lines.erase(id);
    } else {
      lines[id]->SendAll();
      lines[id]->Come(static_cast<TokenId>(random() % 3));
    }
    int32_t sum = 0;
    for (const int32_t share : speculator.shares()) {
      ASSERT_GE(share, 0);
      sum += share;
    }
    ASSERT_EQ(sum, static_cast<int32_t>(lines.size()));
  }
}

TEST(Speculator, CountsPredictedTokensTheSameHoweverManyAreGuessed) {
  std::mt19937 random(24);
  const Tokens prediction = RandomText(&random, 1500, 50);
  Tokens output = prediction;
  for (size_t i = 20; i < output.size(); i += 37) output[i] = 60;
  const auto cost = [&](int32_t rows, size_t until, bool cancelled, size_t relaunched_at) {
    Speculator speculator({.vocab = 1000});
    speculator.SetRows(rows, 0);
    SequenceSpec spec = SpecOf(1, {1, 2, 3});
    spec.prediction = prediction;
    spec.output.assign(output.begin(), output.begin() + static_cast<int64_t>(relaunched_at));
    GuessLine line(&speculator, std::move(spec));
    for (size_t i = relaunched_at; i + 1 < until; ++i) {
      line.SendAll();
      line.Come(output[i]);
    }
    PredictionCost cost;
    if (cancelled) {
      line.Come(output[until - 1]);
      cost = speculator.Close(1);
    } else {
      cost = line.ComeAndEnd(output[until - 1]);
    }
    return std::pair(cost.accepted, cost.rejected);
  };
  const auto all = cost(1, output.size(), false, 0);
  EXPECT_GT(all.first, 1200);
  EXPECT_GT(all.second, 30);
  EXPECT_EQ(cost(8, output.size(), false, 0), all);
  EXPECT_EQ(cost(4, output.size(), true, 0), all);
  EXPECT_EQ(cost(4, output.size(), false, 700), all);
  EXPECT_EQ(cost(4, 1, false, 0), std::pair(int64_t{1}, int64_t{0})) << "before its prediction was indexed";
}

TEST(Speculator, IndexesABoundedPartOfAPredictionThatItsSequenceDoesNotWaitFor) {
  for (const int64_t tokens : {Speculator::kTokensAtEnd - 1, 3 * Speculator::kTokensAtEnd}) {
    Speculator speculator({.vocab = 1000});
    SequenceSpec spec = SpecOf(1, {1, 2, 3});
    spec.prediction = Tokens(static_cast<size_t>(tokens), 9);
    GuessLine line(&speculator, std::move(spec));
    EXPECT_EQ(line.ComeAndEnd(9).accepted, tokens < Speculator::kTokensAtEnd ? 1 : 0);
  }
}

TEST(Speculator, GuessesByThePredictionWhileThePromptIsNotFed) {
  Speculator speculator({.vocab = 1000});
  speculator.SetRows(4, 0);
  SequenceSpec spec = SpecOf(1, Tokens(5000, 3));
  spec.prediction = {11, 12, 13};
  GuessLine line(&speculator, std::move(spec));
  EXPECT_EQ(line.Send(), 11);
  EXPECT_EQ(line.Send(), 12);
  line.Come(11);
  line.Come(99);
  EXPECT_EQ(speculator.counts()[0].tried, 2u);
  EXPECT_EQ(speculator.counts()[0].right, 1u);
}

TEST(Speculator, TakesTheOutputOfALostJobForText) {
  Speculator speculator({.vocab = 1000});
  speculator.SetRows(4, 0);
  SequenceSpec spec = SpecOf(1, {1, 2, 3});
  spec.output = {4, 5, 6, 3, 4};
  GuessLine line(&speculator, std::move(spec));
  EXPECT_EQ(line.Ask(), 5);
}

TEST(Speculator, IgnoresSequencesThatItDoesNotKnow) {
  Speculator speculator({.vocab = 1000});
  speculator.SetRows(4, 0);
  const Sequence unknown(SpecOf(1, {1, 2, 1, 2}));
  EXPECT_EQ(speculator.GuessFor(unknown), kNoToken);
  EXPECT_EQ(speculator.Close(1).accepted, 0);
  EXPECT_EQ(speculator.Confirmed({.sequence = 1}, &unknown).rejected, 0);
}

}  // namespace
}  // namespace stagecoach
