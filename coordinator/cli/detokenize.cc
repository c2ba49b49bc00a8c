// detokenize: the text of token ids.

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/prompt_input.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

class DetokenizeVerb : public Verb {
 public:
  const char* name() const override { return "detokenize"; }
  const char* summary() const override { return "print the text of token ids"; }
  const char* example() const override { return "coordinator detokenize -m model.gguf 3784 258 2149"; }

  void AddOptions(CLI::App* app) override {
    AddModelOption(app, &model_);
    AddQ2LayoutOption(app, &q2_layout_);
    AddWords(app, "ids", &words_, "N ...", "token ids, separated by spaces or commas; none: from standard input");
    AddFlag(app, "--no-special", &no_special_, "leave control tokens out, as an answer's text does");
  }

  // The bytes as they are, and a newline only where a person reads.
  absl::Status Run(const RunContext&) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenGguf(model_, q2_layout_));
    ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(*file));
    if (words_.empty()) {
      if (isatty(STDIN_FILENO))
        return UsageError("there are no token ids: give them as arguments or on standard input");
      ASSIGN_OR_RETURN(std::string text, ReadDescriptor(STDIN_FILENO));
      words_.push_back(std::move(text));
    }
    std::vector<TokenId> tokens;
    for (const std::string& word : words_) {
      for (absl::string_view part : absl::StrSplit(word, absl::ByAnyChar(" ,\t\r\n"), absl::SkipEmpty())) {
        absl::StatusOr<int64_t> id = ParseInteger(part, {0, tokenizer->vocab_size() - 1});
        if (!id.ok()) return UsageError(absl::StrCat("token id ", id.status().message()));
        tokens.push_back(static_cast<TokenId>(*id));
      }
    }
    RETURN_IF_ERROR(WriteStdout(tokenizer->Decode(tokens, /*render_control=*/!no_special_)));
    return isatty(STDOUT_FILENO) ? WriteStdout("\n") : absl::OkStatus();
  }

 private:
  std::string model_;
  std::string q2_layout_ = "auto";
  std::vector<std::string> words_;
  bool no_special_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeDetokenizeVerb() { return std::make_unique<DetokenizeVerb>(); }

}  // namespace stagecoach
