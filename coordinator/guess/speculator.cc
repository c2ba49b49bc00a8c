#include "coordinator/guess/speculator.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "coordinator/guess/grammar_fork.h"
#include "coordinator/guess/prediction_guesser.h"
#include "coordinator/guess/suffix_guesser.h"

namespace stagecoach {
namespace {

constexpr SuffixGuesser::Limits kLimits;
constexpr int64_t kIndexed = kLimits.most_tokens;

}  // namespace

struct Speculator::Speculation {
  struct Source {
    std::unique_ptr<Guesser> guesser;  // nullptr: it has none of this kind
    Acceptance acceptance;
  };
  // What GuessFor was asked, at a history that only grows.
  struct Question {
    int64_t known = -1;
    size_t run = 0;  // tokens
    uint64_t version = 0;
    bool operator==(const Question&) const = default;
  };
  // What GuessFor said, which was not always sent.
  struct Said {
    int64_t position = 0;
    Kind kind = kPrediction;
    Guess guess;
  };

  bool level() const { return fed == known; }
  // Grows with all but the history and the run that may change an answer.
  uint64_t version() const {
    uint64_t sum = level() ? 1 : 0;
    for (const Source& source : sources) sum += source.guesser == nullptr ? 0 : source.guesser->version();
    return sum;
  }

  std::string salt;
  int64_t prompt = 0;  // tokens
  int64_t known = 0;   // tokens, of prompt and output
  int64_t fed = 0;     // of them, those that suffix and draft have
  std::array<Source, kKinds> sources;
  bool guesses = false;                     // it has any
  PredictionGuesser* prediction = nullptr;  // the one in `sources`
  std::optional<GrammarFork> grammar;
  Question question;  // GuessFor's last one
  TokenId answer = kNoToken;
  std::vector<Said> said;       // by position; none is known
  std::vector<TokenId> output;  // the end of what was fed of it, at least kStoredTokens if there are so many
  Acceptance positions;
  size_t share = 0;  // the class that shares_ counts it in
};

Speculator::Speculator(Options options)
    : options_(std::move(options)),
      store_(options_.store),
      means_{Acceptance(0.5, kJobMemory), Acceptance(0.5, kJobMemory), Acceptance(0.5, kJobMemory)},
      position_mean_(0.5, kJobMemory),
      counts_{{"prediction"}, {"suffix"}, {"draft"}} {}

Speculator::~Speculator() = default;

void Speculator::Open(const Sequence& sequence, std::optional<GrammarMatcher> grammar,
                      std::vector<TokenId> prediction) {
  const SequenceSpec& spec = sequence.spec();
  auto opened = std::make_unique<Speculation>();
  Speculation& of = *opened;
  of.salt = spec.salt;
  of.prompt = static_cast<int64_t>(spec.prompt.size());
  of.known = sequence.tokens();
  if (grammar.has_value()) of.grammar.emplace(*std::move(grammar));
  for (size_t kind = 0; kind < kKinds; ++kind) of.sources[kind].acceptance = means_[kind].Heir();
  if (!prediction.empty()) {
    auto guesser = std::make_unique<PredictionGuesser>(std::move(prediction));
    for (const TokenId token : sequence.output()) guesser->Append(token);
    of.prediction = guesser.get();
    of.sources[kPrediction].guesser = std::move(guesser);
  }
  if (options_.suffix) {
    of.sources[kSuffix].guesser = std::make_unique<SuffixGuesser>(kLimits, &store_, spec.salt);
  }
  if (options_.more) of.sources[kMore].guesser = options_.more(sequence);
  for (const Speculation::Source& source : of.sources) of.guesses = of.guesses || source.guesser != nullptr;
  of.positions = of.guesses ? position_mean_.Heir() : Acceptance(0);
  of.share = ShareClass(of.positions.Rate());
  ++shares_[of.share];
  CHECK(open_.emplace(spec.id, std::move(opened)).second);
}

PredictionCost Speculator::Confirmed(const SequenceEvent& event, const Sequence* sequence) {
  const auto found = open_.find(event.sequence);
  if (found == open_.end()) return {};
  Speculation& of = *found->second;
  for (size_t i = 0; i < event.tokens.size(); ++i) {
    Take(of, event.tokens[i].token, i == 0 ? event.guess : SequenceEvent::Guess::kNone);
  }
  if (sequence == nullptr) return Close(event.sequence);
  Feed(of, *sequence);
  UpdateShare(of);
  return CostOf(of);
}

PredictionCost Speculator::Close(SequenceId sequence) {
  const auto found = open_.find(sequence);
  if (found == open_.end()) return {};
  Speculation& of = *found->second;
  if (of.prediction != nullptr) of.prediction->CatchUp(kTokensAtEnd);
  const PredictionCost cost = CostOf(of);
  if (options_.suffix) {
    const size_t stored = std::min(of.output.size(), kStoredTokens);
    store_.Add(of.salt, absl::MakeSpan(of.output).last(stored));
  }
  --shares_[of.share];
  indexed_ -= std::min(of.fed, kIndexed);
  open_.erase(found);
  return cost;
}

void Speculator::SetRows(int32_t rows, int32_t shares_from) {
  rows_ = rows;
  shares_from_ = shares_from;
}

bool Speculator::MayGuess(uint64_t /*number*/, int32_t /*in_flight*/) { return rows_ > 1; }

TokenId Speculator::GuessFor(const Sequence& sequence) {
  const auto found = open_.find(sequence.spec().id);
  if (found == open_.end()) return kNoToken;
  Speculation& of = *found->second;
  const int32_t rows = static_cast<int32_t>(of.share) >= shares_from_ ? rows_ : 1;
  if (of.known != sequence.tokens() || sequence.slices_in_flight >= rows) return kNoToken;
  Feed(of, sequence);
  const Speculation::Question question = {of.known, sequence.guesses.size(), of.version()};
  if (question != of.question) {
    of.question = question;
    of.answer = Answer(of, sequence.guesses);
  }
  return of.answer;
}

TokenId Speculator::Answer(Speculation& of, absl::Span<const TokenId> run) {
  const Answers answers = Ask(of, run);
  const Kind kind = Pick(of, answers);
  if (!answers[kind].has_value()) return kNoToken;
  const Guess& guess = *answers[kind];
  if (!IsReal(guess.token)) return kNoToken;
  if (of.grammar.has_value() && !of.grammar->Allows(run, guess.token)) return kNoToken;
  const int64_t position = of.known + static_cast<int64_t>(run.size());
  while (!of.said.empty() && of.said.back().position >= position) of.said.pop_back();  // not sent
  of.said.push_back({position, kind, guess});
  return guess.token;
}

bool Speculator::IsReal(TokenId token) const {
  return token >= 0 && token < options_.vocab &&
         !std::binary_search(options_.unused.begin(), options_.unused.end(), token);
}

void Speculator::Feed(Speculation& of, const Sequence& sequence) {
  int64_t left = std::max(kTokensAtLeast, kTokensATurn / static_cast<int64_t>(open_.size()));
  if (of.prediction != nullptr) left -= of.prediction->CatchUp(left);
  for (; left > 0 && has_room() && !of.level(); --left) Append(of, sequence.token(of.fed));
}

void Speculator::Append(Speculation& of, TokenId token) {
  for (const Kind kind : {kSuffix, kMore}) {
    if (of.sources[kind].guesser != nullptr) of.sources[kind].guesser->Append(token);
  }
  if (of.fed < kIndexed) ++indexed_;
  if (of.fed++ < of.prompt) return;
  if (of.output.size() == 2 * kStoredTokens) of.output.erase(of.output.begin(), of.output.begin() + kStoredTokens);
  of.output.push_back(token);
}

Speculator::Answers Speculator::Ask(const Speculation& of, absl::Span<const TokenId> run) const {
  Answers answers;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Guesser* guesser = of.sources[kind].guesser.get();
    if (guesser != nullptr && (kind == kPrediction || of.level())) answers[kind] = guesser->Next(run);
  }
  return answers;
}

Speculator::Kind Speculator::Pick(const Speculation& of, const Answers& answers) {
  if (answers[kPrediction].has_value()) return kPrediction;
  const std::optional<Guess>& suffix = answers[kSuffix];
  const bool sure = suffix && of.sources[kSuffix].acceptance.Calibrated(suffix->confidence) >= kSure;
  const Guesser* draft = of.sources[kMore].guesser.get();
  return !sure && (answers[kMore].has_value() || (draft != nullptr && draft->rests())) ? kMore : kSuffix;
}

void Speculator::Take(Speculation& of, TokenId token, SequenceEvent::Guess sent) {
  const bool level = of.level();  // so it is known what would have been guessed
  Answers answers = Ask(of, {});
  Kind kind = Pick(of, answers);
  const bool was_sent = sent != SequenceEvent::Guess::kNone && !of.said.empty() && of.said.front().position == of.known;
  if (was_sent) {
    kind = of.said.front().kind;
    answers[kind] = of.said.front().guess;
    ++counts_[kind].tried;
    counts_[kind].right += sent == SequenceEvent::Guess::kRight ? 1 : 0;
  }
  for (size_t each = 0; each < kKinds; ++each) {
    if (!answers[each].has_value()) continue;
    const bool right = answers[each]->token == token;
    of.sources[each].acceptance.Observe(answers[each]->confidence, right);
    means_[each].Observe(answers[each]->confidence, right);
  }
  const bool rested = kind == kMore && !answers[kind].has_value();
  if (of.guesses && (was_sent || (level && !rested))) {
    const bool hit = answers[kind].has_value() && answers[kind]->token == token;
    of.positions.Observe(1, hit);
    position_mean_.Observe(1, hit);
  }
  // Behind a miss, and where nothing was in flight, nothing that was said stands.
  if (was_sent && sent == SequenceEvent::Guess::kRight) {
    of.said.erase(of.said.begin());
  } else {
    of.said.clear();
  }
  if (of.grammar.has_value()) of.grammar->Confirm(token);
  if (of.prediction != nullptr) of.prediction->Append(token);
  if (level && has_room()) Append(of, token);
  ++of.known;
}

void Speculator::UpdateShare(Speculation& of) {
  --shares_[of.share];
  of.share = ShareClass(of.positions.Rate());
  ++shares_[of.share];
}

PredictionCost Speculator::CostOf(const Speculation& of) {
  if (of.prediction == nullptr) return {};
  return {of.prediction->accepted(), of.prediction->rejected()};
}

}  // namespace stagecoach
