// serve, while stages are lost: no stream ends, and no token differs.

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/recorded_answer.h"
#include "tests/e2e/support/server.h"

namespace stagecoach::testing {
namespace {

constexpr int kStages = 2;

Words SlowStages(const Words& more) {
  return Joined(WordsOf("--pp 2 --max-num-seqs 32 --stage-delay-us 10000 --prefill-chunk 64"), more);
}

Json Health(const Server& server) {
  return Json::parse(server.Get("/health").body, nullptr, /*allow_exceptions=*/false);
}

bool Recovers(const Server& server) {
  const Json health = Health(server);
  return health.is_object() && health["status"] == "recovering";
}

bool Serves(const Server& server) { return server.Get("/health").status == 200; }

// Signals one stage of a job after the other.
class Disturber {
 public:
  explicit Disturber(Server* server) : server_(server) {}

  // The last stage of the latest job, once that has all of its stages; of a job that was not disturbed yet. Whether
  // there was one.
  bool Signal(int signal, double timeout_s = 30) {
    std::vector<pid_t> stages;
    const auto all_are_there = [&] {
      stages = Undisturbed();
      return stages.size() == kStages;
    };
    if (!ComesTrue(all_are_there, absl::Seconds(timeout_s))) return false;
    disturbed_.insert(stages.begin(), stages.end());
    kill(stages.back(), signal);
    return true;
  }

 private:
  std::vector<pid_t> Undisturbed() const {
    std::vector<pid_t> stages = StagesOf(server_->process().pid());
    std::erase_if(stages, [&](pid_t stage) { return disturbed_.contains(stage); });
    return stages;
  }

  Server* const server_;
  std::set<pid_t> disturbed_;
};

// One server for the tests that leave it as it was.
class ServeLosses : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new Server(SlowStages({"--sse-ping-interval", "1s"})); }
  static void TearDownTestSuite() {
    EXPECT_EQ(server_->End().exit_code, 0) << server_->process().err();
    delete std::exchange(server_, nullptr);
  }

  void SetUp() override {
    ASSERT_TRUE(ComesTrue([] { return Serves(*server_); }, absl::Seconds(60))) << server_->process().err();
  }
  void TearDown() override {
    EXPECT_TRUE(ComesTrue([] { return Serves(*server_); }));
    EXPECT_TRUE(ComesTrue([] {
      const Json cluster = Json::parse(server_->Get("/api/cluster").body);
      return cluster["requests"]["unfinished"] == 0 && server_->Metric("stagecoach_requests_running") == 0;
    }));
  }

  static Server& server() { return *server_; }
  static double Relaunches() { return server_->Metric("stagecoach_job_relaunches_total"); }
  // Of all hosts.
  static double Losses() { return std::max(0.0, server_->Sum("stagecoach_stage_losses_total{host=\"")); }
  // The answer to a question of which nothing is in the prefix cache.
  static RecordedAnswer Undisturbed(Question question) {
    question.body["cache_salt"] = "undisturbed";
    return Record(server_->url(), question);
  }

 private:
  static Server* server_;
};

Server* ServeLosses::server_ = nullptr;

TEST_F(ServeLosses, NoStreamEndsAndNoTokenDiffersWhenAStageIsKilledOrStopped) {
  constexpr int kStreams = 64, kTokens = 32;
  std::vector<Question> questions;
  for (int i = 0; i < kStreams; ++i) questions.push_back(MixedQuestion(i, kTokens));
  const std::vector<RecordedAnswer> calm = RecordAll(server().url(), questions);
  const double relaunches = Relaunches(), losses = Losses();
  Disturber disturber(&server());
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto disturb = [&] {
      EXPECT_TRUE(disturber.Signal(signal));
      Json health;
      EXPECT_TRUE(ComesTrue([&] {
        health = Health(server());
        return health["status"] == "recovering";
      })) << "signal "
          << signal;
      EXPECT_TRUE(health["stage"].is_number() && health["host"].is_string()) << health;
      EXPECT_THAT(health["error"].value("message", ""), HasSubstr(" was lost")) << health;
    };
    ExpectTheSame(RecordAllWhile(server().url(), questions, 2 * kStreams, disturb), calm);
    ASSERT_TRUE(ComesTrue([&] { return Serves(server()); }, absl::Seconds(60)));
  }
  EXPECT_EQ(Relaunches(), relaunches + 2);
  EXPECT_EQ(Losses(), losses + 2);
}

TEST_F(ServeLosses, AStageDiesWhileAPromptIsComputed) {
  Question question = AsStream(CompletionQuestion(Repeated("generation", 400), 8, 3));
  question.body["return_progress"] = true;
  Disturber disturber(&server());
  bool killed = false;
  const RecordedAnswer answer = Record(server().url(), question, [&](const RecordedAnswer& so_far) {
    if (so_far.processed > 0 && !std::exchange(killed, true)) {
      EXPECT_EQ(so_far.tokens(), 0);
      EXPECT_TRUE(disturber.Signal(SIGKILL));
    }
    return true;
  });
  EXPECT_TRUE(killed);
  ExpectTheSame({answer}, {Undisturbed(question)});
}

// The new stage knows what was said, and so how it may go on.
TEST_F(ServeLosses, AnAnswerOfAFormGoesOnWhereItsStageWasKilled) {
  const Json item = {{"type", "string"}, {"minLength", 2}, {"maxLength", 8}};
  const Json list = {{"type", "array"}, {"items", item}, {"minItems", 8}, {"maxItems", 8}};
  Question chat = AsStream(ChatQuestion("Whom did he name?", 300, 8)),
           completion = CompletionQuestion("It was", 300, 9);
  chat.body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "names"}, {"schema", list}}}};
  completion.body["structured_outputs"] = {{"regex", "([0-9]{1,3}: [a-z ]{4,20}\\n){6}"}};
  const std::vector<Question> questions = {chat, AsStream(completion)};
  const std::vector<RecordedAnswer> calm = RecordAll(server().url(), questions);
  EXPECT_EQ(Json::parse(calm[0].text()).size(), 8u) << calm[0].ToString();
  EXPECT_EQ(Lines(calm[1].text()).size(), 6u) << calm[1].ToString();
  Disturber disturber(&server());
  const double relaunches = Relaunches();
  const auto disturb = [&] { EXPECT_TRUE(disturber.Signal(SIGKILL)); };
  ExpectTheSame(RecordAllWhile(server().url(), questions, 12, disturb), calm);
  EXPECT_EQ(Relaunches(), relaunches + 1);
}

TEST_F(ServeLosses, AStageDiesWhileNothingIsAsked) {
  const Question question = ChatQuestion("What is it?", 8, 6);
  const RecordedAnswer before = Record(server().url(), question);
  Disturber disturber(&server());
  ASSERT_TRUE(disturber.Signal(SIGKILL));
  EXPECT_TRUE(ComesTrue([] { return Recovers(server()); }));
  const RecordedAnswer after = Record(server().url(), question);
  ExpectTheSame({after}, {before});
  EXPECT_EQ(after.cached_tokens, 0) << "the new job's cache is empty";
}

TEST_F(ServeLosses, AStageDiesAtTheFirstTokenAndTheNextOneWhileItComesUp) {
  const Question question = AsStream(ChatQuestion("Tell me of the sea.", 24, 5));
  Disturber disturber(&server());
  const double relaunches = Relaunches();
  std::thread killer;
  const RecordedAnswer answer = Record(server().url(), question, [&](const RecordedAnswer& so_far) {
    if (so_far.tokens() == 0 || killer.joinable()) return true;
    EXPECT_TRUE(disturber.Signal(SIGKILL));
    killer = std::thread([&] {
      EXPECT_TRUE(disturber.Signal(SIGKILL));
      EXPECT_TRUE(ComesTrue([&] { return Relaunches() == relaunches + 2; }));
      const Json health = Health(server());
      EXPECT_TRUE(health["status"] != "recovering" || health["stage"] == 1) << health;
    });
    return true;
  });
  ASSERT_TRUE(killer.joinable()) << answer.ToString();
  killer.join();
  EXPECT_EQ(Relaunches(), relaunches + 2);
  ExpectTheSame({answer}, {Undisturbed(question)});
}

TEST_F(ServeLosses, WhileItRecoversClientsLeaveAndEndTheirRequestsAndNewOnesWait) {
  constexpr int kStays = 0, kLeaves = 1, kIsEnded = 2;
  std::vector<Question> questions;
  for (int i = 0; i < 3; ++i) questions.push_back(AsStream(CompletionQuestion(absl::StrCat("And it ", i), 60, i)));
  const std::vector<RecordedAnswer> calm = RecordAll(server().url(), questions);
  questions[kIsEnded].headers = {{"x-request-id", "ended-while-it-recovers"}};
  Disturber disturber(&server());
  std::atomic<bool> recovers{false};
  std::array<std::atomic<bool>, 3> began = {};
  RecordedAnswer late;
  std::thread killer([&] {
    EXPECT_TRUE(ComesTrue([&] { return began[0] && began[1] && began[2]; }));
    EXPECT_TRUE(disturber.Signal(SIGKILL));
    EXPECT_TRUE(ComesTrue([&] { return Recovers(server()); }));
    recovers = true;
    HttpCall call;
    call.method = "DELETE";
    call.path = "/api/requests/ended-while-it-recovers";
    const absl::StatusOr<HttpReply> ended = HttpClient(*ParseHttpUrl(server().url()), {}).Call(call);
    EXPECT_TRUE(ended.ok() && ended->status == 200) << ended.status();
    late = Record(server().url(), MixedQuestion(15, 8));
  });
  const std::vector<RecordedAnswer> answers =
      RecordAll(server().url(), questions, [&](int i, const RecordedAnswer& so_far) {
        if (so_far.tokens() > 0) began[i] = true;
        return i != kLeaves || !recovers;
      });
  killer.join();
  ExpectTheSame({answers[kStays], late}, {calm[kStays], Record(server().url(), MixedQuestion(15, 8))});
  EXPECT_FALSE(answers[kLeaves].complete);
  const RecordedAnswer& ended = answers[kIsEnded];
  EXPECT_TRUE(ended.complete) << ended.error;
  EXPECT_EQ(ended.choices.at(0).finish_reason, "length");
  EXPECT_LT(ended.tokens(), calm[kIsEnded].tokens());
  EXPECT_THAT(calm[kIsEnded].Sampled(), StartsWith(ended.Sampled()));
}

TEST(RecoveringServer, ToldToEndWhileItRecoversItAnswersWhatItTook) {
  ReadyServer server(SlowStages({"--drain-timeout", "120s"}));
  std::vector<Question> questions;
  for (int i = 0; i < 16; ++i) questions.push_back(MixedQuestion(i, 16));
  const std::vector<RecordedAnswer> calm = RecordAll(server.url(), questions);
  Disturber disturber(&server);
  const auto disturb = [&] {
    EXPECT_TRUE(disturber.Signal(SIGKILL));
    EXPECT_TRUE(ComesTrue([&] { return Recovers(server); }));
    server.process().Kill(SIGTERM);
    EXPECT_TRUE(ComesTrue([&] { return Health(server)["status"] == "draining"; }));
    EXPECT_THAT(Record(server.url(), MixedQuestion(0, 4)).error, HasSubstr("\"draining\""));
  };
  ExpectTheSame(RecordAllWhile(server.url(), questions, 16, disturb), calm);
  const ProgramResult result = server.process().Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
}

// What has left of a call is never taken back, so what follows has to fit.
TEST(RecoveringServer, ACallOfAToolGoesOnWhereItsStageWasKilled) {
  const TempDir directory;
  Server server(CoordinatorProgram(), Joined(CallingServer(directory, 60), SlowStages({})));
  ASSERT_TRUE(server.AwaitReady()) << server.process().err();
  Question question = AsStream(ToolQuestion("What is here?", 200, 1));
  const RecordedAnswer calm = Record(server.url(), question);
  EXPECT_EQ(calm.choices.at(0).finish_reason, "tool_calls") << calm.ToString();
  question.body["cache_salt"] = "disturbed";
  Disturber disturber(&server);
  bool killed = false;
  const RecordedAnswer answer = Record(server.url(), question, [&](const RecordedAnswer& so_far) {
    if (!killed && so_far.text().size() > 300) {
      killed = true;
      EXPECT_TRUE(disturber.Signal(SIGKILL));
    }
    return true;
  });
  EXPECT_TRUE(killed);
  ExpectTheSame({answer}, {calm});
}

TEST(RecoveringServer, WhenNoJobStaysUpEveryAnswerEndsWithThatAndSoDoesTheServer) {
  ReadyServer server(SlowStages({"--relaunch-timeout", "0"}));
  const std::vector<Question> questions = {AsStream(ChatQuestion("Go on.", 500, 1)), ChatQuestion("Go on.", 500, 2),
                                           AsStream(CompletionQuestion("Go on", 500, 3))};
  Disturber disturber(&server);
  const std::vector<RecordedAnswer> answers = RecordAllWhile(server.url(), questions, 0, [&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(disturber.Signal(SIGKILL)) << i;
  });
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_FALSE(answers[i].complete);
    EXPECT_EQ(answers[i].status, i == 1 ? 503 : 200);
    EXPECT_THAT(answers[i].error, HasSubstr("\"stages_lost\"")) << i;
  }
  EXPECT_THAT(server.process().Wait(60), EndsWithCode(5, HasSubstr("the job was lost 3 times in a row")));
}

}  // namespace
}  // namespace stagecoach::testing
