#include "coordinator/text/grammar/form/answer_grammars.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/text/token_bytes.h"
#include "coordinator/text/grammar/compile.h"

namespace stagecoach {
namespace {

// All that the program depends on beside the vocabulary.
std::string KeyOf(const AnswerForm& form, OutputFormat format, ReasoningAtStart reasoning) {
  Json content, calls;
  if (form.content.has_value()) {
    const ContentForm& asked = *form.content;
    content = Json::array({static_cast<int>(asked.kind), asked.schema, asked.text, asked.choices});
  }
  if (form.calls.has_value()) {
    calls = Json::array({form.calls->required, form.calls->several});
    for (const CallableTool& tool : form.calls->tools) {
      calls.push_back(Json::array({tool.name, tool.parameters, tool.bind_arguments}));
    }
  }
  return CompactJson(Json::array({static_cast<int>(format), static_cast<int>(reasoning), content, calls}));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const std::string>> AnswerGrammars::Get(const AnswerForm& form, OutputFormat format,
                                                                       const OutputStart& start) {
  RETURN_IF_ERROR(CheckVocabulary());
  std::string key = KeyOf(form, format, ReasoningAt(format, start));
  if (std::optional<Program> kept = Find(key); kept.has_value()) return *std::move(kept);
  const int64_t begun_us = MonotonicUs();
  Program program = Compile(form, format, start);
  compiled_(MonotonicUs() - begun_us);
  Keep({std::move(key), program});
  return program;
}

AnswerGrammars::Program AnswerGrammars::Compile(const AnswerForm& form, OutputFormat format,
                                                const OutputStart& start) const {
  ASSIGN_OR_RETURN(const GrammarRules rules, RulesOfAnswer(form, format, start, tokenizer_));
  ASSIGN_OR_RETURN(const GrammarProgram compiled, CompileGrammar(rules));
  return std::make_shared<const std::string>(compiled.bytes());
}

absl::Status AnswerGrammars::CheckVocabulary() {
  std::call_once(looked_, [this] {
    vocabulary_ = MakeGrammarVocabulary(tokenizer_.vocabulary(), tokenizer_.vocab_size()).status();
  });
  return vocabulary_;
}

std::optional<AnswerGrammars::Program> AnswerGrammars::Find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&key](const Kept& kept) { return kept.key == key; });
  if (found == kept_.end()) return std::nullopt;
  kept_.splice(kept_.begin(), kept_, found);
  return found->program;
}

// One that two callers made at once is there twice, until it has not been asked for for long enough.
void AnswerGrammars::Keep(Kept kept) {
  if (kept.bytes() > kMostKeptBytes / 4) return;  // a large form would drive out the others
  const std::lock_guard<std::mutex> lock(mu_);
  kept_bytes_ += kept.bytes();
  kept_.push_front(std::move(kept));
  while (kept_.size() > kMostKept || kept_bytes_ > kMostKeptBytes) {
    kept_bytes_ -= kept_.back().bytes();
    kept_.pop_back();
  }
}

}  // namespace stagecoach
