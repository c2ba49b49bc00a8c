// What this program asks of a server: chat --url and bench serve.

#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/server.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ProgramResult ChatWith(const Server& server, const std::string& input, const Words& more = {}) {
  Words words = {"chat", "--url", server.url()};
  words.insert(words.end(), more.begin(), more.end());
  return Coordinator(words, input);
}

ProgramResult BenchServe(const std::string& url, const Words& more) {
  Words words = {"bench", "serve", "--url", url};
  words.insert(words.end(), more.begin(), more.end());
  return Coordinator(words);
}

TEST(ChatWithAServer, SaysWhatAClusterOfItsOwnSays) {
  Server server({"--pp", "2"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const std::string input = "Hello\nDefine peace.\n/regenerate\n";
  const ProgramResult asked = ChatWith(server, input, {"--temp", "0", "-n", "24", "--system", "Be brief."});
  ASSERT_EQ(asked.exit_code, 0) << asked;
  const ProgramResult own =
      Coordinator({"chat", "-m", DemoModelPath(), "--temp", "0", "-n", "24", "--system", "Be brief.", "-q"}, input);
  ASSERT_EQ(own.exit_code, 0) << own;
  EXPECT_EQ(asked.out, own.out);
  EXPECT_THAT(asked.err, HasSubstr("prompt tokens cached"));
}

TEST(ChatWithAServer, ARefusalIsSaidAndTheConversationGoesOn) {
  Server server({"--pp", "1"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  std::string endless = "word";
  for (int i = 0; i < 2000; ++i) endless += " word";
  const ProgramResult result = ChatWith(server, absl::StrCat(endless, "\nHello\n"), {"--temp", "0", "-n", "8"});
  EXPECT_THAT(result.err, HasSubstr("prompt is too long"));
  EXPECT_NE(result.out, "");
  EXPECT_EQ(result.exit_code, 2) << result;
}

TEST(ChatWithAServer, WrongAddressesAndOptionsEndWithASentence) {
  const auto expect = [](const Words& more, int exit_code, const char* sentence) {
    Words words = {"chat"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = Coordinator(words, "Hello\n");
    EXPECT_EQ(result.exit_code, exit_code) << result;
    EXPECT_THAT(result.err, HasSubstr(sentence));
  };
  expect({"--url", "http://127.0.0.1:1"}, 5, "127.0.0.1:1");
  expect({"--url", "https://127.0.0.1"}, 2, "--url: ");
  expect({"--url", "127.0.0.1:80"}, 2, "--url: ");
  expect({"--url", "http://127.0.0.1:1", "-m", DemoModelPath()}, 2, "leave out --model");
  expect({"--url", "http://127.0.0.1:1", "--pp", "2"}, 2, "leave out --pp");
  expect({"--url", "http://127.0.0.1:1", "--temp", "5"}, 2, "--temp: 5 is out of range, expected 0 to 2 by a server");
  expect({"--url", "http://127.0.0.1:1", "--api-key-file", "/dev/null"}, 3, "expected one key");
  expect({}, 2, "--model is required, or --url");
  expect({"-m", DemoModelPath(), "--api-key-file", "/dev/null"}, 2, "give --url too");
}

TEST(ChatWithAServer, AKeyIsShown) {
  const TempDir directory;
  WriteFileOrDie(directory.File("keys"), "me:sk-mine\n");
  WriteFileOrDie(directory.File("key"), "sk-mine\n");
  Server server({"--pp", "1", "--api-key-file", directory.File("keys")});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const ProgramResult without = ChatWith(server, "Hello\n");
  EXPECT_EQ(without.exit_code, 2) << without;
  EXPECT_THAT(without.err, HasSubstr("401"));
  for (const char* file : {"key", "keys"}) {  // the server's own has one line too
    const ProgramResult with = ChatWith(server, "Hello\n", {"--api-key-file", directory.File(file), "-n", "4"});
    EXPECT_EQ(with.exit_code, 0) << with;
    EXPECT_NE(with.out, "");
  }
}

TEST(ChatWithAServer, AnAnswerThatIsStoppedHasAboutAsManyTokensAsPieces) {
  Server server({"--pp", "1", "--stage-delay-us", "20000"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  Subprocess chat(CoordinatorProgram(),
                  {"chat", "--url", absl::StrCat(server.url(), "/v1"), "--temp", "0", "--ignore-eos", "-n", "900"});
  chat.Write("Hello\n");
  ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
  chat.Kill(SIGINT);
  const ProgramResult result = chat.Wait();
  EXPECT_EQ(result.exit_code, 130) << result;
  EXPECT_THAT(result.err, ::testing::ContainsRegex("~[1-9][0-9]* tokens.*; stopped"));
}

TEST(ChatWithAServer, ASettingThatNoApiTakesIsRefusedAtOnce) {
  Server server({"--pp", "1"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const ProgramResult result = ChatWith(server, "/set temp 5\nHello\n/stats\n", {"--temp", "0", "-n", "4"});
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_THAT(result.err, HasSubstr("/set: temp: 5 is out of range, expected 0 to 2\n"));
  EXPECT_NE(result.out, "") << "the message is answered";
}

TEST(BenchServe, PrintsItsVerdictTheFiguresAndAFileOfThem) {
  const TempDir directory;
  Server server({"--pp", "1"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const ProgramResult result =
      BenchServe(server.url(),
                 {"--num-prompts", "6", "--max-concurrency", "3", "--input-len", "20", "--output-len", "8", "--goodput",
                  "ttft:60000", "tpot:60000", "e2el:60000", "--save-result", directory.File("result.json")});
  ASSERT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, StartsWith("VALID\n============ Serving Benchmark Result ============\n"));
  EXPECT_THAT(result.out, HasSubstr("Successful requests:                     6"));
  EXPECT_THAT(result.out, HasSubstr("Total input tokens:                      120"));
  EXPECT_THAT(result.out, HasSubstr("Total generated tokens:                  48"));
  const Json saved = Json::parse(ReadFileOrDie(directory.File("result.json")));
  EXPECT_EQ(saved["valid"], true);
  EXPECT_EQ(saved["completed"], 6);
  EXPECT_EQ(saved["model_id"], "demo-q8_0");
  EXPECT_EQ(
      BenchServe(absl::StrCat(server.url(), "/v1/"), {"--endpoint", "chat", "--num-prompts", "2", "--output-len", "4"})
          .exit_code,
      0);
}

TEST(BenchServe, RequestsThatFailAreCountedAndMakeItInvalid) {
  Server server({"--pp", "1", "--max-num-seqs", "1", "--max-num-queued-reqs", "1", "--stage-delay-us", "20000"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const Words load = {"--num-prompts", "8", "--warmup", "0", "--input-len", "8", "--output-len", "8"};
  const ProgramResult failed = BenchServe(server.url(), load);
  EXPECT_EQ(failed.exit_code, 5) << failed;
  EXPECT_THAT(failed.out, StartsWith("INVALID: "));
  EXPECT_THAT(failed.err, HasSubstr("status 429"));
  Words accepting = load;
  accepting.push_back("--allow-failures");
  EXPECT_EQ(BenchServe(server.url(), accepting).exit_code, 0);
}

TEST(BenchServe, WrongInputsEndWithASentence) {
  const auto expect = [](const Words& more, int exit_code, const char* sentence) {
    const ProgramResult result = BenchServe("http://127.0.0.1:1", more);
    EXPECT_EQ(result.exit_code, exit_code) << result;
    EXPECT_THAT(result.err, HasSubstr(sentence));
    EXPECT_THAT(result.out, Not(HasSubstr("Serving Benchmark")));
  };
  expect({}, 5, "127.0.0.1:1");
  expect({"--save-result", "/nowhere/result.json"}, 3, "--save-result: '/nowhere/result.json' cannot be written: ");
  expect({"--request-rate", "0"}, 2, "--request-rate: expected inf or a number above 0");
  expect({"--goodput", "itl:5"}, 2, "--goodput: expected ttft:MS");
  expect({"--metric-percentiles", "50,x"}, 2, "--metric-percentiles: expected numbers");
  expect({"--endpoint", "chat", "--model", "m", "--dataset", "/nowhere"}, 3, "'/nowhere' cannot be read");
  expect({"--dataset", "/nowhere", "--prefix-len", "3"}, 2, "--prefix-len is for random prompts");
  expect({"--ignore-eos", "--no-ignore-eos"}, 2, "expected one of them");
  EXPECT_EQ(BenchServe("ftp://x", {}).exit_code, 2);
}

}  // namespace
}  // namespace stagecoach::testing
