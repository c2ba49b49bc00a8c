// A server whose hosts are cut off under its streams: none of them ends, and no token differs.

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/recorded_answer.h"
#include "tests/e2e/support/server.h"
#include "tests/hosts/support/generation.h"

namespace stagecoach::testing {
namespace {

constexpr char kHostFile[] = "/mnt/hostfile";
constexpr int kStreams = 12, kTokens = 24;

Words StageHosts(const Server& server) {
  Words hosts;
  const Json cluster = ReadJson(server.Get("/api/cluster").body);
  for (const Json& stage : cluster["stages"]) hosts.push_back(stage["host"]);
  return hosts;
}

class ServeTest : public HostsTest {
 protected:
  std::unique_ptr<Server> StartServer(const std::string& hostfile) {
    WriteFileOrDie(hosts().Outside(kHostFile), hostfile);
    const Words words = {"--hostfile", kHostFile, "-t", "1", "--stage-delay-us", "10000", "--host-timeout", "3"};
    return std::make_unique<Server>(StartVerb(Joined(WordsOf("serve -m MODEL --port 0"), words)));
  }

  static std::vector<Question> Questions() {
    std::vector<Question> questions;
    for (int i = 0; i < kStreams; ++i) questions.push_back(MixedQuestion(i, kTokens));
    return questions;
  }

  // Cuts the host of this stage while streams are open; the answers.
  std::vector<RecordedAnswer> AnswersWhileCut(const Server& server, int host, int stage) {
    const auto cut = [&] {
      hosts().Cut(host);
      Json health;
      const auto recovers = [&] {
        const HttpReply reply = server.Get("/health");
        health = ReadJson(reply.body);
        return reply.status == 503 && health["status"] == "recovering";
      };
      EXPECT_TRUE(ComesTrue(recovers, absl::Seconds(40)));
      EXPECT_EQ(health["stage"], stage) << health;
      EXPECT_EQ(health["host"], EmulatedHosts::Name(host)) << health;
      const std::string message = health["error"]["message"];
      EXPECT_THAT(message, HasSubstr(absl::StrCat("stage ", stage, " on host", host, " was lost")));
    };
    std::vector<RecordedAnswer> answers;
    hosts().On(1, [&] { answers = RecordAllWhile(server.url(), Questions(), kStreams, cut); });
    return answers;
  }
};

TEST_F(ServeTest, NoStreamEndsAndNoTokenDiffersWhenHostsAreCutOff) {
  const std::unique_ptr<Server> server = StartServer(kWithASpare);
  ASSERT_TRUE(server->AwaitReady()) << server->process().err();
  std::vector<RecordedAnswer> calm;
  hosts().On(1, [&] {
    calm = RecordAll(server->url(), Questions());
    EXPECT_EQ(StageHosts(*server), Words({"host1", "host2", "host3"}));
  });
  // The spare host takes the place of the first, and when it is cut off too the other two take all layers.
  ExpectTheSame(AnswersWhileCut(*server, 3, 2), calm);
  hosts().On(1, [&] { EXPECT_EQ(StageHosts(*server), Words({"host1", "host2", "host4"})); });
  ExpectTheSame(AnswersWhileCut(*server, 4, 2), calm);
  hosts().On(1, [&] {
    EXPECT_EQ(StageHosts(*server), Words({"host1", "host2"}));
    EXPECT_EQ(server->Get("/health").status, 200);
    EXPECT_EQ(server->Metric("stagecoach_stage_losses_total{host=\"host3\"}"), 1);
    EXPECT_EQ(server->Metric("stagecoach_stage_losses_total{host=\"host4\"}"), 1);
    EXPECT_EQ(server->Metric("stagecoach_job_relaunches_total"), 2);
  });
  for (const int host : {3, 4}) hosts().Heal(host);
  EmulatedHosts::Signal(hosts().PidOf(server->process()), SIGTERM);
  const ProgramResult result = server->process().Wait(60);
  EXPECT_EQ(result.exit_code, 0) << result;
}

}  // namespace
}  // namespace stagecoach::testing
