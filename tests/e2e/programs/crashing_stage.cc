// A stage that is a real one in all but this: it aborts when a micro-batch brings it the request with this seed.
//
// It stands for a request that crashes the computation each time. Found on the way in, before the stage reads the
// frame. With an argument it is instead killed while it loads: when the third part of its streamed weights comes.

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/wire/handshake.h"
#include "proto/frame.pb.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/serve_stage.h"

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

int Main(int argc, char** argv) {
  SetLogName("crashing_stage");
  const bool while_loading = argc > 1;
  absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Init(&argc, &argv);
  CHECK(world.ok());
  const std::string hello = MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets()).SerializeAsString();
  CHECK((*world)->AllGather(hello, absl::Seconds(60)).ok());
  CrashingEndpoint endpoint((*world)->MakeEndpoint(), while_loading);
  const absl::Status status = ServeStage(&endpoint);
  if (status.ok()) return 0;
  std::this_thread::sleep_for(std::chrono::seconds(5));  // the coordinator ends the job
  LogError(status.message());
  (*world)->Abort(70);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
