#include "tests/unit/coordinator/serve/api/toy_service.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/gguf/gguf_file.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach::testing {

ToyService::ToyService() {
  ToyVocabulary toy = ToyBytePairs();
  CHECK_EQ(toy.Add("<|im_start|>", 3), kImStart);
  CHECK_EQ(toy.Add("<|im_end|>", 3), kImEnd);
  CHECK_EQ(toy.Add("<think>", 4), kThink);
  CHECK_EQ(toy.Add("</think>", 4), kEndThink);
  GgufWriter writer = toy.File("gpt2", "qwen2");
  writer.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(kImEnd));
  const TempDir directory;
  const std::string path = directory.File("toy.gguf");
  CHECK(writer.Write(path).ok());
  const absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  CHECK(file.ok());
  tokenizer = *Tokenizer::Create((*file)->metadata());
  ChatTemplateChoice choice;
  choice.built_in = "chatml";
  chat = std::make_unique<ChatFormat>(choice, (*file)->metadata(), tokenizer.get());
  model.tokenizer = tokenizer.get();
  model.chat = chat.get();
  grammars = std::make_unique<AnswerGrammars>(tokenizer.get());
  model.grammars = grammars.get();
  model.vocab = kToyVocab;
  model.names = {"toy"};
  model.created = 1600000000;
  model.trained_context = 4096;
  context.id = "id7";
  context.now = absl::FromUnixSeconds(1700000000);
  context.context_tokens = 100;
  context.seed = 11;
  context.fingerprint = "sc-1";
}

PreparedCall ToyService::Complete(const std::string& fields) const {
  return Prepare(kCompletionsApi, absl::StrCat(R"({"prompt":"Hi")", fields.empty() ? "" : ",", fields, "}"));
}

PreparedCall ToyService::Chat(const std::string& fields) const {
  return Prepare(kChatApi, absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"}])", fields.empty() ? "" : ",",
                                        fields, "}"));
}

std::vector<TokenId> Bytes(const std::string& text) {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  return tokens;
}

SessionEvent Tokens(const std::vector<TokenId>& tokens) {
  SessionEvent event;
  for (const TokenId token : tokens) {
    SampledToken& sampled = event.tokens.emplace_back();
    sampled.token = token;
    sampled.logprob = static_cast<float>(-token) / 100;
    sampled.top = {{token, sampled.logprob}, {'x', -8}};
  }
  return event;
}

SessionEvent Text(const std::string& text) { return Tokens(Bytes(text)); }

SessionEvent Finished(pb::RequestFinished::Reason reason, const std::string& error) {
  SessionEvent event;
  event.finished.emplace();
  event.finished->set_reason(reason);
  event.finished->set_error(error);
  return event;
}

SessionEvent Then(SessionEvent event, const SessionEvent& end) {
  event.finished = end.finished;
  return event;
}

std::string Answer(ApiCall* call, const std::vector<TokenId>& tokens, pb::RequestFinished::Reason reason,
                   bool at_once) {
  std::string bytes = call->Begin().bytes;
  if (at_once) return bytes + call->Take(0, Then(Tokens(tokens), Finished(reason))).bytes;
  for (const TokenId token : tokens) bytes += call->Take(0, Tokens({token})).bytes;
  return bytes + call->Take(0, Finished(reason)).bytes;
}

Json Whole(const PreparedCall& prepared, const std::vector<TokenId>& tokens, pb::RequestFinished::Reason reason) {
  CHECK(!prepared.error.has_value());
  return Json::parse(Answer(prepared.call.get(), tokens, reason));
}

std::vector<Json> Events(const std::string& bytes) {
  std::vector<Json> events;
  CHECK(bytes.empty() || absl::EndsWith(bytes, "\n\n"));
  for (absl::string_view event : absl::StrSplit(bytes, "\n\n", absl::SkipEmpty())) {
    CHECK(absl::ConsumePrefix(&event, "data: "));
    events.push_back(event == "[DONE]" ? Json("[DONE]") : Json::parse(event.begin(), event.end()));
  }
  return events;
}

}  // namespace stagecoach::testing
