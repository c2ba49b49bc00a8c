#include <algorithm>
#include <utility>

#include "common/json/json_value.h"
#include "coordinator/front/api/answer_writer.h"
#include "coordinator/front/api/token_text.h"

namespace stagecoach {
namespace {

constexpr char kIdPrefix[] = "chatcmpl-";
// What clients that want a number are given for a probability of 0.
constexpr double kLeastLogprob = -9999.0;

Json LogprobJson(float logprob) {
  Json json = FloatJson(logprob);
  return json.is_null() ? Json(kLeastLogprob) : json;
}

// The bytes are exact where the text cannot be.
Json TokenJson(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string text = tokenizer.TokenBytes(token, /*render_control=*/true);
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<uint8_t>(byte));
  return {{"token", text}, {"logprob", LogprobJson(logprob)}, {"bytes", std::move(bytes)}};
}

void AppendTokens(const Tokenizer& tokenizer, const std::vector<ListedToken>& tokens, Json* list) {
  for (const ListedToken& token : tokens) {
    Json json = TokenJson(tokenizer, token.token, token.logprob.value_or(0));
    Json top = Json::array();
    for (const TokenLogprob& entry : token.top) top.push_back(TokenJson(tokenizer, entry.token, entry.logprob));
    json["top_logprobs"] = std::move(top);
    list->push_back(std::move(json));
  }
}

Json LogprobsOf(Json content) { return {{"content", std::move(content)}, {"refusal", nullptr}}; }

void SetReasoning(const ReasoningOptions& options, const std::string& text, Json* message) {
  if (options.as_reasoning_content) (*message)["reasoning_content"] = text;
  if (options.as_reasoning) (*message)["reasoning"] = text;
}

class ChatStream final : public StreamWriter {
 public:
  explicit ChatStream(const CallPlan& plan) : StreamWriter(plan, {kIdPrefix, "chat.completion.chunk"}) {}

  std::string Begin(size_t choice) override {
    return Event(ChoiceJson(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    if (piece.empty()) return "";
    std::string events;
    const size_t deltas = piece.deltas.size();
    for (size_t i = 0; i < std::max<size_t>(deltas, 1); ++i) {
      Json delta = {{"content", ""}};  // a string in every delta, as clients want it
      if (i < deltas && piece.deltas[i].kind == OutputKind::kReasoning) {
        SetReasoning(plan_.model->reasoning, piece.deltas[i].text, &delta);
      } else if (i < deltas) {
        delta["content"] = piece.deltas[i].text;
      }
      Json logprobs;
      if (i + 1 >= deltas && !piece.tokens.empty()) {
        Json list = Json::array();
        AppendTokens(*plan_.model->tokenizer, piece.tokens, &list);
        logprobs = LogprobsOf(std::move(list));
      }
      events += Event(ChoiceJson(choice, std::move(delta), std::move(logprobs), nullptr));
    }
    return events;
  }

 private:
  Json EmptyChoice(size_t choice, Json finish_reason) const override {
    return ChoiceJson(choice, {{"content", ""}}, nullptr, std::move(finish_reason));
  }
  static Json ChoiceJson(size_t choice, Json delta, Json logprobs, Json finish_reason) {
    return {{"index", choice},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish_reason)}};
  }
};

class ChatBody final : public BodyWriter {
 public:
  explicit ChatBody(const CallPlan& plan)
      : BodyWriter(plan, {kIdPrefix, "chat.completion"}), choices_(plan.prompts.size() * plan.fields.n) {}

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    Choice& c = choices_[choice];
    for (const OutputDelta& delta : piece.deltas) {
      (delta.kind == OutputKind::kReasoning ? c.reasoning : c.content) += delta.text;
    }
    AppendTokens(*plan_.model->tokenizer, piece.tokens, &c.tokens);
    return "";
  }

 private:
  struct Choice {
    std::string content, reasoning;
    Json tokens = Json::array();
  };

  Json TakeChoice(size_t index, const std::string& finish_reason) override {
    Choice& choice = choices_[index];
    Json message = {{"role", "assistant"}, {"content", std::move(choice.content)}, {"refusal", nullptr}};
    if (!choice.reasoning.empty()) SetReasoning(plan_.model->reasoning, choice.reasoning, &message);
    const bool logprobs = plan_.fields.sampling.logprobs >= 0;
    return {{"index", index},
            {"finish_reason", finish_reason},
            {"logprobs", logprobs ? LogprobsOf(std::move(choice.tokens)) : Json(nullptr)},
            {"message", std::move(message)}};
  }

  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeChatWriter(const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<ChatStream>(plan);
  return std::make_unique<ChatBody>(plan);
}

}  // namespace stagecoach
