// A stage that is a real one in all but this: where it is the rank that its first argument names, it reads the model
// from the path that its second argument names.
//
// It stands for a host whose copy of the model has a bit that nobody noticed: not one that the samples of the
// fingerprint look at.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach {
namespace {

pb::StageAssignment AwaitAssignment(Endpoint* endpoint) {
  CHECK(endpoint->OpenReceive(Channel::kSetup, kCoordinatorRank, kMaxSetupFrameBytes, 1).ok());
  WaitLadder ladder;
  while (true) {
    absl::StatusOr<std::optional<ReceivedFrame>> frame = endpoint->Poll();
    CHECK(frame.ok());
    if (frame->has_value()) return std::get<pb::StageAssignment>(*DecodeControl({}, (*frame)->bytes()));
    ladder.Wait();
  }
}

int Main(int argc, char** argv) {
  SetLogName("damaged_stage");
  CHECK_EQ(argc, 3);
  int damaged_rank = 0;
  CHECK(absl::SimpleAtoi(argv[1], &damaged_rank));
  const std::string damaged_model = argv[2];
  absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Init(&argc, &argv);
  CHECK(world.ok());
  const std::string hello = MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets()).SerializeAsString();
  CHECK((*world)->AllGather(hello, absl::Seconds(60)).ok());
  const std::unique_ptr<Endpoint> endpoint = (*world)->MakeEndpoint();
  pb::StageAssignment assignment = AwaitAssignment(endpoint.get());
  if (endpoint->rank() == damaged_rank) assignment.set_model_path(damaged_model);
  const absl::Status status = StageLoop(endpoint.get(), assignment).Run();
  if (status.ok()) return 0;
  std::this_thread::sleep_for(std::chrono::seconds(5));  // the coordinator ends the job
  LogError(status.message());
  (*world)->Abort(70);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
