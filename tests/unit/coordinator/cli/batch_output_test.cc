#include "coordinator/cli/batch_output.h"

#include <filesystem>

#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

BatchLine Line(int64_t number, const std::string& custom_id) {
  BatchLine line;
  line.number = number;
  line.custom_id = custom_id;
  if (custom_id.empty()) line.error = BatchError{"missing_custom_id", "no id"};
  return line;
}

std::string Answer(const std::string& custom_id) {
  return CompactJson(
      {{"id", "batch_req_1"}, {"custom_id", custom_id}, {"response", {{"status_code", 200}}}, {"error", nullptr}});
}

bool Answered(AnsweredLines* lines, int64_t number, const std::string& custom_id) {
  BatchLine line = Line(number, custom_id);
  return lines->CheckInputLine(&line);
}

TEST(AnsweredLines, KnowsAnswersByTheirCustomId) {
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(Answer("a")).ok());
  EXPECT_TRUE(Answered(&lines, 1, "a"));
  EXPECT_FALSE(Answered(&lines, 2, "b"));
}

TEST(AnsweredLines, DoesNotRetryAFailedLine) {
  AnsweredLines lines;
  BatchLine failed = Line(4, "bad");
  failed.error = BatchError{"invalid_request", "why"};
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", failed))).ok());
  EXPECT_TRUE(Answered(&lines, 4, "bad"));
}

TEST(AnsweredLines, KnowsLinesWithoutACustomIdByTheirNumber) {
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", Line(4, "")))).ok());
  EXPECT_TRUE(Answered(&lines, 4, ""));
  EXPECT_FALSE(Answered(&lines, 5, ""));
}

TEST(AnsweredLines, TurnsARepeatedCustomIdToAnErrorOfItsOwn) {
  AnsweredLines lines;
  BatchLine first = Line(1, "a"), second = Line(2, "a");
  EXPECT_FALSE(lines.CheckInputLine(&first));
  EXPECT_FALSE(lines.CheckInputLine(&second));
  EXPECT_FALSE(first.error.has_value());
  ASSERT_TRUE(second.error.has_value());
  EXPECT_EQ(second.error->code, "duplicate_custom_id");
  EXPECT_THAT(BatchErrorJson("1", second)["error"]["message"].get<std::string>(), HasSubstr("line 2: "));
}

// Killed after the duplicate's error was written and before the first one's answer: the first one still needs its
// answer.
TEST(AnsweredLines, DoesNotTakeADuplicatesErrorForTheAnswer) {
  BatchLine second = Line(2, "a");
  second.error = BatchError{"duplicate_custom_id", "again"};
  AnsweredLines lines;
  ASSERT_TRUE(lines.AddOutputLine(CompactJson(BatchErrorJson("1", second))).ok());
  EXPECT_FALSE(Answered(&lines, 1, "a"));
  EXPECT_TRUE(Answered(&lines, 2, "a"));
}

TEST(AnsweredLines, RefusesLinesThatAreNotOurs) {
  AnsweredLines lines;
  for (const char* bad : {"", "x", "[]", "{}", R"({"custom_id":null,"response":null,"error":null})",
                          R"({"custom_id":7,"response":null,"error":null})"}) {
    EXPECT_FALSE(lines.AddOutputLine(bad).ok()) << bad;
  }
}

TEST(BatchOutput, AppendsWholeLinesAndFindsThemAgain) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  {
    AnsweredLines none;
    absl::StatusOr<std::unique_ptr<BatchOutput>> output = BatchOutput::Open(path, &none);
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_TRUE((*output)->Append(Json::parse(Answer("a"))).ok());
    ASSERT_TRUE((*output)->Append(Json::parse(Answer("b"))).ok());
  }
  EXPECT_EQ(testing::ReadFileOrDie(path), Answer("a") + "\n" + Answer("b") + "\n");
  AnsweredLines lines;
  ASSERT_TRUE(BatchOutput::Open(path, &lines).ok());
  EXPECT_TRUE(Answered(&lines, 1, "a"));
  EXPECT_TRUE(Answered(&lines, 2, "b"));
}

TEST(BatchOutput, CutsATornLastLineAtAnyByte) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  const std::string whole = Answer("a") + "\n";
  const std::string torn = Answer("b");
  for (size_t bytes = 1; bytes <= torn.size(); ++bytes) {
    testing::WriteFileOrDie(path, whole + torn.substr(0, bytes));
    AnsweredLines lines;
    absl::StatusOr<std::unique_ptr<BatchOutput>> output = BatchOutput::Open(path, &lines);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(testing::ReadFileOrDie(path), whole);
    EXPECT_TRUE(Answered(&lines, 1, "a"));
    EXPECT_FALSE(Answered(&lines, 2, "b"));
  }
}

TEST(BatchOutput, LeavesAFileThatIsNotOursAsItIs) {
  const testing::TempDir directory;
  const std::string path = directory.File("notes.txt");
  for (const char* text : {"my notes", "my notes\n", "{\"a\":1}\n", "{}"}) {
    testing::WriteFileOrDie(path, text);
    AnsweredLines lines;
    const absl::Status status = BatchOutput::Open(path, &lines).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kInputFile) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_EQ(testing::ReadFileOrDie(path), text);
  }
}

TEST(BatchOutput, IsOpenInOneProcessAtATime) {
  const testing::TempDir directory;
  const std::string path = directory.File("out.jsonl");
  AnsweredLines lines;
  absl::StatusOr<std::unique_ptr<BatchOutput>> first = BatchOutput::Open(path, &lines);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(std::string(BatchOutput::Open(path, &lines).status().message()), HasSubstr("in use by another run"));
  first->reset();
  EXPECT_TRUE(BatchOutput::Open(path, &lines).ok());
}

class BatchAnswer : public ::testing::Test {
 protected:
  BatchAnswer() : file_(*OpenGguf(testing::DemoModelPath())), tokenizer_(*OpenTokenizer(*file_)) {}

  // The finished completion of a text.
  Completion Complete(const std::string& text, std::vector<std::string> stops) {
    Completion completion(tokenizer_.get(), std::move(stops));
    SessionEvent event;
    for (TokenId token : tokenizer_->Encode(text, false, false)) {
      SampledToken sampled;
      sampled.token = token;
      sampled.logprob = -0.5f;
      sampled.top = {{token, -0.5f}, {1, -2.0f}};
      event.tokens.push_back(sampled);
    }
    event.finished.emplace();
    event.finished->set_reason(pb::RequestFinished::REASON_LENGTH);
    completion.Take(event);
    return completion;
  }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(BatchAnswer, HasOpenAisForm) {
  BatchLine line = Line(1, "a");
  const Completion completion = Complete("In the beginning", {});
  const Json json = BatchAnswerJson("7", line, "demo", 1700000000, 3, completion, *tokenizer_);
  EXPECT_EQ(json["custom_id"], "a");
  EXPECT_TRUE(json["error"].is_null());
  const Json& body = json["response"]["body"];
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["created"], 1700000000);
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["choices"][0]["text"], "In the beginning");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], 3 + static_cast<int64_t>(completion.tokens().size()));
}

TEST_F(BatchAnswer, GivesLogprobsWithTextOffsets) {
  BatchLine line = Line(1, "a");
  line.request.sampling.logprobs = 2;
  const Completion completion = Complete("the king", {});
  const Json logprobs =
      BatchAnswerJson("7", line, "demo", 0, 3, completion, *tokenizer_)["response"]["body"]["choices"][0]["logprobs"];
  std::string joined;
  for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], joined.size());
    EXPECT_EQ(logprobs["token_logprobs"][i], -0.5);
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 2u);
    joined += logprobs["tokens"][i].get<std::string>();
  }
  EXPECT_EQ(joined, "the king");
}

TEST_F(BatchAnswer, ShowsTokensThatAreNoTextAsBytes) {
  const std::vector<TokenId> tokens = tokenizer_->Encode("\xff", false, false);
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(TokenText(*tokenizer_, tokens[0]), "bytes:\\xff");
}

TEST_F(BatchAnswer, CompletionEndsBeforeAStopStringAndAfterItIgnoresEverything) {
  Completion completion(tokenizer_.get(), {" king"});
  SessionEvent event;
  std::string text;
  for (TokenId token : tokenizer_->Encode("the king of", false, false)) {
    event.tokens.assign(1, SampledToken{});
    event.tokens[0].token = token;
    text += completion.Take(event);
  }
  EXPECT_EQ(text, "the");
  EXPECT_EQ(completion.text(), "the");
  EXPECT_TRUE(completion.stopped_by_text());
  EXPECT_EQ(completion.finish_reason(), "stop");
  event.tokens.clear();
  event.finished.emplace();
  event.finished->set_reason(pb::RequestFinished::REASON_CANCELLED);
  EXPECT_EQ(completion.Take(event), "");
  EXPECT_EQ(completion.finish_reason(), "stop");
}

TEST_F(BatchAnswer, CompletionNeverPrintsTheTokenThatEndsItButLists) {
  Completion completion(tokenizer_.get(), {});
  SessionEvent event;
  for (TokenId token : tokenizer_->Encode("amen", false, false)) {
    event.tokens.emplace_back();
    event.tokens.back().token = token;
  }
  event.tokens.emplace_back();
  event.tokens.back().token = tokenizer_->end_of_generation().back();
  event.finished.emplace();
  event.finished->set_reason(pb::RequestFinished::REASON_STOP);
  EXPECT_EQ(completion.Take(event), "amen");
  EXPECT_EQ(completion.finish_reason(), "stop");
  EXPECT_EQ(completion.tokens().back().token, tokenizer_->end_of_generation().back());
}

TEST_F(BatchAnswer, CompletionHandsOutWhatItHeldBackWhenItEnds) {
  Completion completion(tokenizer_.get(), {"kingdom"});
  SessionEvent event;
  for (TokenId token : tokenizer_->Encode("a king", false, false)) {
    event.tokens.emplace_back();
    event.tokens.back().token = token;
  }
  EXPECT_EQ(completion.Take(event), "a ");
  EXPECT_EQ(completion.Abandon(), "king");
  EXPECT_EQ(completion.text(), "a king");
  EXPECT_EQ(completion.finish_reason(), "cancelled");
}

TEST_F(BatchAnswer, CompletionTellsWhyItWasRejected) {
  Completion completion(tokenizer_.get(), {});
  SessionEvent event;
  event.finished.emplace();
  event.finished->set_reason(pb::RequestFinished::REASON_REJECTED);
  event.finished->set_error("needs 9 blocks, the pool has 8");
  EXPECT_EQ(completion.Take(event), "");
  EXPECT_EQ(completion.rejection(), "needs 9 blocks, the pool has 8");
}

}  // namespace
}  // namespace stagecoach
