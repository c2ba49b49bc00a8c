#ifndef STAGECOACH_TESTS_TESTING_GUESS_TEXT_ALPHA_H_
#define STAGECOACH_TESTS_TESTING_GUESS_TEXT_ALPHA_H_

// Which share of a text's tokens each guesser has right (alpha), on texts that are committed beside this file.

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/text/tokenizer.h"

namespace stagecoach::testing {

// A request and an answer to it, as a person wrote both.
struct GuessedText {
  std::string name;
  std::string prompt;
  std::string output;
  std::string prediction;  // of the request; may be empty
  std::string earlier;     // an output of an earlier request of the same cache salt; may be empty
};
// edit: a source file with some changes. summary: quotes its source. prose: has nothing to quote. form: a record like
// earlier ones.
std::vector<GuessedText> GuessedTexts();

enum class GuessSource { kSuffix, kEarlier, kPrediction, kAll };
inline constexpr GuessSource kGuessSources[] = {GuessSource::kSuffix, GuessSource::kEarlier, GuessSource::kPrediction,
                                                GuessSource::kAll};
// suffix: of the request's own text. earlier: also of the earlier output. prediction: that alone. all: the prediction,
// where it says nothing the others.
std::string GuessSourceName(GuessSource source);

// What one guesser made of one output whose tokens came true one by one.
struct GuessAlpha {
  int64_t tokens = 0;      // of the output
  int64_t guessed = 0;     // tokens for which there was a guess
  int64_t right = 0;       // guesses
  double confidence = 0;   // mean of all guesses
  double index_bytes = 0;  // memory for each token of prompt and output; the suffix guesser's
  double Alpha() const { return tokens == 0 ? 0 : static_cast<double>(right) / static_cast<double>(tokens); }
};
GuessAlpha MeasureAlpha(const GuessedText& text, const Tokenizer& tokenizer, GuessSource source, int64_t least_match);

// One user on `stages` equal stages with a speculator, which has all of these sources: in each step every row goes on
// by a stage, and one enters, the known one or else a guess. Of the output behind its first token.
struct GuessedRun {
  int64_t tokens = 0;
  int64_t steps = 0;      // stages * tokens without guesses
  int64_t right = 0;      // guesses that were sent
  int64_t void_rows = 0;  // wrong guesses and what stood on them
  double Speedup(int stages) const { return static_cast<double>(stages * tokens) / static_cast<double>(steps); }
};
GuessedRun RunGuessed(const GuessedText& text, const Tokenizer& tokenizer, int stages);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_GUESS_TEXT_ALPHA_H_
