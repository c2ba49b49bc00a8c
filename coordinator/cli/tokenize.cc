// tokenize: the token ids of a text.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/prompt_input.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

class TokenizeVerb : public Verb {
 public:
  const char* name() const override { return "tokenize"; }
  const char* summary() const override { return "print the token ids of a text"; }
  const char* example() const override { return "coordinator tokenize -m model.gguf -p \"Hello world\""; }

  void AddOptions(CLI::App* app) override {
    AddModelOption(app, &model_);
    AddQ2LayoutOption(app, &q2_layout_);
    AddPromptOptions(app, &input_, "the text; of several, each gives one line");
    AddFlag(app, "--no-special", &no_special_, "control tokens written in the text stay text");
    AddFlag(app, "--no-bos", &no_bos_, "without the tokens that the vocabulary adds by itself");
    AddChoice(app, "--output", &output_, {"text", "json"}, "json: an object with ids and pieces for each text");
  }

  absl::Status Run(const RunContext&) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenGguf(model_, q2_layout_));
    ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(*file));
    ASSIGN_OR_RETURN(const std::vector<std::string> texts, CollectPrompts(input_, /*strip_newline=*/false));
    for (const std::string& text : texts) {
      const std::vector<TokenId> tokens =
          tokenizer->Encode(text, /*add_special=*/!no_bos_, /*parse_special=*/!no_special_);
      if (output_ == "text") {
        RETURN_IF_ERROR(WriteStdout(absl::StrJoin(tokens, " ") + "\n"));
        continue;
      }
      Json pieces = Json::array();
      for (TokenId token : tokens) pieces.push_back(tokenizer->TokenBytes(token, /*render_control=*/true));
      RETURN_IF_ERROR(WriteStdout(CompactJson({{"tokens", tokens}, {"pieces", std::move(pieces)}}) + "\n"));
    }
    return absl::OkStatus();
  }

 private:
  std::string model_;
  std::string q2_layout_ = "auto";
  PromptInput input_;
  bool no_special_ = false;
  bool no_bos_ = false;
  std::string output_ = "text";
};

}  // namespace

std::unique_ptr<Verb> MakeTokenizeVerb() { return std::make_unique<TokenizeVerb>(); }

}  // namespace stagecoach
