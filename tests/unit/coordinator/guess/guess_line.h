#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_GUESS_GUESS_LINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_GUESS_GUESS_LINE_H_

// A sequence whose guesses a speculator says, moved on as the scheduler moves it; and guessers for it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/guess/speculator.h"

namespace stagecoach::testing {

class GuessLine {
 public:
  GuessLine(Speculator* speculator, SequenceSpec spec, std::optional<GrammarMatcher> grammar = std::nullopt)
      : speculator_(*speculator), sequence_(std::move(spec)) {
    speculator_.Open(sequence_, std::move(grammar), sequence_.spec().prediction);
    sequence_.handed_out = sequence_.tokens();
    sequence_.slices_in_flight = 1;
  }

  // What the speculator says for its next row, not sent.
  TokenId Ask() { return speculator_.GuessFor(sequence_); }
  // The same, sent if there is one.
  TokenId Send() {
    const TokenId token = Ask();
    if (token == kNoToken) return token;
    sequence_.guesses.push_back(token);
    ++sequence_.handed_out;
    ++sequence_.slices_in_flight;
    return token;
  }
  void SendAll() {
    while (Send() != kNoToken) {
    }
  }

  // Its next token comes. Behind a wrong guess the right row is sent, and nothing void is in flight any more.
  PredictionCost Come(TokenId token) {
    const SequenceEvent event = EventOf(token);
    sequence_.Append(token);
    if (event.guess == SequenceEvent::Guess::kRight) {
      sequence_.guesses.erase(sequence_.guesses.begin());
      --sequence_.slices_in_flight;
    } else {
      sequence_.guesses.clear();
      sequence_.slices_in_flight = 1;
    }
    sequence_.handed_out = sequence_.tokens() + static_cast<int64_t>(sequence_.guesses.size());
    return speculator_.Confirmed(event, &sequence_);
  }
  // Its last one: the scheduler knows it no longer.
  PredictionCost ComeAndEnd(TokenId token) { return speculator_.Confirmed(EventOf(token), nullptr); }

  Sequence& sequence() { return sequence_; }

 private:
  SequenceEvent EventOf(TokenId token) const {
    SequenceEvent event{.sequence = sequence_.spec().id};
    event.tokens.push_back({.sequence = event.sequence, .token = token});
    if (!sequence_.guesses.empty()) {
      event.guess = sequence_.guesses.front() == token ? SequenceEvent::Guess::kRight : SequenceEvent::Guess::kWrong;
    }
    return event;
  }

  Speculator& speculator_;
  Sequence sequence_;
};

// Says what a function of the position says, which may be another answer every time.
class GuesserOfPosition : public Guesser {
 public:
  using Answer = std::function<TokenId(int64_t position)>;
  explicit GuesserOfPosition(Answer answer) : answer_(std::move(answer)) {}
  void Append(TokenId /*token*/) override { ++tokens_; }
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override {
    const TokenId token = answer_(tokens_ + static_cast<int64_t>(run.size()));
    return token == kNoToken ? std::nullopt : std::optional(Guess{token, 0.5});
  }

  uint64_t version() const override { return version_++; }

 private:
  const Answer answer_;
  int64_t tokens_ = 0;
  mutable uint64_t version_ = 0;
};

// Options of a speculator whose only guesser, unless `suffix`, is of positions.
inline Speculator::Options GuessingByPosition(const GuesserOfPosition::Answer& answer, bool suffix = false) {
  return {.suffix = suffix, .vocab = 1000, .more = [answer](const Sequence& /*sequence*/) {
            return std::make_unique<GuesserOfPosition>(answer);
          }};
}

inline SequenceSpec SpecOf(SequenceId id, std::vector<TokenId> prompt, std::string salt = "") {
  SequenceSpec spec;
  spec.id = id;
  spec.prompt = std::move(prompt);
  spec.salt = std::move(salt);
  spec.max_new_tokens = 1'000'000;
  return spec;
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_GUESS_GUESS_LINE_H_
