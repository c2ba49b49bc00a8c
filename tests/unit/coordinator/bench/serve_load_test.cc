#include "coordinator/bench/serve_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/json/json_input.h"
#include "common/json/json_value.h"
#include "coordinator/bench/serve_summary.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

ServeLoad RandomLoad() {
  ServeLoad load;
  load.model = "m";
  load.requests = 50;
  load.vocab = 1000;
  load.dataset.input_tokens = 20;
  load.dataset.output_tokens = 10;
  return load;
}

std::vector<Json> BodiesOf(const ServeLoad& load) {
  const absl::StatusOr<std::vector<ServeRequest>> requests = MakeServeRequests(load);
  EXPECT_TRUE(requests.ok()) << requests.status();
  std::vector<Json> bodies;
  for (const ServeRequest& request : *requests) bodies.push_back(*ParseJson(request.body));
  return bodies;
}

TEST(ServeLoad, RandomPromptsAreTokensWithinTheVocabularyAndTheSameForASeed) {
  const ServeLoad load = RandomLoad();
  const std::vector<Json> bodies = BodiesOf(load);
  for (const Json& body : bodies) {
    EXPECT_EQ(body["prompt"].size(), 20u);
    EXPECT_EQ(body["max_tokens"], 10);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
    for (const Json& token : body["prompt"]) {
      EXPECT_GE(token.get<int>(), 100);
      EXPECT_LT(token.get<int>(), 900);
    }
  }
  EXPECT_NE(bodies[0]["prompt"], bodies[1]["prompt"]);
  EXPECT_EQ(bodies, BodiesOf(load));
  ServeLoad other = load;
  other.seed = 1;
  EXPECT_NE(bodies, BodiesOf(other));
}

TEST(ServeLoad, SharedPrefixesComeFirstAndLengthsStayInTheirRange) {
  ServeLoad load = RandomLoad();
  load.dataset.prefix_tokens = 7;
  load.dataset.range_ratio = 0.5;
  const std::vector<Json> bodies = BodiesOf(load);
  size_t shortest = 1000, longest = 0;
  for (const Json& body : bodies) {
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(body["prompt"][i], bodies[0]["prompt"][i]);
    shortest = std::min(shortest, body["prompt"].size());
    longest = std::max(longest, body["prompt"].size());
  }
  EXPECT_GE(shortest, 17u);
  EXPECT_LE(longest, 37u);
  EXPECT_LT(shortest, longest);
}

TEST(ServeLoad, ChatGetsWordsInAMessage) {
  ServeLoad load = RandomLoad();
  load.endpoint = ServeEndpoint::kChat;
  load.vocab = 0;  // not needed
  load.dataset.prefix_tokens = 2;
  const std::vector<Json> bodies = BodiesOf(load);
  const std::string text = bodies[0]["messages"][0]["content"].get<std::string>();
  EXPECT_EQ(text.size(), 3u * 22);
  EXPECT_EQ(text.substr(0, 6), bodies[1]["messages"][0]["content"].get<std::string>().substr(0, 6));
  EXPECT_EQ(bodies[0]["messages"][0]["role"], "user");
}

TEST(ServeLoad, RandomTokensNeedAVocabulary) {
  ServeLoad load = RandomLoad();
  load.vocab = 0;
  EXPECT_THAT(std::string(MakeServeRequests(load).status().message()), HasSubstr("meta.n_vocab"));
}

TEST(ServeLoad, RandomPromptsMayBeWordsForCompletionsToo) {
  ServeLoad load = RandomLoad();
  load.vocab = 0;
  load.dataset.words = true;
  EXPECT_EQ(BodiesOf(load)[0]["prompt"].get<std::string>().size(), 3u * 20);
}

TEST(ServeLoad, MoreAtOnceThanThereAreClientsIsSaid) {
  ServeLoad load = RandomLoad();
  EXPECT_EQ(ClientsFor(load).clients, 50);
  load.requests = kMostServeClients + 1;
  EXPECT_EQ(ClientsFor(load).clients, kMostServeClients);
  EXPECT_TRUE(ClientsFor(load).fewer);
  load.rate_per_s = 10;
  EXPECT_FALSE(ClientsFor(load).fewer) << "those that are late are found by it";
  load.rate_per_s = std::numeric_limits<double>::infinity();
  load.max_concurrency = 8;
  EXPECT_EQ(ClientsFor(load).clients, 8);
  EXPECT_FALSE(ClientsFor(load).fewer);
}

TEST(ServeLoad, GapsHaveTheMeanOfTheRateAndTheSpreadOfTheBurstiness) {
  for (const double burstiness : {0.5, 1.0, 8.0}) {
    ServeLoad load = RandomLoad();
    load.requests = 5000;
    load.dataset.input_tokens = load.dataset.output_tokens = 1;
    load.rate_per_s = 4;
    load.burstiness = burstiness;
    const std::vector<ServeRequest> requests = *MakeServeRequests(load);
    double sum = 0, squares = 0;
    for (size_t i = 1; i < requests.size(); ++i) {
      const double gap = requests[i].due_s - requests[i - 1].due_s;
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
    }
    const double n = static_cast<double>(requests.size() - 1), mean = sum / n;
    EXPECT_NEAR(mean, 0.25, 0.03);
    EXPECT_NEAR((squares / n - mean * mean) / (mean * mean), 1 / burstiness, 0.25 / burstiness);
  }
}

TEST(ServeLoad, FilesGivePromptsAndLengthsAndAreReadAgainFromTheirStart) {
  testing::TempDir directory;
  ServeLoad load = RandomLoad();
  load.requests = 3;
  load.dataset.file = directory.File("prompts.jsonl");
  testing::WriteFileOrDie(load.dataset.file, "{\"prompt\": \"one\", \"output_len\": 5}\n\n{\"prompt\": [1, 2]}\n");
  const std::vector<Json> bodies = BodiesOf(load);
  EXPECT_EQ(bodies[0]["prompt"], "one");
  EXPECT_EQ(bodies[0]["max_tokens"], 5);
  EXPECT_EQ(bodies[1]["prompt"], Json::array({1, 2}));
  EXPECT_EQ(bodies[1]["max_tokens"], 10);
  EXPECT_EQ(bodies[2], bodies[0]);
}

TEST(ServeLoad, AWrongLineOfAFileIsNamed) {
  testing::TempDir directory;
  ServeLoad load = RandomLoad();
  load.dataset.file = directory.File("prompts.jsonl");
  const auto message_of = [&](const std::string& text) {
    testing::WriteFileOrDie(load.dataset.file, text);
    return std::string(MakeServeRequests(load).status().message());
  };
  EXPECT_THAT(message_of("{\"prompt\": \"one\"}\n{\n"), HasSubstr("line 2: "));
  EXPECT_THAT(message_of("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(message_of("{}"), HasSubstr("'prompt' or 'messages'"));
  EXPECT_THAT(message_of("{\"messages\": []}"), HasSubstr("--endpoint chat"));
  EXPECT_THAT(message_of("{\"prompt\": \"a\", \"output_len\": 0}"), HasSubstr("'output_len'"));
  EXPECT_THAT(message_of(""), HasSubstr("is empty"));
  load.dataset.file = directory.File("none");
  EXPECT_THAT(std::string(MakeServeRequests(load).status().message()), HasSubstr("cannot be read"));
}

TEST(ServeAnswerReader, TakesTextUsageErrorsAndTheEnd) {
  ServeOutcome outcome;
  ServeAnswerReader reader(&outcome);
  reader.TakeEvent(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": null})", 1);
  EXPECT_TRUE(outcome.text_at_us.empty());
  reader.TakeEvent(R"({"choices": [{"delta": {"content": "a"}}]})", 2);
  reader.TakeEvent(R"({"choices": [{"delta": {"content": "", "reasoning_content": "b"}}]})", 3);
  reader.TakeEvent(R"({"choices": [{"text": "c"}]})", 4);
  reader.TakeEvent(R"({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,
                       "prompt_tokens_details": {"cached_tokens": 4}}})",
                   5);
  EXPECT_EQ(outcome.text_at_us, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(outcome.input_tokens, 7);
  EXPECT_EQ(outcome.output_tokens, 3);
  EXPECT_EQ(outcome.cached_tokens, 4);
  EXPECT_FALSE(reader.done());
  reader.TakeEvent("[DONE]", 6);
  EXPECT_TRUE(reader.done());
  EXPECT_TRUE(outcome.ok());
  reader.TakeEvent(R"({"error": {"message": "gone"}})", 7);
  EXPECT_EQ(outcome.error, "gone");
}

TEST(ServeAnswerReader, SurvivesWhateverAServerSends) {
  for (const char* event :
       {"", "nonsense", "[]", "1", R"({"choices": 1})", R"({"choices": [1, {"delta": 2}, {"text": 3}]})",
        R"({"usage": []})", R"({"usage": {"prompt_tokens": "x", "completion_tokens": -5}})"}) {
    ServeOutcome outcome;
    ServeAnswerReader(&outcome).TakeEvent(event, 1);
    EXPECT_TRUE(outcome.text_at_us.empty());
    EXPECT_GE(outcome.output_tokens, 0);
  }
  ServeOutcome wordless;
  ServeAnswerReader(&wordless).TakeEvent(R"({"error": {"message": ""}})", 1);
  EXPECT_FALSE(wordless.ok()) << "an error is one without a word too";
}

TEST(ServeAnswerReader, LetsNoServerCountBeyondWhatCanBeAdded) {
  ServeRun run;
  run.outcomes.resize(3);
  for (ServeOutcome& outcome : run.outcomes) {
    ServeAnswerReader(&outcome).TakeEvent(
        R"({"usage": {"prompt_tokens": 9223372036854775807, "completion_tokens": 18446744073709551615,
            "prompt_tokens_details": {"cached_tokens": 9223372036854775807}}})",
        1);
  }
  const ServeSummary summary = SummarizeServeRun(run, ServeLoad(), Goodput(), {});
  EXPECT_GT(summary.input_tokens, 1'000'000);
  EXPECT_GT(summary.output_tokens, 1'000'000);
}

}  // namespace
}  // namespace stagecoach
