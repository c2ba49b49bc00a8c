// serve: the real programs, asked over HTTP.

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/server.h"
#include "tests/testing/comes_true.h"
#include "tests/testing/paths.h"
#include "tests/testing/process_tree.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kOpening[] = "In the beginning";

Json Completion(int tokens, int seed, bool stream = false) {
  return {{"prompt", absl::StrCat(kOpening, " ", seed)},
          {"max_tokens", tokens},
          {"temperature", 0.8},
          {"seed", seed},
          {"stream", stream}};
}

// Used blocks of the pool, as the metrics say; -1 before the first status.
double UsedBlocks(const Server& server) {
  double used = -1;
  for (const absl::string_view line : absl::StrSplit(server.Get("/metrics").body, '\n')) {
    if (!absl::StartsWith(line, "stagecoach_kv_blocks{") || !absl::StrContains(line, "referenced")) continue;
    double value = 0;
    if (absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) used = std::max(used, 0.0) + value;
  }
  return used;
}

TEST(Serve, AnswersAsGenerateDoesAndEndsInOrder) {
  Server server({"--pp", "2"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  EXPECT_EQ(server.Get("/health").body, "{\"status\":\"ok\"}");
  const Json body = Completion(24, 7);
  const ServedAnswer whole = server.Ask(kCompletions, body);
  Json streamed = body;
  streamed["stream"] = true;
  const ServedAnswer stream = server.Ask(kCompletions, streamed);
  EXPECT_TRUE(stream.done) << stream.error;
  const ProgramResult generated = Coordinator(Generate({"--pp", "2", "-p", absl::StrCat(kOpening, " 7"), "-n", "24",
                                                        "--temp", "0.8", "--seed", "7", "--output", "json"}));
  ASSERT_EQ(generated.exit_code, 0) << generated;
  const std::string expected = Json::parse(generated.out)["text"];
  EXPECT_EQ(whole.text, expected) << whole.body;
  EXPECT_EQ(stream.text, expected);

  const Json models = Json::parse(server.Get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "demo-q8_0");
  EXPECT_EQ(models["data"][0]["max_model_len"], 1024);
  const Json tokens = Json::parse(server.Post("/tokenize", {{"prompt", "one two"}}).body);
  EXPECT_GT(tokens["count"], 1);
  EXPECT_THAT(server.Post("/detokenize", {{"tokens", tokens["tokens"]}}).body, HasSubstr("one two"));
  const Json stages = Json::parse(server.Get("/api/cluster").body)["stages"];
  EXPECT_EQ(stages.size(), 2u);
  Json timed = body;
  timed["timings"] = true;
  const Json answer = Json::parse(server.Post(kCompletions, timed).body);
  const Json& timings = answer["timings"];
  EXPECT_EQ(timings["cache_n"].get<int>() + timings["prompt_n"].get<int>(), answer["usage"]["prompt_tokens"]);
  EXPECT_EQ(timings["predicted_n"], 24);
  for (const char* time : {"prompt_ms", "predicted_ms"}) EXPECT_GT(timings[time], 0) << timings;
  EXPECT_THAT(answer["system_fingerprint"].get<std::string>(),
              HasSubstr(absl::StrCat("-", stages[0]["isa"].get<std::string>(), "-")));
  EXPECT_THAT(server.Get("/metrics").body, HasSubstr("stagecoach_stage_up{stage=\"1\""));

  server.process().Kill(SIGTERM);
  const ProgramResult result = server.process().Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
}

TEST(Serve, ListensBeforeTheModelIsLoaded) {
  Server server({"--pp", "1"});
  const HttpReply early = server.Get("/health");
  EXPECT_TRUE(early.status == 503 || early.status == 200) << early.status;
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  EXPECT_THAT(server.process().err(), HasSubstr("context 1024, 1 stage"));
  server.process().Kill(SIGUSR1);
  EXPECT_EQ(server.process().Wait(60).exit_code, 0);
}

TEST(Serve, SaysWhichPortItFoundAlsoWhenItIsQuiet) {
  Server server({"--pp", "1", "-q"});
  EXPECT_NE(server.port(), 0) << server.process().err();
}

TEST(Serve, CurlReadsAStreamAsItComes) {
  if (RunProgram("curl", {"--version"}).exit_code != 0) GTEST_SKIP() << "curl is not on this machine";
  Server server({"--pp", "1"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const ProgramResult result =
      RunProgram("curl", {"-sSN", absl::StrCat(server.url(), kChat), "-H", "Content-Type: application/json", "-d",
                          R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"stream":true})"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  EXPECT_THAT(result.out, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST(Serve, AClientThatGoesGivesItsBlocksBack) {
  Server server({"--pp", "1", "--stage-delay-us", "20000"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  ASSERT_TRUE(ComesTrue([&] { return UsedBlocks(server) == 0; }));
  std::atomic<bool> go{false};
  std::thread client(
      [&] { server.Ask(kCompletions, Completion(500, 1, true), [&](const ServedAnswer&) { return !go; }); });
  EXPECT_TRUE(ComesTrue([&] { return UsedBlocks(server) > 0; }));
  go = true;
  client.join();
  EXPECT_TRUE(ComesTrue([&] { return UsedBlocks(server) == 0; }));
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_requests_running") == 0; }));
  server.process().Kill(SIGTERM);
  EXPECT_EQ(server.process().Wait(60).exit_code, 0);
}

TEST(Serve, ASecondSignalEndsAtOnce) {
  Server server({"--pp", "1", "--stage-delay-us", "50000"});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  std::thread client([&] { server.Ask(kCompletions, Completion(900, 1, true)); });
  ASSERT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_requests_running") == 1; }));
  server.process().Kill(SIGTERM);
  ASSERT_TRUE(server.process().WaitForOutput("a second signal ends at once", 20));
  EXPECT_EQ(server.Post(kCompletions, Completion(5, 2)).status, 503);
  server.process().Kill(SIGINT);
  EXPECT_EQ(server.process().Wait(20).exit_code, 130);
  client.join();
}

TEST(Serve, APortInUseAndOtherWrongOptionsEndWithAMessage) {
  Server server({"--pp", "1"});
  ASSERT_NE(server.port(), 0);
  const TempDir directory;
  const std::string empty = directory.File("keys");
  WriteFileOrDie(empty, "# none\n");
  struct Wrong {
    Words words;
    int exit_code;
    const char* message;
  };
  const std::vector<Wrong> wrongs = {
      {{"--port", absl::StrCat(server.port())}, 2, "in use"},
      {{"--port", "70000"}, 2, "--port: 70000 is out of range"},
      {{"--host", "203.0.113.1"}, 2, "203.0.113.1"},
      {{"--api-key-file", "/nowhere/keys"}, 3, "--api-key-file: "},
      {{"--api-key-file", empty}, 3, "--api-key-file: "},
      {{"--served-model-name", ","}, 2, "--served-model-name: expected names"},
      {{"--served-model-name", "a,b,a"}, 2, "--served-model-name: expected names that differ, found 'a' twice"},
      {{"--max-body", "5G"}, 2, "--max-body: 5368709120 is out of range, expected at most 2147483648 (2G)"},
      {{"--chat-template-file", "/nowhere/t"}, 3, "/nowhere/t"},
      {{"--access-log", "/nowhere/log"}, 3, "--access-log: cannot write '/nowhere/log'"},
      {{"--queue-timeout", "soon"}, 2, "'soon' is not a duration"},
      {{"--max-num-queued-reqs", "0"}, 2, "--max-num-queued-reqs: 0 is out of range"},
      {{"--reasoning-field", "thoughts"}, 2, "'thoughts' is not one of"},
      {{"--hosts", "node1:2,"}, 2, "--hosts: ''"},
  };
  for (const Wrong& wrong : wrongs) {
    Words words = {"serve", "-m", DemoModelPath()};
    if (wrong.words[0] != "--port") words.insert(words.end(), {"--port", "0"});
    words.insert(words.end(), wrong.words.begin(), wrong.words.end());
    const ProgramResult result = Coordinator(words);
    EXPECT_EQ(result.exit_code, wrong.exit_code) << result;
    EXPECT_THAT(result.err, HasSubstr(wrong.message));
  }
}

TEST(Serve, WithoutStandardStreamsNothingElseHasTheirNumbers) {
  const TempDir directory;
  const std::string log = directory.File("log");
  // The job's sockets and the log are opened while 0 and 1 are free.
  Server server("sh", {"-c", "exec \"$0\" \"$@\" <&- >&-", CoordinatorProgram(), "serve", "-m", DemoModelPath(),
                       "--port", "0", "--pp", "1", "--access-log", log});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  for (const char* stream : {"0", "1"}) {
    EXPECT_EQ(std::filesystem::read_symlink(absl::StrCat("/proc/", server.process().pid(), "/fd/", stream)),
              "/dev/null");
  }
  EXPECT_EQ(server.Post(kCompletions, Completion(4, 1)).status, 200);
  server.process().Kill(SIGTERM);
  EXPECT_EQ(server.process().Wait(60).exit_code, 0);
  EXPECT_THAT(ReadFileOrDie(log), HasSubstr("\"status\":200"));
}

// The socket of a client that says nothing.
int SilentClient(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return descriptor;
}

TEST(Serve, SilentClientsLockNobodyOutHoweverFewFilesItMayOpen) {
  signal(SIGHUP, SIG_DFL);  // who runs the tests may have it ignored, and so would the servers
  struct Limit {
    const char* command;
    const char* said;
    int signal;  // that ends it; a terminal that goes is one, too
  };
  for (const Limit& limit :
       {Limit{"ulimit -S -n 256", "listening on", SIGTERM},
        Limit{"ulimit -n 256", "at most 128 connections are served at once instead of 1024", SIGHUP}}) {
    Server server("sh", {"-c", absl::StrCat(limit.command, "; exec \"$0\" \"$@\""), CoordinatorProgram(), "serve", "-m",
                         DemoModelPath(), "--port", "0", "--pp", "2"});
    ASSERT_TRUE(server.AwaitReady()) << server.process().err();
    EXPECT_THAT(server.process().err(), HasSubstr(limit.said));
    std::vector<int> silent;
    for (int i = 0; i < 400; ++i) silent.push_back(SilentClient(server.port()));
    EXPECT_EQ(server.Get("/health").status, 200) << limit.command;
    EXPECT_EQ(server.Post(kCompletions, Completion(4, 1)).status, 200) << limit.command;
    for (const int client : silent) close(client);
    server.process().Kill(limit.signal);
    if (limit.signal == SIGHUP) server.process().Kill(SIGHUP);  // the shell says it, and the kernel once more
    EXPECT_EQ(server.process().Wait(60).exit_code, 0);
  }
}

TEST(Serve, UnderALauncherOfTheUsersItServesToo) {
  Words words = WorldArguments({"serve", "-m", DemoModelPath(), "--port", "0"}, 2);
  Server server("mpirun", words, AllowRoot());
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  EXPECT_THAT(server.process().err(), HasSubstr("a lost stage ends the run"));
  EXPECT_TRUE(server.Ask(kCompletions, Completion(8, 1, true)).done);
}

// Of the prompt, what the server did not compute for this key.
int64_t CachedFor(const Server& server, const std::string& key) {
  HttpClientOptions options;
  options.headers = {{"Authorization", absl::StrCat("Bearer ", key)}};
  HttpCall call;
  call.method = "POST";
  call.path = kCompletions;
  std::string prompt;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&prompt, "word ");
  call.body = Json({{"prompt", prompt}, {"max_tokens", 2}}).dump();
  const absl::StatusOr<HttpReply> reply = HttpClient(*ParseHttpUrl(server.url()), options).Call(call);
  EXPECT_TRUE(reply.ok() && reply->status == 200) << reply.status();
  return Json::parse(reply->body)["usage"]["prompt_tokens_details"]["cached_tokens"];
}

TEST(Serve, AKeyFindsNothingOfAnothersPromptsInTheCacheUnlessTheyShareIt) {
  const TempDir directory;
  WriteFileOrDie(directory.File("keys"), "ada:sk-ada\nbob:sk-bob\n");
  for (const bool shared : {false, true}) {
    Words words = {"--pp", "1", "--api-key-file", directory.File("keys")};
    if (shared) words.push_back("--cache-shared");
    Server server(words);
    ASSERT_TRUE(server.AwaitReady()) << server.process().err();
    EXPECT_EQ(CachedFor(server, "sk-ada"), 0);
    EXPECT_EQ(CachedFor(server, "sk-bob") > 0, shared);
    EXPECT_GT(CachedFor(server, "sk-ada"), 0);
    server.process().Kill(SIGTERM);
    EXPECT_EQ(server.process().Wait(60).exit_code, 0);
  }
}

TEST(ScriptedServer, GivesExactTextsAndFailures) {
  const TempDir directory;
  const std::string script = directory.File("script.json");
  WriteFileOrDie(script, R"({"answers":[{"when":"weather","text":"It rains."},{"when":"slow","text":"At last.",)"
                         R"("first_ms":100,"each_ms":10}]})");
  Server server(BuildPath("tests/e2e/scripted_server"), {DemoModelPath(), script});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const auto ask = [&](const char* what) {
    return server.Ask(kChat, {{"messages", {{{"role", "user"}, {"content", what}}}}, {"stream", true}});
  };
  EXPECT_EQ(ask("How is the weather?").text, "It rains.");
  EXPECT_EQ(ask("Be slow.").text, "At last.");
  server.process().Kill(SIGTERM);
  EXPECT_EQ(server.process().Wait(30).exit_code, 0);
}

// A stream whose client only waits.
int OpenStream(int port) {
  const int descriptor = SilentClient(port);
  const std::string body = R"({"messages":[{"role":"user","content":"Be patient."}],"stream":true})";
  const std::string request = absl::StrCat(
      "POST ", kChat, " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
      "\r\n\r\n", body);
  EXPECT_EQ(send(descriptor, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  return descriptor;
}

TEST(ScriptedServer, FiveHundredStreamsThatWaitTakeLittleMemoryAndLeaveNothing) {
  constexpr int kStreams = 500;
  const TempDir directory;
  constexpr int kPlaces = 520;
  const std::string script = directory.File("script.json");
  WriteFileOrDie(script, R"({"max_num_queued_reqs":520,"answers":[{"text":"Late.","first_ms":3600000}]})");
  Server server(BuildPath("tests/e2e/scripted_server"), {DemoModelPath(), script});
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  close(OpenStream(server.port()));
  ASSERT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_sse_streams") == 0; }));
  const uint64_t before = ResidentBytesOf(server.process().pid());
  std::vector<int> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(OpenStream(server.port()));
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_sse_streams") == kStreams; }, absl::Seconds(60)));
  EXPECT_LT(ResidentBytesOf(server.process().pid()), before + (uint64_t{20} << 20));
  EXPECT_EQ(
      server.Post(kChat, {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"n", 8}, {"timeout_s", 1}}).status,
      504);
  for (const int stream : streams) close(stream);
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_sse_streams") == 0; }));
  EXPECT_TRUE(ComesTrue([&] { return Json::parse(server.Get("/api/cluster").body)["requests"]["unfinished"] == 0; }));
  // All places are there again, and no more than those.
  streams.clear();
  for (int i = 0; i < kPlaces; ++i) streams.push_back(OpenStream(server.port()));
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_sse_streams") == kPlaces; }, absl::Seconds(60)));
  EXPECT_EQ(server.Metric("stagecoach_requests_refused_total{code=\"queue_full\"}"), -1);
  EXPECT_EQ(server.Post(kChat, {{"messages", {{{"role", "user"}, {"content", "x"}}}}}).status, 429);
  for (const int stream : streams) close(stream);
}

}  // namespace
}  // namespace stagecoach::testing
