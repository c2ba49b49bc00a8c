#include <utility>

#include "common/json/json_value.h"
#include "coordinator/front/api/answer_writer.h"
#include "coordinator/front/api/token_text.h"

namespace stagecoach {
namespace {

constexpr AnswerNames kNames = {"cmpl-", "text_completion"};

// The same in a stream and in a body.
Json ChoiceJson(size_t choice, const std::string& text, Json finish_reason, Json logprobs) {
  return {{"index", choice},
          {"text", text},
          {"finish_reason", std::move(finish_reason)},
          {"logprobs", std::move(logprobs)}};
}

// Four lists of one length, but top_logprobs is null where none were asked for.
class TokenLists {
 public:
  explicit TokenLists(bool with_tops) : tops_(with_tops ? Json::array() : Json(nullptr)) {}

  void Append(const Tokenizer& tokenizer, const std::vector<ListedToken>& listed) {
    for (const ListedToken& token : listed) {
      tokens_.push_back(TokenText(tokenizer, token.token));
      logprobs_.push_back(token.logprob.has_value() ? FloatJson(*token.logprob) : Json(nullptr));
      offsets_.push_back(token.text_offset);
      if (tops_.is_array()) tops_.push_back(TopJson(tokenizer, token));
    }
  }

  Json Take() {
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(logprobs_)},
            {"top_logprobs", std::move(tops_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  // The most probable tokens and, under its text and with its number in token_logprobs, the token itself: clients
  // compare that number with the largest one here. So a token that looks like it goes by its bytes. Of others that look
  // alike there is the most probable.
  static Json TopJson(const Tokenizer& tokenizer, const ListedToken& token) {
    if (!token.logprob.has_value()) return nullptr;
    Json top = Json::object();
    const std::string own = TokenText(tokenizer, token.token);
    for (const TokenLogprob& entry : token.top) {
      std::string text = TokenText(tokenizer, entry.token);
      if (text == own && entry.token != token.token) text = TokenBytesText(tokenizer, entry.token);
      if (!top.contains(text)) top[text] = FloatJson(entry.logprob);
    }
    top[own] = FloatJson(*token.logprob);
    return top;
  }

  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_, offsets_ = Json::array();
};

class CompletionStream final : public StreamWriter {
 public:
  explicit CompletionStream(const CallPlan& plan) : StreamWriter(plan, kNames) {}

  std::string Begin(size_t) override { return ""; }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    if (piece.empty()) return "";
    std::string text;
    for (const OutputDelta& delta : piece.deltas) text += delta.text;
    Json logprobs;
    if (!piece.tokens.empty()) {
      TokenLists lists(plan_.fields.sampling.logprobs > 0);
      lists.Append(*plan_.model->tokenizer, piece.tokens);
      logprobs = lists.Take();
    }
    return Event(ChoiceJson(choice, text, nullptr, std::move(logprobs)));
  }

 private:
  Json EmptyChoice(size_t choice, Json finish_reason) const override {
    return ChoiceJson(choice, "", std::move(finish_reason), nullptr);
  }
};

class CompletionBody final : public BodyWriter {
 public:
  explicit CompletionBody(const CallPlan& plan)
      : BodyWriter(plan, kNames),
        choices_(plan.prompts.size() * plan.fields.n, Choice{"", TokenLists(plan.fields.sampling.logprobs > 0)}) {}

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    for (const OutputDelta& delta : piece.deltas) choices_[choice].text += delta.text;
    choices_[choice].lists.Append(*plan_.model->tokenizer, piece.tokens);
    return "";
  }

 private:
  struct Choice {
    std::string text;
    TokenLists lists;
  };

  Json TakeChoice(size_t index, const std::string& finish_reason) override {
    Choice& choice = choices_[index];
    const bool listed = plan_.fields.sampling.logprobs >= 0;
    return ChoiceJson(index, choice.text, finish_reason, listed ? choice.lists.Take() : Json(nullptr));
  }

  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeCompletionWriter(const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<CompletionStream>(plan);
  return std::make_unique<CompletionBody>(plan);
}

}  // namespace stagecoach
