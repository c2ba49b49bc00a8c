// Prints which share of committed texts' tokens each guesser has right, as a table:
//
//   guess_alpha [least match [file.gguf]]
//
// The tokenizer is that of the file, otherwise of the test data, otherwise of the demo model. The last column is how
// much faster one user gets on four equal stages if every row of the pipeline is a guess: 1 / (alpha / 4 + 1 - alpha).
// A second table counts that, with all guessers as a job has them.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/guess/suffix_guesser.h"
#include "coordinator/text/tokenizer.h"
#include "tests/testing/guess/text_alpha.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "guess_alpha: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T Require(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(std::string(value.status().message()));
  return *std::move(value);
}

void PrintRuns(const Tokenizer& tokenizer) {
  std::printf("\n%-8s %6s %7s %7s %7s %10s %9s\n", "text", "stages", "tokens", "steps", "right", "void rows",
              "as fast");
  for (const GuessedText& text : GuessedTexts()) {
    for (const int stages : {2, 4, 8}) {
      const GuessedRun run = RunGuessed(text, tokenizer, stages);
      std::printf("%-8s %6d %7lld %7lld %7lld %10lld %9.2f\n", text.name.c_str(), stages,
                  static_cast<long long>(run.tokens), static_cast<long long>(run.steps),
                  static_cast<long long>(run.right), static_cast<long long>(run.void_rows), run.Speedup(stages));
    }
  }
}

void PrintTable(const Tokenizer& tokenizer, int64_t least_match) {
  std::printf("%-8s %-10s %7s %8s %7s %6s %11s %9s %11s\n", "text", "guesser", "tokens", "guessed", "right", "alpha",
              "confidence", "B/token", "four stages");
  for (const GuessedText& text : GuessedTexts()) {
    for (const GuessSource source : kGuessSources) {
      if (text.prediction.empty() && source == GuessSource::kPrediction) continue;
      if (text.earlier.empty() && source == GuessSource::kEarlier) continue;
      if (text.earlier.empty() && text.prediction.empty() && source == GuessSource::kAll) continue;
      const GuessAlpha alpha = MeasureAlpha(text, tokenizer, source, least_match);
      std::printf("%-8s %-10s %7lld %8lld %7lld %6.2f %11.2f %9.0f %11.2f\n", text.name.c_str(),
                  GuessSourceName(source).c_str(), static_cast<long long>(alpha.tokens),
                  static_cast<long long>(alpha.guessed), static_cast<long long>(alpha.right), alpha.Alpha(),
                  alpha.confidence, alpha.index_bytes, 1 / (alpha.Alpha() / 4 + 1 - alpha.Alpha()));
    }
  }
}

int Main(int argc, char** argv) {
  int64_t least_match = SuffixGuesser::Limits().least_match;
  if (argc > 1 && (!absl::SimpleAtoi(argv[1], &least_match) || least_match < 1)) {
    Fail(std::string("the least match is '") + argv[1] + "', expected a number of tokens from 1 on");
  }
  std::string path = argc > 2 ? argv[2] : SharedPath("data/tokenizers/qwen.gguf");
  if (path.empty()) path = DemoModelPath();
  const std::unique_ptr<GgufFile> file = Require(GgufFile::Open(path));
  const std::unique_ptr<Tokenizer> tokenizer = Require(Tokenizer::Create(file->metadata()));
  std::printf("tokenizer %s, %lld tokens; a match has at least %lld\n", path.substr(path.rfind('/') + 1).c_str(),
              static_cast<long long>(tokenizer->vocab_size()), static_cast<long long>(least_match));
  PrintTable(*tokenizer, least_match);
  PrintRuns(*tokenizer);
  return 0;
}

}  // namespace
}  // namespace stagecoach::testing

int main(int argc, char** argv) { return stagecoach::testing::Main(argc, argv); }
