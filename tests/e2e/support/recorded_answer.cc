#include "tests/e2e/support/recorded_answer.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/serve/http/http_client.h"
#include "gtest/gtest.h"

namespace stagecoach::testing {
namespace {

bool IsObject(const Json& json, const char* key) { return json.contains(key) && json[key].is_object(); }

void TakeLogprobs(const Json& logprobs, RecordedAnswer::Choice* choice) {
  for (const Json& entry : logprobs.value("content", Json::array())) {
    choice->tokens.push_back({absl::StrCat(entry["token"].dump(), " ", entry["logprob"].dump()), entry.dump()});
  }
  const Json tokens = logprobs.value("tokens", Json::array());
  for (size_t i = 0; i < tokens.size(); ++i) {
    choice->tokens.push_back(
        {absl::StrCat(tokens[i].dump(), " ", logprobs["token_logprobs"][i].dump()),
         absl::StrCat(logprobs["top_logprobs"].is_array() ? logprobs["top_logprobs"][i].dump() : "", " at ",
                      logprobs["text_offset"][i].dump())});
  }
}

void TakeUsage(const Json& usage, RecordedAnswer* answer) {
  answer->prompt_tokens = usage["prompt_tokens"];
  answer->completion_tokens = usage["completion_tokens"];
  if (IsObject(usage, "prompt_tokens_details")) {
    answer->cached_tokens = usage["prompt_tokens_details"].value("cached_tokens", int64_t{-1});
  }
}

// A whole answer, or a part of a streamed one.
void TakeJson(const Json& json, RecordedAnswer* answer) {
  if (IsObject(json, "prompt_progress")) answer->processed = json["prompt_progress"]["processed"];
  if (IsObject(json, "usage")) TakeUsage(json["usage"], answer);
  for (const Json& part : json.value("choices", Json::array())) {
    RecordedAnswer::Choice& choice = answer->choices[part["index"]];
    for (const char* of : {"delta", "message"}) {
      if (!part.contains(of)) continue;
      if (part[of].contains("content") && part[of]["content"].is_string()) choice.text += part[of]["content"];
      for (const Json& call : part[of].value("tool_calls", Json::array())) {
        choice.text += call["function"].value("name", "") + call["function"]["arguments"].get<std::string>();
      }
    }
    choice.text += part.value("text", "");
    if (part["finish_reason"].is_string()) choice.finish_reason = part["finish_reason"];
    if (IsObject(part, "logprobs")) TakeLogprobs(part["logprobs"], &choice);
  }
}

void TakeEvent(const std::string& data, RecordedAnswer* answer) {
  if (data == "[DONE]") {
    answer->complete = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.contains("error")) {
    answer->error = data;
  } else {
    TakeJson(json, answer);
  }
}

}  // namespace

int64_t RecordedAnswer::tokens() const {
  int64_t sum = 0;
  for (const auto& [index, choice] : choices) sum += static_cast<int64_t>(choice.tokens.size());
  return sum;
}

std::string RecordedAnswer::text() const { return choices.empty() ? "" : choices.begin()->second.text; }

std::string RecordedAnswer::ToString() const {
  std::string all = absl::StrCat("status ", status, complete ? ", complete" : ", cut short", "\n");
  if (!error.empty()) absl::StrAppend(&all, "error: ", error, "\n");
  for (const auto& [index, choice] : choices) {
    absl::StrAppend(&all, "choice ", index, " ends with '", choice.finish_reason, "': ", choice.text, "\n");
    for (const Token& token : choice.tokens) absl::StrAppend(&all, "  ", token.token, "  ", token.details, "\n");
  }
  return absl::StrCat(all, "tokens: ", prompt_tokens, " + ", completion_tokens, "\n");
}

std::string RecordedAnswer::Sampled(int choice) const {
  const auto found = choices.find(choice);
  if (!complete || found == choices.end()) return absl::StrCat("no such answer: ", ToString());
  std::string all;
  for (const Token& token : found->second.tokens) absl::StrAppend(&all, token.token, "\n");
  return all;
}

Question AsStream(Question question) {
  question.body["stream"] = true;
  question.body["stream_options"] = {{"include_usage", true}};
  return question;
}

Question CompletionQuestion(const std::string& prompt, int tokens, int seed) {
  return {kCompletionsPath,
          {{"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0.8}, {"seed", seed}, {"logprobs", 3}}};
}

Question ChatQuestion(const std::string& message, int tokens, int seed) {
  return {kChatPath,
          {{"messages", {{{"role", "user"}, {"content", message}}}},
           {"max_tokens", tokens},
           {"temperature", 0.8},
           {"seed", seed},
           {"logprobs", true},
           {"top_logprobs", 3}}};
}

Question ToolQuestion(const std::string& message, int tokens, int seed) {
  Question question = ChatQuestion(message, tokens, seed);
  question.body["tools"] = Json::array({{{"type", "function"}, {"function", {{"name", "look"}}}}});
  return question;
}

Question MixedQuestion(int i, int tokens) {
  Question question = i % 4 < 2 ? CompletionQuestion(absl::StrCat("In the beginning ", i), tokens, i)
                                : ChatQuestion(absl::StrCat("Say something of ", i), tokens, i);
  Json& body = question.body;
  switch (i % 8) {
    case 1:
    case 6: body["n"] = 2; break;
    case 2:
      body["frequency_penalty"] = 0.5;
      body["presence_penalty"] = 0.3;
      body["repetition_penalty"] = 1.1;
      break;
    case 4: body["temperature"] = 0; break;
    case 5:
      body["stop"] = {" shall", "LORD"};
      body["top_p"] = 0.9;
      body["min_p"] = 0.02;
      break;
    case 7:
      body["logit_bias"] = {{"300", 2}, {"400", -100}};
      body["top_k"] = 40;
      break;
    default: break;
  }
  return i % 16 < 12 ? AsStream(std::move(question)) : question;
}

RecordedAnswer Record(const std::string& url, const Question& question,
                      const std::function<bool(const RecordedAnswer&)>& go_on) {
  RecordedAnswer answer;
  SseReader reader;
  HttpCall call;
  call.method = "POST";
  call.path = question.path;
  call.headers = question.headers;
  call.body = question.body.dump();
  const bool streams = question.body.value("stream", false);
  if (streams) {
    call.on_body = [&](absl::string_view bytes, int64_t) {
      const absl::Status read = reader.Append(bytes, [&](const SseEvent& event) { TakeEvent(event.data, &answer); });
      if (!read.ok()) answer.error = std::string(read.message());
      return go_on == nullptr || go_on(answer);
    };
  }
  HttpClientOptions options;
  options.silence_timeout = absl::Seconds(120);
  const absl::StatusOr<HttpReply> reply = HttpClient(*ParseHttpUrl(url), options).Call(call);
  if (!reply.ok()) {
    answer.error = std::string(reply.status().message());
    answer.complete = false;
    return answer;
  }
  answer.status = reply->status;
  if (reply->status != 200) {
    answer.error = reply->body;
  } else if (!streams) {
    const Json json = Json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
    answer.complete = json.is_object();
    if (answer.complete) TakeJson(json, &answer);
  }
  return answer;
}

std::vector<RecordedAnswer> RecordAll(const std::string& url, const std::vector<Question>& questions,
                                      const std::function<bool(int, const RecordedAnswer&)>& go_on) {
  std::vector<RecordedAnswer> answers(questions.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < questions.size(); ++i) {
    clients.emplace_back([&, i] {
      answers[i] = Record(url, questions[i], [&](const RecordedAnswer& so_far) {
        return go_on == nullptr || go_on(static_cast<int>(i), so_far);
      });
    });
  }
  for (std::thread& client : clients) client.join();
  return answers;
}

std::vector<RecordedAnswer> RecordAllWhile(const std::string& url, const std::vector<Question>& questions, int pieces,
                                           const std::function<void()>& disturb) {
  std::atomic<int> seen{0};
  std::thread disturber([&] {
    EXPECT_TRUE(ComesTrue([&] { return seen > pieces; }));
    disturb();
  });
  std::vector<RecordedAnswer> answers = RecordAll(url, questions, [&seen](int, const RecordedAnswer& so_far) {
    if (so_far.tokens() > 0) ++seen;
    return true;
  });
  disturber.join();
  return answers;
}

void ExpectTheSame(const std::vector<RecordedAnswer>& answers, const std::vector<RecordedAnswer>& expected) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_TRUE(answers[i].complete) << "answer " << i << ": " << answers[i].error;
    EXPECT_GT(answers[i].tokens(), 0) << "answer " << i;
    EXPECT_EQ(answers[i].ToString(), expected[i].ToString()) << "answer " << i;
  }
}

}  // namespace stagecoach::testing
