// How fast weights are streamed: a coordinator's side and real stages over MPI, from the assignments to the last stage
// that is ready. Prints VALID when every stage received what it was sent, then the bytes and the seconds; the link's
// own rate is stream_link.sh's to measure.
//
//   stream_bench --make FILE MIB                              writes a model of about so many MiB
//   mpirun -n <1 + stages> <flags of the launch line> stream_bench FILE

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/pipeline/stage_pipeline.h"
#include "coordinator/plan/job_plan.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"
#include "tests/testing/models/tiny_model.h"

namespace stagecoach {
namespace {

constexpr int64_t kLayers = 12, kHidden = 1024;

int Make(const std::string& path, int64_t mib) {
  testing::TinyModelOptions options;
  options.layers = kLayers;
  options.hidden = kHidden;
  const int64_t bytes_a_column = kLayers * 3 * kHidden * static_cast<int64_t>(sizeof(float));
  options.ffn = (mib << 20) / bytes_a_column / 32 * 32;
  std::printf("%s\n", testing::WriteTinyModel(path, options).c_str());
  return 0;
}

pb::ConfigureJob Job() {
  pb::ConfigureJob job;
  JobSettings settings;
  settings.context = 64;
  settings.threads = 1;
  settings.cpu_bind = CpuBind::kNone;
  settings.weights = WeightSource::kStream;
  settings.max_num_seqs = 1;
  settings.policy = Policy::kInterleaved;
  settings.max_num_batched_tokens = 64;
  settings.prefill_chunk = 64;
  settings.prefix_caching = false;
  SetJobSettings(settings, &job);
  return job;
}

// The waiting of the engine while its stages load.
absl::Status Load(StagePipeline* pipeline, WaitLadder* ladder) {
  uint64_t moved = 0;
  while (!pipeline->roster().AllReady()) {
    const auto polled = pipeline->Poll();
    if (!polled.ok()) return polled.status();
    if (pipeline->weights_moved() != moved) {
      moved = pipeline->weights_moved();
      ladder->Progressed();
    } else {
      ladder->Wait();
    }
  }
  return absl::OkStatus();
}

void ShutDown(StagePipeline* pipeline) {
  MicroBatch last;
  last.shutdown = true;
  CHECK(pipeline->Submit(last).ok());
  while (true) {
    const auto result = pipeline->Poll();
    if (!result.ok() || result->has_value()) return;
  }
}

int Coordinate(MpiWorld* world, const std::vector<pb::Hello>& hellos, const std::string& path) {
  const std::unique_ptr<Endpoint> endpoint = world->MakeEndpoint();
  const auto model = OpenModel(path);
  CHECK(model.ok());
  const std::vector<pb::Hello> stages(hellos.begin() + 1, hellos.end());
  const auto plan = PlanJob(Job(), stages, **model, {.run_id = 1, .epoch = 1});
  CHECK(plan.ok());
  WaitLadder ladder;
  const int64_t begin_us = MonotonicUs();
  auto weights = std::make_unique<WeightService>(*model, plan->stages, [&ladder] { ladder.Wake(); });
  const FrameLimits limits = LimitsOf(plan->stages[0], (*model)->hyper.hidden, (*model)->hyper.vocab);
  auto pipeline =
      StagePipeline::Start(endpoint.get(), plan->stages, stages, limits, 60000000, MonotonicUs, std::move(weights));
  CHECK(pipeline.ok());
  const absl::Status loaded = Load(pipeline->get(), &ladder);
  const int64_t ready_us = MonotonicUs();
  if (!loaded.ok()) {
    std::printf("INVALID: %s\n", std::string(loaded.message()).c_str());
    world->Abort(1);
  }
  uint64_t bytes = 0;
  for (int stage = 0; stage < (*pipeline)->stages(); ++stage) {
    bytes += (*pipeline)->roster().stage(stage).ready.streamed_bytes();
  }
  std::printf("VALID stages %d bytes %llu seconds %.3f\n", (*pipeline)->stages(),
              static_cast<unsigned long long>(bytes), (ready_us - begin_us) * 1e-6);
  std::fflush(stdout);
  ShutDown(pipeline->get());
  return 0;
}

int Main(int argc, char** argv) {
  SetLogName("stream_bench");
  if (argc == 4 && std::strcmp(argv[1], "--make") == 0) return Make(argv[2], std::atoll(argv[3]));
  if (argc != 2) {
    std::fprintf(stderr, "usage: stream_bench FILE (under mpirun), or stream_bench --make FILE MIB\n");
    return 2;
  }
  auto world = MpiWorld::Init(&argc, &argv);
  CHECK(world.ok());
  const bool coordinates = (*world)->rank() == kCoordinatorRank;
  const pb::Hello hello = coordinates ? MakeHello(pb::Hello::ROLE_COORDINATOR, {})
                                      : MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets());
  const auto gathered = (*world)->AllGather(hello.SerializeAsString(), absl::Seconds(60));
  CHECK(gathered.ok());
  const auto hellos = ParseHellos(*gathered);
  CHECK(hellos.ok() && hellos->size() > 1);
  if (coordinates) return Coordinate(world->get(), *hellos, argv[1]);
  const std::unique_ptr<Endpoint> endpoint = (*world)->MakeEndpoint();
  const absl::Status served = ServeStage(endpoint.get());
  if (!served.ok()) LogError(served.message());
  return served.ok() ? 0 : 1;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
