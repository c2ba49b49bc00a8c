#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/api/answer_writer.h"
#include "coordinator/front/api/token_text.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr char kChatIdPrefix[] = "chatcmpl-";
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

class ChatStream final : public AnswerWriter {
 public:
  explicit ChatStream(const CallPlan& plan)
      : plan_(plan), chunks_(AnswerHead(plan, kChatIdPrefix, "chat.completion.chunk"), plan.fields.include_usage) {}

  std::string Begin(size_t choice) override {
    return Chunk(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
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
      events += Chunk(choice, std::move(delta), std::move(logprobs), nullptr);
    }
    return events;
  }

  std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) override {
    return chunks_.Event(ChoiceJson(choice, {{"content", ""}}, nullptr, nullptr), progress);
  }

  std::string EndChoice(size_t choice, const std::string& finish_reason) override {
    return Chunk(choice, {{"content", ""}}, nullptr, finish_reason);
  }

  std::string End(const ApiCall::Usage& usage) override { return chunks_.End(usage); }

 private:
  static Json ChoiceJson(size_t choice, Json delta, Json logprobs, Json finish_reason) {
    return {{"index", choice},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish_reason)}};
  }
  std::string Chunk(size_t choice, Json delta, Json logprobs, Json finish_reason) const {
    return chunks_.Event(ChoiceJson(choice, std::move(delta), std::move(logprobs), std::move(finish_reason)));
  }

  const CallPlan& plan_;
  const ChunkStream chunks_;
};

class ChatBody final : public AnswerWriter {
 public:
  explicit ChatBody(const CallPlan& plan) : plan_(plan), choices_(plan.prompts.size() * plan.fields.n) {}

  std::string Begin(size_t) override { return ""; }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    Choice& c = choices_[choice];
    for (const OutputDelta& delta : piece.deltas) {
      (delta.kind == OutputKind::kReasoning ? c.reasoning : c.content) += delta.text;
    }
    AppendTokens(*plan_.model->tokenizer, piece.tokens, &c.tokens);
    return "";
  }

  std::string PutProgress(size_t, const pb::PrefillProgress&) override { return ""; }

  std::string EndChoice(size_t choice, const std::string& finish_reason) override {
    choices_[choice].finish_reason = finish_reason;
    return "";
  }

  std::string End(const ApiCall::Usage& usage) override {
    Json body = AnswerHead(plan_, kChatIdPrefix, "chat.completion");
    Json list = Json::array();
    for (Choice& choice : choices_) {
      Json message = {{"role", "assistant"}, {"content", std::move(choice.content)}, {"refusal", nullptr}};
      if (!choice.reasoning.empty()) SetReasoning(plan_.model->reasoning, choice.reasoning, &message);
      const bool logprobs = plan_.fields.sampling.logprobs >= 0;
      list.push_back({{"index", list.size()},
                      {"finish_reason", choice.finish_reason},
                      {"logprobs", logprobs ? LogprobsOf(std::move(choice.tokens)) : Json(nullptr)},
                      {"message", std::move(message)}});
    }
    body["choices"] = std::move(list);
    body["usage"] = UsageJson(usage);
    return CompactJson(body);
  }

 private:
  struct Choice {
    std::string content, reasoning, finish_reason;
    Json tokens = Json::array();
  };

  const CallPlan& plan_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeChatWriter(const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<ChatStream>(plan);
  return std::make_unique<ChatBody>(plan);
}

}  // namespace stagecoach
