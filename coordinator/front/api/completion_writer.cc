#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/api/answer_writer.h"
#include "coordinator/front/api/token_text.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr char kCompletionIdPrefix[] = "cmpl-";
constexpr char kCompletionObject[] = "text_completion";

// Four lists of one length, but top_logprobs is null where none were asked for.
class TokenLists {
 public:
  void Append(const Tokenizer& tokenizer, const std::vector<ListedToken>& listed) {
    for (const ListedToken& token : listed) {
      tokens_.push_back(TokenText(tokenizer, token.token));
      logprobs_.push_back(token.logprob.has_value() ? FloatJson(*token.logprob) : Json(nullptr));
      offsets_.push_back(token.text_offset);
      Json top = Json::object();
      for (const TokenLogprob& entry : token.top) {
        const std::string text = TokenText(tokenizer, entry.token);
        if (!top.contains(text)) top[text] = FloatJson(entry.logprob);  // of tokens that look alike the most probable
      }
      tops_.push_back(top.empty() ? Json(nullptr) : std::move(top));
    }
  }

  Json Take(bool with_tops) {
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(logprobs_)},
            {"top_logprobs", with_tops ? std::move(tops_) : Json(nullptr)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

class CompletionStream final : public AnswerWriter {
 public:
  explicit CompletionStream(const CallPlan& plan)
      : plan_(plan), chunks_(AnswerHead(plan, kCompletionIdPrefix, kCompletionObject), plan.fields.include_usage) {}

  std::string Begin(size_t) override { return ""; }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    if (piece.empty()) return "";
    std::string text;
    for (const OutputDelta& delta : piece.deltas) text += delta.text;
    Json logprobs;
    if (!piece.tokens.empty()) {
      TokenLists lists;
      lists.Append(*plan_.model->tokenizer, piece.tokens);
      logprobs = lists.Take(plan_.fields.sampling.logprobs > 0);
    }
    return Chunk(choice, text, std::move(logprobs), nullptr);
  }

  std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) override {
    return chunks_.Event(ChoiceJson(choice, "", nullptr, nullptr), progress);
  }

  std::string EndChoice(size_t choice, const std::string& finish_reason) override {
    return Chunk(choice, "", nullptr, finish_reason);
  }

  std::string End(const ApiCall::Usage& usage) override { return chunks_.End(usage); }

 private:
  static Json ChoiceJson(size_t choice, const std::string& text, Json logprobs, Json finish_reason) {
    return {{"index", choice},
            {"text", text},
            {"finish_reason", std::move(finish_reason)},
            {"logprobs", std::move(logprobs)}};
  }
  std::string Chunk(size_t choice, const std::string& text, Json logprobs, Json finish_reason) const {
    return chunks_.Event(ChoiceJson(choice, text, std::move(logprobs), std::move(finish_reason)));
  }

  const CallPlan& plan_;
  const ChunkStream chunks_;
};

class CompletionBody final : public AnswerWriter {
 public:
  explicit CompletionBody(const CallPlan& plan) : plan_(plan), choices_(plan.prompts.size() * plan.fields.n) {}

  std::string Begin(size_t) override { return ""; }

  std::string Put(size_t choice, const AnswerPiece& piece) override {
    for (const OutputDelta& delta : piece.deltas) choices_[choice].text += delta.text;
    choices_[choice].lists.Append(*plan_.model->tokenizer, piece.tokens);
    return "";
  }

  std::string PutProgress(size_t, const pb::PrefillProgress&) override { return ""; }

  std::string EndChoice(size_t choice, const std::string& finish_reason) override {
    choices_[choice].finish_reason = finish_reason;
    return "";
  }

  std::string End(const ApiCall::Usage& usage) override {
    Json body = AnswerHead(plan_, kCompletionIdPrefix, kCompletionObject);
    Json list = Json::array();
    const int32_t logprobs = plan_.fields.sampling.logprobs;
    for (Choice& choice : choices_) {
      list.push_back({{"index", list.size()},
                      {"text", std::move(choice.text)},
                      {"finish_reason", choice.finish_reason},
                      {"logprobs", logprobs >= 0 ? choice.lists.Take(logprobs > 0) : Json(nullptr)}});
    }
    body["choices"] = std::move(list);
    body["usage"] = UsageJson(usage);
    return CompactJson(body);
  }

 private:
  struct Choice {
    std::string text, finish_reason;
    TokenLists lists;
  };

  const CallPlan& plan_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeCompletionWriter(const CallPlan& plan) {
  if (plan.fields.stream) return std::make_unique<CompletionStream>(plan);
  return std::make_unique<CompletionBody>(plan);
}

}  // namespace stagecoach
