// serve: an answer does not depend on load, on what was asked before, on preemption, or on the API that asked; and what
// was computed once is found again.

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/recorded_answer.h"
#include "tests/e2e/support/server.h"

namespace stagecoach::testing {
namespace {

constexpr int kTokens = 48;
constexpr int kBlock = 16;

// Asked of an empty server, one after the other, without the cache.
std::vector<RecordedAnswer> OneByOne(const Server& server, const std::vector<Question>& questions) {
  std::vector<RecordedAnswer> answers;
  for (Question question : questions) {
    question.body["cache_salt"] = absl::StrCat("of number ", answers.size());
    answers.push_back(Record(server.url(), question));
    EXPECT_EQ(answers.back().cached_tokens, 0);
  }
  return answers;
}

std::vector<Question> Questions() {
  std::vector<Question> questions;
  for (int i = 0; i < 16; ++i) {
    questions.push_back(MixedQuestion(i, kTokens));
    Json& body = questions.back().body;
    Json& text = body.contains("prompt") ? body["prompt"] : body["messages"][0]["content"];
    text = absl::StrCat("And ", i, " ", Repeated("and it came to pass", 8), text.get<std::string>());
  }
  return questions;
}

void EndInOrder(Server* server) { EXPECT_EQ(server->End().exit_code, 0) << server->process().err(); }

TEST(ServeIdentity, AnAnswerIsTheSameAloneAmongOthersCachedAndPreempted) {
  const std::vector<Question> questions = Questions();
  std::vector<RecordedAnswer> alone;
  {
    ReadyServer server({"--pp", "2", "--max-num-seqs", "24", "--block-size", absl::StrCat(kBlock)});
    alone = OneByOne(server, questions);
    ExpectTheSame(RecordAll(server.url(), questions), alone);
    const std::vector<RecordedAnswer> cached = RecordAll(server.url(), questions);
    ExpectTheSame(cached, alone);
    for (const RecordedAnswer& answer : cached) EXPECT_GE(answer.cached_tokens, answer.prompt_tokens - kBlock);
    // What the engine counted of the last of them is there a little later.
    EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_requests_running") == 0; }));
    EXPECT_EQ(server.Metric("stagecoach_preemptions_total"), 0);
    EndInOrder(&server);
  }
  for (const bool caches : {false, true}) {
    // Room for three or four of them, which grow so slowly that all have come before the first has ended; on a busy
    // machine they may come too late for that, and then come again.
    ReadyServer server({"--pp", "1", "--block-size", absl::StrCat(kBlock), "-c", "192", "--max-num-seqs", "24",
                        "--stage-delay-us", "10000", "--kv-cache-memory", "1400K",
                        caches ? "--enable-prefix-caching" : "--no-enable-prefix-caching"});
    for (int times = 0; times < 4 && server.Metric("stagecoach_preemptions_total") == 0; ++times) {
      const std::vector<RecordedAnswer> crowded = RecordAll(server.url(), questions);
      ExpectTheSame(crowded, alone);
      if (caches) continue;
      for (const RecordedAnswer& answer : crowded) EXPECT_EQ(answer.cached_tokens, 0);
    }
    EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_preemptions_total") > 0; }));
    EndInOrder(&server);
  }
}

TEST(ServeIdentity, AnAnswerIsTheSameInBothApisWholeAndStreamedAndAsAChoiceAmongMore) {
  ReadyServer server({"--pp", "1"});
  const Question chat = ChatQuestion("What is written of the sea?", kTokens, 40);
  const RecordedAnswer answer = Record(server.url(), chat);
  const std::string sampled = answer.Sampled();
  ASSERT_GT(answer.tokens(), 4) << answer.ToString();

  ExpectTheSame({Record(server.url(), AsStream(chat))}, {answer});
  const Json tokens = Json::parse(server.Post("/tokenize", {{"messages", chat.body["messages"]}}).body);
  EXPECT_EQ(tokens["count"], answer.prompt_tokens);
  Question completion = CompletionQuestion("", kTokens, 40);
  completion.body["prompt"] = tokens["tokens"];
  const RecordedAnswer completed = Record(server.url(), completion);
  EXPECT_EQ(completed.Sampled(), sampled);
  EXPECT_EQ(completed.prompt_tokens, answer.prompt_tokens);
  EXPECT_EQ(completed.completion_tokens, answer.completion_tokens);
  ExpectTheSame({Record(server.url(), AsStream(completion))}, {completed});
  // Its seed is that of the third of three.
  for (Question more : {chat, completion, AsStream(chat), AsStream(completion)}) {
    more.body["n"] = 3;
    more.body["seed"] = 38;
    EXPECT_EQ(Record(server.url(), more).Sampled(2), sampled);
  }
  EndInOrder(&server);
}

TEST(ServeIdentity, WhatWasComputedIsFoundAgainInTheNextTurnAndWhenTheClientHadGone) {
  Server server(
      {"--pp", "1", "--block-size", absl::StrCat(kBlock), "--prefill-chunk", "64", "--stage-delay-us", "10000"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const auto is_idle = [&] { return server.Metric("stagecoach_requests_running") == 0; };

  Question turn = ChatQuestion(Repeated("verily", 250), 8, 1);
  const RecordedAnswer first = Record(server.url(), turn);
  ASSERT_GT(first.prompt_tokens, 200) << first.ToString();
  EXPECT_LT(first.cached_tokens, kBlock * 2) << "what all conversations begin with, at most";
  turn.body["messages"].push_back({{"role", "assistant"}, {"content", first.choices.at(0).text}});
  turn.body["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  const RecordedAnswer second = Record(server.url(), turn);
  EXPECT_GE(second.cached_tokens, first.prompt_tokens - kBlock);
  EXPECT_LT(second.cached_tokens, second.prompt_tokens);

  // The client goes while tokens come, and while its prompt is computed.
  const Question long_answer = AsStream(CompletionQuestion(Repeated("harvest", 200), 200, 2));
  Record(server.url(), long_answer, [](const RecordedAnswer& so_far) { return so_far.tokens() == 0; });
  EXPECT_TRUE(ComesTrue(is_idle));
  Question again = long_answer;
  again.body["max_tokens"] = 4;
  const RecordedAnswer found = Record(server.url(), again);
  EXPECT_TRUE(found.complete) << found.error;
  EXPECT_GE(found.cached_tokens, found.prompt_tokens - kBlock);

  Question long_prompt = AsStream(CompletionQuestion(Repeated("multitude", 400), 4, 3));
  long_prompt.body["return_progress"] = true;
  const RecordedAnswer gone =
      Record(server.url(), long_prompt, [](const RecordedAnswer& so_far) { return so_far.processed <= 0; });
  EXPECT_TRUE(ComesTrue(is_idle));
  const RecordedAnswer whole = Record(server.url(), long_prompt);
  EXPECT_TRUE(whole.complete) << whole.error;
  EXPECT_GE(gone.processed, 64);
  EXPECT_LT(gone.processed, whole.prompt_tokens);
  EXPECT_GE(whole.cached_tokens, gone.processed - kBlock);
  EndInOrder(&server);
}

}  // namespace
}  // namespace stagecoach::testing
