// A whole probe between real ranks: rank 0 coordinates, with the front on a thread, the others are stages.

#include <sys/socket.h>

#include <cstdio>
#include <thread>

#include "common/transport/mpi/mpi_endpoint.h"
#include "common/wire/handshake.h"
#include "coordinator/job/run_engine.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"
#include "tests/testing/cluster/loopback_cluster.h"

namespace stagecoach {
namespace {

MpiWorld* world = nullptr;

std::vector<pb::Hello> GatherHellos() {
  const bool first = world->rank() == 0;
  const pb::Hello mine =
      first ? MakeHello(pb::Hello::ROLE_COORDINATOR, {}) : MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets());
  return ParseHellos(world->AllGather(mine.SerializeAsString(), absl::Seconds(60)).value()).value();
}

TEST(ProbeExchange, MeasuresEveryHostLinkAndStep) {
  const std::vector<pb::Hello> hellos = GatherHellos();
  const std::unique_ptr<Endpoint> endpoint = world->MakeEndpoint();
  if (world->rank() != 0) {
    const absl::Status served = ServeStage(endpoint.get());
    EXPECT_TRUE(served.ok()) << served;
    return;
  }
  pb::ConfigureJob job = testing::DefaultJob("dummy://tiny/q8_0");
  job.mutable_probe()->set_speeds(true);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  absl::StatusOr<pb::ProbeReport> report = absl::UnknownError("none");
  std::thread front([&] { report = testing::RunProbeFront(pair[0], job); });
  {
    EngineChannel channel(pair[1]);
    const absl::Status ran = RunEngine(endpoint.get(), hellos, &channel);
    EXPECT_TRUE(ran.ok()) << ran;
    if (!ran.ok()) world->Abort(3);  // the stages would wait for ever
  }
  front.join();
  ASSERT_TRUE(report.ok()) << report.status();
  const int stages = world->size() - 1;
  EXPECT_EQ(report->stages_size(), stages);
  EXPECT_EQ(report->links_size(), 2 * stages - 1);
  for (const pb::ProbeLink& link : report->links()) {
    EXPECT_EQ(link.error(), "");
    EXPECT_GT(link.latency_us(), 0);
    EXPECT_GT(link.bytes_per_s(), 0);
  }
  ASSERT_EQ(report->hosts_size(), 1);
  EXPECT_EQ(report->hosts(0).speeds().rbegin()->stages(), stages);
  for (const pb::ProbeSpeed& speed : report->hosts(0).speeds()) {
    EXPECT_GT(speed.read_gbps(), 0);
    EXPECT_GT(speed.int8_gops(), 0);
    EXPECT_GT(speed.f32_gops(), 0);
  }
  // The first stage of the host alone timed the layer, with its own threads and with all cores where these are more.
  const bool more_cores = hellos[1].allowed_cores() > report->stages(0).threads();
  for (const pb::ProbedStage& stage : report->stages()) {
    EXPECT_EQ(stage.model().steps_size(), stage.stage() > 0 ? 0 : more_cores ? 24 : 12);
    for (const pb::ProbeStepTime& step : stage.model().steps()) {
      EXPECT_GT(step.layer_us(), 0);
      EXPECT_EQ(step.head_us() > 0, step.rows() == step.sequences());
    }
  }
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto made = stagecoach::MpiWorld::Init(&argc, &argv);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    return 2;
  }
  stagecoach::world = made->get();
  return RUN_ALL_TESTS();
}
