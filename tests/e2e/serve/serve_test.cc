// serve: the real programs, asked over HTTP.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/e2e/support/recorded_answer.h"
#include "tests/e2e/support/server.h"

namespace stagecoach::testing {
namespace {

// A completion that is sampled by a seed, of the prompt "In the beginning <seed>".
Question Completion(int tokens, int seed, bool stream = false) {
  return {kCompletionsPath,
          {{"prompt", absl::StrCat("In the beginning ", seed)},
           {"max_tokens", tokens},
           {"temperature", 0.8},
           {"seed", seed},
           {"stream", stream}}};
}

// Used blocks of the pool, as the metrics say; -1 before the first status.
double UsedBlocks(const Server& server) { return server.Sum("stagecoach_kv_blocks{", "referenced"); }

TEST(Serve, AnswersAsGenerateDoesAndEndsInOrder) {
  ReadyServer server({"--pp", "2"});
  EXPECT_EQ(server.Get("/health").body, "{\"status\":\"ok\"}");
  const RecordedAnswer whole = Record(server.url(), Completion(24, 7));
  const RecordedAnswer stream = Record(server.url(), Completion(24, 7, /*stream=*/true));
  EXPECT_TRUE(stream.complete) << stream.error;
  const Words generate = Generate(WordsOf("--pp 2 -n 24 --temp 0.8 --seed 7 --output json"));
  const std::string expected = CoordinatorJson(Joined(generate, {"-p", "In the beginning 7"}))["text"];
  EXPECT_EQ(whole.text(), expected) << whole.error;
  EXPECT_EQ(stream.text(), expected);

  const Json models = Json::parse(server.Get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "demo-q8_0");
  EXPECT_EQ(models["data"][0]["max_model_len"], 1024);
  const Json tokens = Json::parse(server.Post("/tokenize", {{"prompt", "one two"}}).body);
  EXPECT_GT(tokens["count"], 1);
  EXPECT_THAT(server.Post("/detokenize", {{"tokens", tokens["tokens"]}}).body, HasSubstr("one two"));
  const Json stages = Json::parse(server.Get("/api/cluster").body)["stages"];
  EXPECT_EQ(stages.size(), 2u);
  Json timed = Completion(24, 7).body;
  timed["timings"] = true;
  const Json answer = Json::parse(server.Post(kCompletionsPath, timed).body);
  const Json& timings = answer["timings"];
  EXPECT_EQ(timings["cache_n"].get<int>() + timings["prompt_n"].get<int>(), answer["usage"]["prompt_tokens"]);
  EXPECT_EQ(timings["predicted_n"], 24);
  for (const char* time : {"prompt_ms", "predicted_ms"}) EXPECT_GT(timings[time], 0) << timings;
  EXPECT_THAT(answer["system_fingerprint"].get<std::string>(),
              HasSubstr(absl::StrCat("-", stages[0]["isa"].get<std::string>(), "-")));
  EXPECT_THAT(server.Get("/metrics").body, HasSubstr("stagecoach_stage_up{stage=\"1\""));
  const ProgramResult result = server.End();
  EXPECT_EQ(result.exit_code, 0) << result;
}

TEST(Serve, ListensBeforeTheModelIsLoadedAndCurlReadsAStreamAsItComes) {
  Server server({"--pp", "1"});
  const HttpReply early = server.Get("/health");
  EXPECT_TRUE(early.status == 503 || early.status == 200) << early.status;
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  EXPECT_THAT(server.process().err(), HasSubstr("context 1024, 1 stage"));
  if (RunProgram("curl", {"--version"}).exit_code == 0) {
    const ProgramResult result =
        RunProgram("curl", {"-sSN", absl::StrCat(server.url(), kChatPath), "-H", "Content-Type: application/json", "-d",
                            R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"stream":true})"});
    EXPECT_THAT(result, Prints(HasSubstr(R"("delta":{"role":"assistant","content":""})")));
    EXPECT_THAT(result.out, ::testing::EndsWith("data: [DONE]\n\n"));
  } else {
    std::cerr << "NOT RUN: there is no curl to read the stream with\n";
  }
  EXPECT_EQ(server.End(SIGUSR1).exit_code, 0);
}

TEST(Serve, AClientThatGoesGivesItsBlocksBackAndASecondSignalEndsAtOnce) {
  ReadyServer server({"--pp", "1", "--stage-delay-us", "50000"});
  ASSERT_TRUE(ComesTrue([&] { return UsedBlocks(server) == 0; }));
  std::atomic<bool> go{false};
  std::thread gone([&] { Record(server.url(), Completion(500, 1, true), [&](const RecordedAnswer&) { return !go; }); });
  EXPECT_TRUE(ComesTrue([&] { return UsedBlocks(server) > 0; }));
  go = true;
  gone.join();
  EXPECT_TRUE(ComesTrue([&] { return UsedBlocks(server) == 0; }));
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_requests_running") == 0; }));

  std::thread client([&] { Record(server.url(), Completion(900, 1, true)); });
  ASSERT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_requests_running") == 1; }));
  server.process().Kill(SIGTERM);
  ASSERT_TRUE(server.process().WaitForOutput("a second signal ends at once", 20));
  EXPECT_EQ(Record(server.url(), Completion(5, 2)).status, 503);
  EXPECT_EQ(server.End(SIGINT).exit_code, 130);
  client.join();
}

TEST(Serve, SaysWhichPortItFoundAlsoWhenItIsQuietAndWrongOptionsEndWithAMessage) {
  Server server({"--pp", "1", "-q"});
  ASSERT_NE(server.port(), 0) << server.process().err();
  const TempDir directory;
  WriteFileOrDie(directory.File("keys"), "# none\n");
  ExpectRefused(WordsOf("serve -m MODEL"), {
                                               {absl::StrCat("--port ", server.port()), 2, "in use"},
                                               {"--port 70000", 2, "--port: 70000 is out of range"},
                                           });
  ExpectRefused(
      WordsOf("serve -m MODEL --port 0"),
      {
          {"--host 203.0.113.1", 2, "203.0.113.1"},
          {"--api-key-file /nowhere/keys", 3, "--api-key-file: "},
          {"--api-key-file DIR/keys", 3, "--api-key-file: "},
          {"--served-model-name ,", 2, "--served-model-name: expected names"},
          {"--served-model-name a,b,a", 2, "--served-model-name: expected names that differ, found 'a' twice"},
          {"--max-body 5G", 2, "--max-body: 5368709120 is out of range, expected at most 2147483648 (2G)"},
          {"--chat-template-file /nowhere/t", 3, "/nowhere/t"},
          {"--access-log /nowhere/log", 3, "--access-log: cannot write '/nowhere/log'"},
          {"--queue-timeout soon", 2, "'soon' is not a duration"},
          {"--max-num-queued-reqs 0", 2, "--max-num-queued-reqs: 0 is out of range"},
          {"--reasoning-field thoughts", 2, "'thoughts' is not one of"},
          {"--tool-parser hermes", 2, "'hermes' is not one of auto, none, hermes_json"},
          {"--hosts node1:2,", 2, "--hosts: ''"},
      },
      Refusal::kAnyLines, directory.path());
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
  EXPECT_EQ(Record(server.url(), Completion(4, 1)).status, 200);
  EXPECT_EQ(server.End().exit_code, 0);
  EXPECT_THAT(ReadFileOrDie(log), HasSubstr("\"status\":200"));
}

TEST(Serve, AModelThatCallsAToolIsAnsweredWithTheCallWholeAndAsAStream) {
  const TempDir directory;
  Server server(CoordinatorProgram(), Joined(CallingServer(directory, 2), {"--pp", "2"}));
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  const Question question = ToolQuestion("What is here?", 100, 1);
  const Json body = Json::parse(server.Post(kChatPath, question.body).body);
  const Json choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
  EXPECT_EQ(choice["message"]["content"], "Let me look.");
  ASSERT_EQ(choice["message"].value("tool_calls", Json::array()).size(), 1u) << choice;
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"],
            Json({{"name", "look"}, {"arguments", R"({"where": "word 0; word 1; "})"}}));
  EXPECT_EQ(choice["logprobs"]["content"].size(), 8u);
  EXPECT_EQ(body["usage"]["completion_tokens"], 9) << "and the one that ended it";
  const RecordedAnswer whole = Record(server.url(), question), stream = Record(server.url(), AsStream(question));
  EXPECT_TRUE(stream.complete) << stream.error;
  EXPECT_EQ(stream.text(), R"(Let me look.look{"where": "word 0; word 1; "})");
  EXPECT_EQ(stream.ToString(), whole.ToString());
  Json untold = question.body;
  untold.erase("tools");
  EXPECT_THAT(server.Post(kChatPath, untold).body, HasSubstr("<tool_call>")) << "nobody asked for calls";
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
    EXPECT_EQ(Record(server.url(), Completion(4, 1)).status, 200) << limit.command;
    for (const int client : silent) close(client);
    if (limit.signal == SIGHUP) server.process().Kill(SIGHUP);  // the shell says it, and the kernel once more
    EXPECT_EQ(server.End(limit.signal).exit_code, 0);
  }
}

TEST(Serve, UnderALauncherOfTheUsersItServesToo) {
  Server server("mpirun", WorldArguments({"serve", "-m", DemoModelPath(), "--port", "0"}, 2), AllowRoot());
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  EXPECT_THAT(server.process().err(), HasSubstr("a lost stage ends the run"));
  EXPECT_TRUE(Record(server.url(), Completion(8, 1, true)).complete);
}

// Of the prompt, what the server did not compute for this key.
int64_t CachedFor(const Server& server, const std::string& key) {
  const RecordedAnswer answer = Record(server.url(), {kCompletionsPath,
                                                      {{"prompt", Repeated("word", 100)}, {"max_tokens", 2}},
                                                      {{"Authorization", absl::StrCat("Bearer ", key)}}});
  EXPECT_EQ(answer.status, 200) << answer.error;
  return answer.cached_tokens;
}

TEST(Serve, AKeyFindsNothingOfAnothersPromptsInTheCacheUnlessTheyShareIt) {
  const TempDir directory;
  WriteFileOrDie(directory.File("keys"), "ada:sk-ada\nbob:sk-bob\n");
  for (const bool shared : {false, true}) {
    Words words = {"--pp", "1", "--api-key-file", directory.File("keys")};
    if (shared) words.push_back("--cache-shared");
    ReadyServer server(words);
    EXPECT_EQ(CachedFor(server, "sk-ada"), 0);
    EXPECT_EQ(CachedFor(server, "sk-bob") > 0, shared);
    EXPECT_GT(CachedFor(server, "sk-ada"), 0);
    EXPECT_EQ(server.End().exit_code, 0);
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
    return Record(server.url(), {kChatPath, {{"messages", {{{"role", "user"}, {"content", what}}}}, {"stream", true}}});
  };
  EXPECT_EQ(ask("How is the weather?").text(), "It rains.");
  EXPECT_EQ(ask("Be slow.").text(), "At last.");
  EXPECT_EQ(server.End().exit_code, 0);
}

// A stream whose client only waits.
int OpenStream(int port) {
  const int descriptor = SilentClient(port);
  const std::string body = R"({"messages":[{"role":"user","content":"Be patient."}],"stream":true})";
  const std::string request =
      absl::StrCat("POST ", kChatPath,
                   " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
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
      server.Post(kChatPath, {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"n", 8}, {"timeout_s", 1}}).status,
      504);
  for (const int stream : streams) close(stream);
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_sse_streams") == 0; }));
  EXPECT_TRUE(ComesTrue([&] { return Json::parse(server.Get("/api/cluster").body)["requests"]["unfinished"] == 0; }));
  // All places are there again, and no more than those.
  streams.clear();
  for (int i = 0; i < kPlaces; ++i) streams.push_back(OpenStream(server.port()));
  EXPECT_TRUE(ComesTrue([&] { return server.Metric("stagecoach_sse_streams") == kPlaces; }, absl::Seconds(60)));
  EXPECT_EQ(server.Metric("stagecoach_requests_refused_total{code=\"queue_full\"}"), -1);
  EXPECT_EQ(server.Post(kChatPath, {{"messages", {{{"role", "user"}, {"content", "x"}}}}}).status, 429);
  for (const int stream : streams) close(stream);
}

}  // namespace
}  // namespace stagecoach::testing
