// What this program asks of a server: chat --url and bench serve.

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/server.h"

namespace stagecoach::testing {
namespace {

ProgramResult ChatWith(const Server& server, const std::string& input, const Words& more = {}) {
  return Coordinator(Joined({"chat", "--url", server.url()}, more), input);
}

ProgramResult BenchServe(const std::string& url, const Words& more) {
  return Coordinator(Joined({"bench", "serve", "--url", url}, more));
}

// One server for the clients that leave it as it was.
class ClientOfAServer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ReadyServer({"--pp", "2"}); }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static Server& server() { return *server_; }

 private:
  static ReadyServer* server_;
};

ReadyServer* ClientOfAServer::server_ = nullptr;

TEST_F(ClientOfAServer, ChatSaysWhatAClusterOfItsOwnSays) {
  const std::string input = "Hello\nDefine peace.\n/regenerate\n";
  const Words words = {"--temp", "0", "-n", "24", "--system", "Be brief."};
  const ProgramResult asked = ChatWith(server(), input, words);
  ASSERT_EQ(asked.exit_code, 0) << asked;
  EXPECT_EQ(asked.out, CoordinatorOut(Joined(WordsOf("chat -m MODEL -q"), words), input));
  EXPECT_THAT(asked.err, HasSubstr("prompt tokens cached"));
}

TEST_F(ClientOfAServer, ChatSaysWhatIsRefusedAndTheConversationGoesOn) {
  for (const auto& [wrong, error] : {std::pair<std::string, const char*>{Repeated("word", 2000), "prompt is too long"},
                                     {"/set temp 5", "/set: temp: 5 is out of range, expected 0 to 2\n"}}) {
    const ProgramResult result =
        ChatWith(server(), absl::StrCat(wrong, "\nHello\n/stats\n"), {"--temp", "0", "-n", "8"});
    EXPECT_THAT(result, EndsWithCode(2, HasSubstr(error)));
    EXPECT_NE(result.out, "") << "the message is answered";
  }
}

TEST(ChatWithAServer, WrongAddressesAndOptionsEndWithASentence) {
  ExpectRefused({"chat"},
                {
                    {"--url http://127.0.0.1:1", 5, "127.0.0.1:1", "Hello\n"},
                    {"--url https://127.0.0.1", 2, "--url: "},
                    {"--url 127.0.0.1:80", 2, "--url: "},
                    {"--url http://127.0.0.1:1 -m MODEL", 2, "leave out --model"},
                    {"--url http://127.0.0.1:1 --pp 2", 2, "leave out --pp"},
                    {"--url http://127.0.0.1:1 --temp 5", 2, "--temp: 5 is out of range, expected 0 to 2 by a server"},
                    {"--url http://127.0.0.1:1 --api-key-file /dev/null", 3, "expected one key"},
                    {"", 2, "--model is required, or --url"},
                    {"-m MODEL --api-key-file /dev/null", 2, "give --url too"},
                });
}

TEST(ChatWithAServer, AKeyIsShown) {
  const TempDir directory;
  WriteFileOrDie(directory.File("keys"), "me:sk-mine\n");
  WriteFileOrDie(directory.File("key"), "sk-mine\n");
  ReadyServer server({"--pp", "1", "--api-key-file", directory.File("keys")});
  EXPECT_THAT(ChatWith(server, "Hello\n"), EndsWithCode(2, HasSubstr("401")));
  for (const char* file : {"key", "keys"}) {  // the server's own has one line too
    const ProgramResult with = ChatWith(server, "Hello\n", {"--api-key-file", directory.File(file), "-n", "4"});
    EXPECT_EQ(with.exit_code, 0) << with;
    EXPECT_NE(with.out, "");
  }
}

TEST(ChatWithAServer, AnAnswerThatIsStoppedHasAboutAsManyTokensAsPieces) {
  ReadyServer server({"--pp", "1", "--stage-delay-us", "20000"});
  Subprocess chat(CoordinatorProgram(),
                  {"chat", "--url", absl::StrCat(server.url(), "/v1"), "--temp", "0", "--ignore-eos", "-n", "900"});
  chat.Write("Hello\n");
  ASSERT_TRUE(chat.WaitForOutput("Hello! I", 60)) << chat.err();
  chat.Kill(SIGINT);
  EXPECT_THAT(chat.Wait(), EndsWithCode(130, ContainsRegex("~[1-9][0-9]* tokens.*; stopped")));
}

TEST_F(ClientOfAServer, BenchServeMeasuresItInBothApis) {
  const TempDir directory;
  const ProgramResult result =
      BenchServe(server().url(),
                 {"--num-prompts", "6", "--max-concurrency", "3", "--input-len", "20", "--output-len", "8", "--goodput",
                  "ttft:60000", "tpot:60000", "e2el:60000", "--save-result", directory.File("result.json")});
  ASSERT_THAT(result, Prints(StartsWith("VALID\n============ Serving Benchmark Result ============\n")));
  EXPECT_THAT(result.out, HasSubstr("Successful requests:                     6"));
  EXPECT_THAT(result.out, HasSubstr("Total input tokens:                      120"));
  EXPECT_THAT(result.out, HasSubstr("Total generated tokens:                  48"));
  const Json saved = Json::parse(ReadFileOrDie(directory.File("result.json")));
  EXPECT_EQ(saved["valid"], true);
  EXPECT_EQ(saved["completed"], 6);
  EXPECT_EQ(saved["model_id"], "demo-q8_0");
  EXPECT_EQ(BenchServe(absl::StrCat(server().url(), "/v1/"),
                       {"--endpoint", "chat", "--num-prompts", "2", "--output-len", "4"})
                .exit_code,
            0);
}

TEST(BenchServe, RequestsThatFailAreCountedAndMakeItInvalid) {
  ReadyServer server({"--pp", "1", "--max-num-seqs", "1", "--max-num-queued-reqs", "1", "--stage-delay-us", "20000"});
  const Words load = {"--num-prompts", "8", "--warmup", "0", "--input-len", "8", "--output-len", "8"};
  const ProgramResult failed = BenchServe(server.url(), load);
  EXPECT_EQ(failed.exit_code, 5) << failed;
  EXPECT_THAT(failed.out, StartsWith("INVALID: "));
  EXPECT_THAT(failed.err, HasSubstr("status 429"));
  EXPECT_EQ(BenchServe(server.url(), Joined(load, {"--allow-failures"})).exit_code, 0);
}

TEST(BenchServe, WrongInputsEndWithASentence) {
  ExpectRefused(
      WordsOf("bench serve --url http://127.0.0.1:1"),
      {
          {"", 5, "127.0.0.1:1"},
          {"--save-result /nowhere/result.json", 3, "--save-result: '/nowhere/result.json' cannot be written: "},
          {"--request-rate 0", 2, "--request-rate: expected inf or a number above 0"},
          {"--goodput itl:5", 2, "--goodput: expected ttft:MS"},
          {"--metric-percentiles 50,x", 2, "--metric-percentiles: expected numbers"},
          {"--endpoint chat --model m --dataset /nowhere", 3, "'/nowhere' cannot be read"},
          {"--dataset /nowhere --prefix-len 3", 2, "--prefix-len is for random prompts"},
          {"--ignore-eos --no-ignore-eos", 2, "expected one of them"},
      });
  ExpectRefused(WordsOf("bench serve --url ftp://x"), {{"", 2, "--url"}});
}

}  // namespace
}  // namespace stagecoach::testing
