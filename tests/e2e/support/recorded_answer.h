#ifndef STAGECOACH_TESTS_E2E_SUPPORT_RECORDED_ANSWER_H_
#define STAGECOACH_TESTS_E2E_SUPPORT_RECORDED_ANSWER_H_

// All that a client learns of an answer, whole or streamed, in a form in which two of them are compared: every sampled
// token with its bytes and log-probabilities to the last digit, not the text alone.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/serve/http/http_client.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {

struct RecordedAnswer {
  struct Token {
    std::string token;    // with its log-probability; the same in both APIs
    std::string details;  // what else that API says of it: bytes, the best ones, the place in the text
  };
  struct Choice {
    std::string text;  // and calls of tools, as they are written
    std::string finish_reason;
    std::vector<Token> tokens;
  };

  int status = 0;
  bool complete = false;  // ended as it should
  std::string error;      // the connection's, the body of a refusal, or the event that ended a stream
  std::map<int, Choice> choices;
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;
  int64_t processed = -1;  // tokens of the prompt, of a stream that asks for progress

  int64_t tokens() const;        // of all choices
  std::string text() const;      // of the first choice
  std::string ToString() const;  // all of it but how much was cached, which depends on what others asked before
  // Tokens and log-probabilities of one choice, in the form that both APIs have.
  std::string Sampled(int choice = 0) const;
};

struct Question {
  std::string path;
  Json body;
  HttpHeaders headers = {};
};

inline constexpr char kCompletionsPath[] = "/v1/completions";
inline constexpr char kChatPath[] = "/v1/chat/completions";

// The same, streamed, with its usage at the end.
Question AsStream(Question question);
// A completion that is sampled by a seed, with log-probabilities.
Question CompletionQuestion(const std::string& prompt, int tokens, int seed);
// The same of a conversation of one message.
Question ChatQuestion(const std::string& message, int tokens, int seed);
// The same of a model that may call the tool `look`.
Question ToolQuestion(const std::string& message, int tokens, int seed);
// Number `i` of a mixture of both APIs, whole and streamed, with two choices, penalties, stop strings, biases, sampled
// and greedy.
Question MixedQuestion(int i, int tokens);

// Asks, and reads to the end. `go_on`: of a stream, after each piece of it, keep-alives too; false: the client goes.
// 120 s without a byte end an answer.
RecordedAnswer Record(const std::string& url, const Question& question,
                      const std::function<bool(const RecordedAnswer&)>& go_on = nullptr);

// All at once. `go_on` is called from several threads, with the number of the question.
std::vector<RecordedAnswer> RecordAll(const std::string& url, const std::vector<Question>& questions,
                                      const std::function<bool(int, const RecordedAnswer&)>& go_on = nullptr);

// All at once; once more than so many pieces of streams with tokens have come, `disturb` runs beside them.
std::vector<RecordedAnswer> RecordAllWhile(const std::string& url, const std::vector<Question>& questions, int pieces,
                                           const std::function<void()>& disturb);

// Everything came, and nothing of it differs.
void ExpectTheSame(const std::vector<RecordedAnswer>& answers, const std::vector<RecordedAnswer>& expected);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_E2E_SUPPORT_RECORDED_ANSWER_H_
