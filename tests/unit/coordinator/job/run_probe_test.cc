// A probe with real stages as threads over the loopback transport.

#include <sys/socket.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/host/host_info.h"
#include "common/model/model_description.h"
#include "common/transport/loopback.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/job/run_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/serve_stage.h"
#include "tests/testing/cluster/loopback_cluster.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::RankOfStage;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = "dummy://tiny/q8_0";

pb::ConfigureJob ProbeOf(const std::string& model) {
  pb::ConfigureJob job = testing::DefaultJob(model);
  job.mutable_probe();
  return job;
}

// `hosts`: of the stages.
absl::StatusOr<pb::ProbeReport> Probe(const std::vector<std::string>& hosts, const pb::ConfigureJob& job,
                                      FaultHook faults = nullptr) {
  const int stages = static_cast<int>(hosts.size());
  LoopbackWorld world(stages + 1, std::move(faults));
  std::vector<pb::Hello> hellos = {MakeHello(pb::Hello::ROLE_COORDINATOR, {})};
  hellos[0].set_host("front");
  std::vector<std::thread> threads;
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = RankOfStage(stage, stages);
    hellos.push_back(MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets()));
    hellos.back().set_host(hosts[static_cast<size_t>(stage)]);
    hellos.back().set_rank(rank);
    threads.emplace_back([&world, rank] {
      const std::unique_ptr<Endpoint> endpoint = world.Connect(rank);
      ServeStage(endpoint.get()).IgnoreError();
    });
  }
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  threads.emplace_back([&world, &hellos, descriptor = pair[1]] {
    const std::unique_ptr<Endpoint> endpoint = world.Connect(kCoordinatorRank);
    EngineChannel front(descriptor);
    if (!RunEngine(endpoint.get(), hellos, &front).ok()) world.Abort();
  });
  absl::StatusOr<pb::ProbeReport> report = testing::RunProbeFront(pair[0], job);
  for (std::thread& thread : threads) thread.join();
  return report;
}

TEST(RunProbe, ReportsEveryHostAndEveryLink) {
  const auto report = Probe({"a", "a", "b"}, ProbeOf(kModel)).value();
  EXPECT_EQ(report.done(), 1);
  ASSERT_EQ(report.hellos_size(), 4);
  EXPECT_EQ(report.hellos(0).host(), "front");
  EXPECT_EQ(report.coordinator().memory_bytes(), TotalMemoryBytes());
  ASSERT_EQ(report.stages_size(), 3);
  const auto model = OpenModel(kModel, {});
  ASSERT_TRUE(model.ok());
  for (int stage = 0; stage < 3; ++stage) {
    const pb::ProbedStage& probed = report.stages(stage);
    EXPECT_EQ(probed.stage(), stage);
    EXPECT_EQ(probed.rank(), RankOfStage(stage, 3));
    EXPECT_GE(probed.threads(), 1);
    EXPECT_EQ(probed.host().memory_bytes(), TotalMemoryBytes());
    EXPECT_EQ(probed.model_code(), 0);
    EXPECT_EQ(FromProto(probed.model().fingerprints()), (*model)->file->fingerprints());
    EXPECT_EQ(probed.model().steps_size(), 0);
  }
  EXPECT_EQ(report.hosts_size(), 0);  // no speeds were asked for
  ASSERT_EQ(report.links_size(), 5);
  for (int i = 0; i < 5; ++i) {
    const pb::ProbeLink& link = report.links(i);
    EXPECT_EQ(link.from_stage(), i < 3 ? -1 : i - 3);
    EXPECT_EQ(link.to_stage(), i < 3 ? i : i - 2);
    EXPECT_EQ(link.error(), "");
    EXPECT_GT(link.latency_us(), 0);
    EXPECT_GT(link.bytes_per_s(), 0);
    // All are threads of one process, which has one clock.
    EXPECT_LE(std::abs(link.clock_offset_us()), link.clock_error_us());
  }
}

TEST(RunProbe, NamesTheTwoStagesWhoseLinkLosesFramesAndMeasuresTheRest) {
  pb::ConfigureJob job = ProbeOf("");
  job.mutable_probe()->set_link_timeout_s(0.3);
  const absl::StatusOr<pb::ProbeReport> report =
      Probe({"a", "b", "c"}, job, [](Channel channel, int source, int, uint64_t) {
        return Fault{channel == Channel::kStep && source == RankOfStage(0, 3) ? Fault::Kind::kDrop
                                                                              : Fault::Kind::kNone};
      });
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->links_size(), 5);
  for (const pb::ProbeLink& link : report->links()) {
    if (link.from_stage() == 0) {
      EXPECT_THAT(link.error(), AllOf(HasSubstr("stage 0 on a"), HasSubstr("stage 1 on b"), HasSubstr("TCP")));
    } else {
      EXPECT_EQ(link.error(), "");
      EXPECT_GT(link.bytes_per_s(), 0);
    }
  }
}

TEST(RunProbe, SaysOfEveryStageWhatIsWrongWithItsModel) {
  const auto report = Probe({"a", "b"}, ProbeOf("/nonexistent/model.gguf")).value();
  for (const pb::ProbedStage& stage : report.stages()) {
    EXPECT_EQ(stage.model_code(), static_cast<int>(absl::StatusCode::kNotFound));
    EXPECT_THAT(stage.model_error(), HasSubstr("/nonexistent/model.gguf"));
  }
}

TEST(RunProbe, RefusesAWorldWithAnotherNumberOfStages) {
  pb::ConfigureJob job = ProbeOf("");
  job.set_stages(3);
  const absl::StatusOr<pb::ProbeReport> report = Probe({"a"}, job);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("`stages` asks for 3"));
}

}  // namespace
}  // namespace stagecoach
