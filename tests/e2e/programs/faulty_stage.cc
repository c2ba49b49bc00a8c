// A stage that is a real one in all but one fault.
//
//   faulty_stage               aborts when a micro-batch brings it the request with the seed 57005: for a request that
//                              crashes the computation each time. It is found on the way in, before the stage reads
//                              the frame.
//   faulty_stage while-loading is killed when the third part of its streamed weights comes
//   faulty_stage RANK MODEL    where it is this rank, reads the model from this path: for a host whose copy has a bit
//                              that nobody noticed, none that the samples of the fingerprint look at

#include <signal.h>

#include <chrono>
#include <cstdlib>
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
#include "proto/frame.pb.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach {
namespace {

constexpr uint64_t kCrashSeed = 57005;

bool Crashes(const ReceivedFrame& received) {
  pb::Frame frame;
  pb::FrameHeader header;
  if (received.channel() != Channel::kStep) return false;
  CHECK(frame.ParseFromArray(received.bytes().data(), static_cast<int>(received.bytes().size())));
  CHECK(header.ParseFromString(frame.header()));
  for (const pb::OpenSequence& open : header.step().open()) {
    if (open.sampling().seed() == kCrashSeed) return true;
  }
  return false;
}

class CrashingEndpoint : public Endpoint {
 public:
  CrashingEndpoint(std::unique_ptr<Endpoint> endpoint, bool while_loading)
      : endpoint_(std::move(endpoint)), while_loading_(while_loading) {}
  int rank() const override { return endpoint_->rank(); }
  int size() const override { return endpoint_->size(); }
  absl::Status OpenReceive(Channel channel, int source, size_t max_bytes, int depth) override {
    return endpoint_->OpenReceive(channel, source, max_bytes, depth);
  }
  absl::Status Send(Channel channel, int destination, std::shared_ptr<const FrameBuffer> buffer) override {
    return endpoint_->Send(channel, destination, std::move(buffer));
  }
  absl::StatusOr<std::optional<ReceivedFrame>> Poll() override {
    absl::StatusOr<std::optional<ReceivedFrame>> received = endpoint_->Poll();
    if (!received.ok() || !received->has_value()) return received;
    if (!while_loading_ && Crashes(**received)) std::abort();
    if (while_loading_ && (*received)->channel() == Channel::kWeights && ++parts_ == 3) raise(SIGKILL);
    return received;
  }
  bool SendsPending() const override { return endpoint_->SendsPending(); }
  EndpointCounters counters() const override { return endpoint_->counters(); }

 private:
  const std::unique_ptr<Endpoint> endpoint_;
  const bool while_loading_;
  int parts_ = 0;
};

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

absl::Status ServeDamaged(Endpoint* endpoint, const char* rank, const std::string& model) {
  int damaged_rank = 0;
  CHECK(absl::SimpleAtoi(rank, &damaged_rank));
  pb::StageAssignment assignment = AwaitAssignment(endpoint);
  if (endpoint->rank() == damaged_rank) assignment.set_model_path(model);
  return StageLoop(endpoint, assignment).Run();
}

int Main(int argc, char** argv) {
  SetLogName("faulty_stage");
  absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Init(&argc, &argv);
  CHECK(world.ok());
  const std::string hello = MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets()).SerializeAsString();
  CHECK((*world)->AllGather(hello, absl::Seconds(60)).ok());
  CrashingEndpoint endpoint((*world)->MakeEndpoint(), /*while_loading=*/argc == 2);
  const absl::Status status = argc == 3 ? ServeDamaged(&endpoint, argv[1], argv[2]) : ServeStage(&endpoint);
  if (status.ok()) return 0;
  std::this_thread::sleep_for(std::chrono::seconds(5));  // the coordinator ends the job
  LogError(status.message());
  (*world)->Abort(70);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
