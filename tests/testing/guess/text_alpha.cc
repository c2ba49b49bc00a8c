#include "tests/testing/guess/text_alpha.h"

#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "coordinator/guess/prediction_guesser.h"
#include "coordinator/guess/speculator.h"
#include "coordinator/guess/suffix_guesser.h"
#include "coordinator/guess/suffix_store.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

std::string Text(const std::string& name) {
  return ReadFileOrDie(SourcePath(absl::StrCat("tests/testing/guess/texts/", name, ".txt")));
}

SequenceSpec RequestOf(SequenceId id, std::vector<TokenId> prompt, std::vector<TokenId> prediction) {
  SequenceSpec spec;
  spec.id = id;
  spec.prompt = std::move(prompt);
  spec.prediction = std::move(prediction);
  spec.max_new_tokens = kMaxNewTokensRange.max;
  return spec;
}

// A sequence that decodes, as the scheduler moves it on.
class GuessedPipeline {
 public:
  GuessedPipeline(Speculator* speculator, SequenceSpec spec, int stages)
      : speculator_(*speculator), sequence_(std::move(spec)), rows_(static_cast<size_t>(stages)) {
    speculator_.Open(sequence_, std::nullopt, sequence_.spec().prediction);
    sequence_.handed_out = sequence_.tokens();
  }
  ~GuessedPipeline() { speculator_.Close(sequence_.spec().id); }

  // The row whose result is the next token enters; or, where that one is in the pipeline, a guess.
  void Enter() {
    rows_.emplace_back();
    if (sequence_.handed_out == sequence_.tokens() - 1) {
      rows_.back() = {sequence_.handed_out, sequence_.last_token()};
    } else if (const TokenId guess = speculator_.GuessFor(sequence_); guess != kNoToken) {
      rows_.back() = {sequence_.handed_out, guess};
      sequence_.guesses.push_back(guess);
    } else {
      return;
    }
    ++sequence_.handed_out;
    ++sequence_.slices_in_flight;
  }

  enum class Left { kNothing, kVoid, kToken };
  // The oldest row leaves; `next` is the token that comes if it stands.
  Left Leave(TokenId next) {
    const Row row = rows_.front();
    rows_.pop_front();
    if (row.token == kNoToken) return Left::kNothing;
    --sequence_.slices_in_flight;
    if (!GuessHolds(row.position, row.token, sequence_.tokens(), sequence_.last_token())) return Left::kVoid;
    Come(next);
    return Left::kToken;
  }

  // What was sent for the next position proves right or wrong.
  void Come(TokenId token) {
    SequenceEvent event{.sequence = sequence_.spec().id};
    event.tokens.push_back({.sequence = event.sequence, .token = token});
    sequence_.Append(token);
    if (sequence_.guesses.empty()) {
      sequence_.handed_out = sequence_.tokens() - 1;
    } else if (sequence_.guesses.front() == token) {
      event.guess = SequenceEvent::Guess::kRight;
      sequence_.guesses.erase(sequence_.guesses.begin());
    } else {
      event.guess = SequenceEvent::Guess::kWrong;
      sequence_.guesses.clear();
      sequence_.handed_out = sequence_.tokens() - 1;
    }
    speculator_.Confirmed(event, &sequence_);
  }

 private:
  struct Row {
    int64_t position = 0;
    TokenId token = kNoToken;  // there is no row
  };
  Speculator& speculator_;
  Sequence sequence_;
  std::deque<Row> rows_;  // [stages], oldest first
};

}  // namespace

std::vector<GuessedText> GuessedTexts() {
  std::vector<GuessedText> texts;
  for (const char* name : {"edit", "summary", "prose", "form"}) {
    texts.push_back({name, Text(absl::StrCat(name, ".prompt")), Text(absl::StrCat(name, ".output")), "", ""});
  }
  // The file stands behind the prompt's first paragraph, and an empty line behind it.
  const std::string& prompt = texts[0].prompt;
  const size_t file = prompt.find("\n\n") + 2;
  texts[0].prediction = prompt.substr(file, prompt.size() - 1 - file);
  texts[3].earlier = Text("form.earlier");
  return texts;
}

std::string GuessSourceName(GuessSource source) {
  switch (source) {
    case GuessSource::kSuffix: return "suffix";
    case GuessSource::kEarlier: return "earlier";
    case GuessSource::kPrediction: return "prediction";
    case GuessSource::kAll: return "all";
  }
  CHECK(false);
}

GuessAlpha MeasureAlpha(const GuessedText& text, const Tokenizer& tokenizer, GuessSource source, int64_t least_match) {
  const auto tokens_of = [&](const std::string& part) { return tokenizer.Encode(part, false, false); };
  const std::vector<TokenId> prompt = tokens_of(text.prompt), output = tokens_of(text.output);
  SuffixStore store({});
  store.Add("salt", tokens_of(text.earlier));
  const bool with_earlier = source == GuessSource::kEarlier || source == GuessSource::kAll;
  SuffixGuesser suffix({.least_match = least_match}, with_earlier ? &store : nullptr, "salt");
  PredictionGuesser prediction(tokens_of(text.prediction));
  prediction.CatchUp(std::numeric_limits<int64_t>::max());
  std::vector<Guesser*> asked;
  if (source == GuessSource::kPrediction || source == GuessSource::kAll) asked.push_back(&prediction);
  if (source != GuessSource::kPrediction) asked.push_back(&suffix);

  for (const TokenId token : prompt) suffix.Append(token);
  GuessAlpha alpha{.tokens = static_cast<int64_t>(output.size())};
  for (const TokenId token : output) {
    std::optional<Guess> guess;
    for (size_t i = 0; i < asked.size() && !guess; ++i) guess = asked[i]->Next({});
    if (guess) {
      ++alpha.guessed;
      alpha.right += guess->token == token ? 1 : 0;
      alpha.confidence += guess->confidence;
    }
    for (Guesser* guesser : asked) guesser->Append(token);
  }
  if (alpha.guessed > 0) alpha.confidence /= static_cast<double>(alpha.guessed);
  if (suffix.index().size() > 0) {
    alpha.index_bytes = static_cast<double>(suffix.index().bytes()) / static_cast<double>(suffix.index().size());
  }
  return alpha;
}

GuessedRun RunGuessed(const GuessedText& text, const Tokenizer& tokenizer, int stages) {
  const auto tokens_of = [&](const std::string& part) { return tokenizer.Encode(part, false, false); };
  Speculator speculator({.vocab = tokenizer.vocab_size()});
  speculator.SetRows(stages, 0);
  if (!text.earlier.empty()) {
    GuessedPipeline earlier(&speculator, RequestOf(1, {0}, {}), stages);
    for (const TokenId token : tokens_of(text.earlier)) earlier.Come(token);
  }
  GuessedPipeline pipeline(&speculator, RequestOf(2, tokens_of(text.prompt), tokens_of(text.prediction)), stages);
  const std::vector<TokenId> output = tokens_of(text.output);
  pipeline.Come(output[0]);  // the prompt's rows gave it
  GuessedRun run{.tokens = static_cast<int64_t>(output.size()) - 1};
  for (size_t next = 1; next < output.size(); ++run.steps) {
    const GuessedPipeline::Left left = pipeline.Leave(output[next]);
    next += left == GuessedPipeline::Left::kToken ? 1 : 0;
    run.void_rows += left == GuessedPipeline::Left::kVoid ? 1 : 0;
    pipeline.Enter();
  }
  for (const GuesserCounts& counts : speculator.counts()) run.right += static_cast<int64_t>(counts.right);
  return run;
}

}  // namespace stagecoach::testing
