#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_API_TOY_SERVICE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_API_TOY_SERVICE_H_

// A model of 264 tokens that is served, and a session that says what a test wants it to say.

#include <memory>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/grammar/form/answer_grammars.h"
#include "coordinator/text/tokenizer.h"
#include "gtest/gtest.h"

namespace stagecoach::testing {

// Of the vocabulary: token i is the byte i, 256 to 259 are those of ToyBytePairs, and then these.
inline constexpr TokenId kImStart = 260, kImEnd = 261, kThink = 262, kEndThink = 263;
inline constexpr int64_t kToyVocab = 264;

// A template that tells of tools and writes calls.
inline constexpr char kToolTemplate[] =
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function.name }}({{ c.function.arguments }})\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Functions a and b, as a field of chat completions.
inline constexpr char kTwoTools[] =
    R"("tools":[{"type":"function","function":{"name":"a","parameters":{"type":"object"}}},)"
    R"({"type":"function","function":{"name":"b","description":"d"}}])";

struct ToyService {
  ToyService();
  // "prompt" or "messages" with further fields: R"("n":2)".
  PreparedCall Complete(const std::string& fields) const;
  PreparedCall Chat(const std::string& fields) const;
  PreparedCall Prepare(const ApiDialect& api, const std::string& body) const {
    return PrepareCall(api, body, model, context);
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatFormat> chat;  // chatml
  std::unique_ptr<AnswerGrammars> grammars;
  ServedModel model;                 // "toy"; everything else by default
  CallContext context;               // "id7" at 1700000000, room for 100 tokens, the drawn seed 11
};

struct ToyServiceTest : ::testing::Test {
  ToyService service;
};

// A token a byte.
std::vector<TokenId> Bytes(const std::string& text);

// An event with these tokens; the log-probability of the token t is -t / 100, and the two most probable are it and 'x'.
SessionEvent Tokens(const std::vector<TokenId>& tokens);
SessionEvent Text(const std::string& text);
SessionEvent Finished(pb::RequestFinished::Reason reason, const std::string& error = "");
SessionEvent Then(SessionEvent event, const SessionEvent& end);

// What a call gives for its first choice's events: one event a token, or all in one.
std::string Answer(ApiCall* call, const std::vector<TokenId>& tokens, pb::RequestFinished::Reason reason,
                   bool at_once = false);

// The same as a body, of a call that was taken.
Json Whole(const PreparedCall& prepared, const std::vector<TokenId>& tokens, pb::RequestFinished::Reason reason);

// The data of a stream's events, [DONE] as a string.
std::vector<Json> Events(const std::string& bytes);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_API_TOY_SERVICE_H_
