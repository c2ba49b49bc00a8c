// tokenize, detokenize, apply-template: what a model's tokenizer and chat template make of a text, without a job.

#include <unistd.h>

#include "absl/time/clock.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/options/prompt_options.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/text/chat/chat_format.h"

namespace stagecoach {
namespace {

class TokenizeVerb : public Verb {
 public:
  TokenizeVerb()
      : Verb("tokenize", "print the token ids of a text", "coordinator tokenize -m model.gguf -p \"Hello world\"") {}

  void AddOptions(CLI::App* app) override {
    AddModelFileOptions(app, &options_);
    AddPromptOptions(app, &input_, "the text; of several, each gives one line");
    AddFlag(app, "--no-special", &no_special_, "control tokens written in the text stay text");
    AddFlag(app, "--no-bos", &no_bos_, "without the tokens that the vocabulary adds by default");
    AddChoice(app, "--output", &output_, {"text", "json"}, "json: an object with ids and pieces for each text");
  }

  absl::Status Run(const RunContext&) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenGguf(options_.model, options_.q2_layout));
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
  ClusterOptions options_;
  PromptInput input_;
  bool no_special_ = false;
  bool no_bos_ = false;
  std::string output_ = "text";
};

class DetokenizeVerb : public Verb {
 public:
  DetokenizeVerb()
      : Verb("detokenize", "print the text of token ids", "coordinator detokenize -m model.gguf 3784 258 2149") {}

  void AddOptions(CLI::App* app) override {
    AddModelFileOptions(app, &options_);
    AddWords(app, "ids", &words_, "N ...", "token ids, separated by spaces or commas; none: from standard input");
    AddFlag(app, "--no-special", &no_special_, "leave control tokens out, as an answer's text does");
  }

  // The bytes as they are, and a newline only where a person reads.
  absl::Status Run(const RunContext&) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenGguf(options_.model, options_.q2_layout));
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
  ClusterOptions options_;
  std::vector<std::string> words_;
  bool no_special_ = false;
};

// Far more than any context takes.
constexpr size_t kMostJsonBytes = size_t{64} << 20;

// The JSON of an input file that passes `check`; "-" is standard input.
absl::StatusOr<Json> ReadJsonInput(const std::string& path, absl::Status (*check)(const Json&)) {
  ASSIGN_OR_RETURN(const std::string text,
                   path == "-" ? ReadDescriptor(STDIN_FILENO, kMostJsonBytes) : ReadWholeFile(path, kMostJsonBytes));
  absl::StatusOr<Json> json = ParseJson(text);
  const absl::Status status = json.ok() ? check(*json) : json.status();
  if (status.ok()) return json;
  return InputFileError(
      absl::StrCat(path == "-" ? std::string("standard input") : absl::StrCat("'", path, "'"), ": ", status.message()));
}

// Adds the variable of -D to `variables`: its value is JSON if it can be, else a text.
absl::Status AddVariable(const std::string& definition, Json* variables) {
  const size_t equals = definition.find('=');
  if (equals == std::string::npos || equals == 0) {
    return UsageError(absl::StrCat("--define: expected NAME=VALUE, found '", CutText(definition), "'"));
  }
  const std::string name = definition.substr(0, equals), value = definition.substr(equals + 1);
  const absl::StatusOr<Json> json = ParseJson(value);
  (*variables)[name] = json.ok() ? *json : Json(value);
  return absl::OkStatus();
}

class ApplyTemplateVerb : public Verb {
 public:
  ApplyTemplateVerb()
      : Verb("apply-template", "print a conversation as the model's chat template writes it",
             "coordinator apply-template -m model.gguf --system \"Be brief.\" -p \"Hello\" --tokens") {}

  void AddOptions(CLI::App* app) override {
    AddModelFileOptions(app, &options_);
    AddText(app, "messages", &path_, "FILE",
            "the conversation, a JSON list such as [{\"role\": \"user\", \"content\": \"Hello\"}]; -, or neither FILE "
            "nor -p: standard input");
    AddTexts(app, "-p,--prompt", &prompts_, "TEXT", "in place of FILE: what the user says");
    AddText(app, "--system", &system_, "TEXT", "with -p: the system message before it");
    AddText(app, "--tools", &tools_path_, "FILE", "the tools the model may call, a JSON list in OpenAI's form");
    AddChatTemplateOptions(app, &template_options_);
    AddFlag(app, "--no-generation-prompt", &no_generation_prompt_, "end after the last message");
    AddText(app, "--variables", &variables_, "JSON",
            "what else the template knows, such as {\"enable_thinking\": false}");
    AddTexts(app, "-D,--define", &definitions_, "NAME=VALUE",
             "one more of those; a VALUE that is no JSON is a text. Of two with one name the last counts");
    AddFlag(app, "--tokens", &tokens_, "print the token ids that a model is given, in place of the text");
  }

  // The text as it is, without a newline of ours.
  absl::Status Run(const RunContext&) override {
    RETURN_IF_ERROR(CheckOptions());
    ASSIGN_OR_RETURN(const Json variables, Variables());
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenGguf(options_.model, options_.q2_layout));
    ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(*file));
    Json tools;
    if (!tools_path_.empty()) {
      ASSIGN_OR_RETURN(tools, ReadJsonInput(tools_path_, CheckTools));
    }
    ASSIGN_OR_RETURN(const ChatTemplateChoice choice, ReadChatTemplateChoice(template_options_));
    const ChatFormat format(choice, file->metadata(), tokenizer.get());
    if (const absl::Status usable = format.usable(!tools.empty()); !usable.ok()) return UnusableTemplate(usable);
    ASSIGN_OR_RETURN(const Json messages, Messages());
    Conversation conversation = {.messages = &messages};
    if (!tools.empty()) conversation.tools = &tools;
    conversation.add_generation_prompt = !no_generation_prompt_;
    conversation.variables = &variables;
    const absl::StatusOr<MarkedText> text = format.Render(conversation, absl::Now());
    if (!text.ok()) return UsageError(text.status().message());
    if (!tokens_) return WriteStdout(text->text());
    return WriteStdout(absl::StrJoin(tokenizer->EncodeMarked(*text, /*add_bos=*/true), " ") + "\n");
  }

 private:
  absl::Status CheckOptions() const {
    if (prompts_.size() > 1) {
      return UsageError(absl::StrCat("--prompt: expected one message of the user, found ", prompts_.size(),
                                     "; write a longer conversation to a file, as JSON"));
    }
    if (!prompts_.empty() && !path_.empty()) {
      return UsageError(absl::StrCat("--prompt and '", path_, "': expected one of them, as each is a conversation"));
    }
    if (prompts_.empty() && !system_.empty()) {
      return UsageError("--system needs --prompt; in JSON the first message can be of the role system");
    }
    if (prompts_.empty() && path_.empty() && isatty(STDIN_FILENO)) {
      return UsageError(
          "there is no conversation: give what the user says with -p TEXT, or messages as JSON in a file or on "
          "standard "
          "input");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Json> Variables() const {
    Json variables = Json::object();
    if (!variables_.empty()) {
      absl::StatusOr<Json> given = ParseJson(variables_);
      if (!given.ok()) return UsageError(absl::StrCat("--variables: ", given.status().message()));
      variables = *std::move(given);
    }
    if (variables.is_object()) {
      for (const std::string& definition : definitions_) RETURN_IF_ERROR(AddVariable(definition, &variables));
    }
    if (const absl::Status status = CheckTemplateVariables(variables); !status.ok()) {
      return UsageError(status.message());
    }
    return variables;
  }

  absl::StatusOr<Json> Messages() const {
    if (prompts_.empty()) return ReadJsonInput(path_.empty() ? "-" : path_, CheckMessages);
    Json messages = Json::array();
    if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
    messages.push_back({{"role", "user"}, {"content", prompts_.front()}});
    return messages;
  }

  ClusterOptions options_;
  std::string path_;
  std::vector<std::string> prompts_;
  std::string system_;
  std::string tools_path_;
  ChatTemplateOptions template_options_;
  bool no_generation_prompt_ = false;
  std::string variables_;
  std::vector<std::string> definitions_;
  bool tokens_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeTokenizeVerb() { return std::make_unique<TokenizeVerb>(); }

std::unique_ptr<Verb> MakeDetokenizeVerb() { return std::make_unique<DetokenizeVerb>(); }

std::unique_ptr<Verb> MakeApplyTemplateVerb() { return std::make_unique<ApplyTemplateVerb>(); }

}  // namespace stagecoach
