#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/job/emulated_link.h"
#include "common/job/job_limits.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "common/transport/emulated_endpoint.h"
#include "common/transport/link_meter.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "proto/probe.pb.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/exec/huge_pages.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/probe/layer_times.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach {
namespace {

constexpr size_t kHugeTrialBytes = size_t{64} << 20;

// What the host's setting says is a promise, this is what a stage gets.
void TryHugePagesHere(pb::ProbeHost* host) {
  host->set_huge_pages_denied(HugePagesDenied());
  const absl::StatusOr<HugeShare> tried = TryHugePages(kHugeTrialBytes);
  if (!tried.ok()) return;  // whether there is memory, others say
  host->set_huge_wanted_bytes(tried->resident_bytes);
  host->set_huge_bytes(tried->huge_bytes);
}

constexpr int64_t kProbeHeartbeatUs = 1000000;
constexpr size_t kMostErrorBytes = kMaxTelemetryFrameBytes / 4;

// Where an order computes, checked.
struct Place {
  const Kernels* kernels = nullptr;
  InstructionSet isa = InstructionSet::kScalar;
  int threads = 1;
  std::vector<int> cpus;
  bool contended = false;
};

absl::StatusOr<Place> PlaceOf(const pb::ProbeThreads& threads) {
  Place place;
  RETURN_IF_ERROR(CheckJobField(JobLimits::kThreads, threads.threads()));
  place.threads = threads.threads();
  place.cpus.assign(threads.cpus().begin(), threads.cpus().end());
  constexpr int kMostCpus = 1 << 20;
  const bool bad =
      std::any_of(place.cpus.begin(), place.cpus.end(), [](int cpu) { return cpu < 0 || cpu >= kMostCpus; });
  if (bad || place.cpus.size() > kMostCpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("told to compute on CPUs that cannot be: ", threads.ShortDebugString()));
  }
  place.contended = threads.contended();
  ASSIGN_OR_RETURN(place.isa, FromProto(threads.isa()));
  ASSIGN_OR_RETURN(place.kernels, SelectKernels(place.isa));
  return place;
}

absl::StatusOr<pb::ProbeAnswer> MeasureSpeed(const pb::ProbeSpeedOrder& order) {
  ASSIGN_OR_RETURN(const Place place, PlaceOf(order.threads()));
  RETURN_IF_ERROR(CheckJobField({"processes", JobLimits::kStages.range}, order.processes()));
  ASSIGN_OR_RETURN(const MachinePeaks peaks,
                   MeasurePeaks(*place.kernels, place.threads, {place.cpus, place.contended, order.processes()}));
  pb::ProbeAnswer answer;
  pb::ProbeSpeed* speed = answer.mutable_speed();
  speed->set_stages(1);
  speed->set_threads(peaks.threads);
  speed->set_read_gbps(peaks.read_gbps);
  speed->set_int8_gops(peaks.int8_gops);
  speed->set_bf16_gops(peaks.bf16_gops);
  speed->set_f32_gops(peaks.f32_gops);
  return answer;
}

// `stages`: of the job that measures, and in the end of the one that it is for.
absl::StatusOr<pb::ProbeAnswer> MeasureModel(const pb::ProbeModelOrder& order, int stages) {
  GgufOpenOptions options;
  ASSIGN_OR_RETURN(options.q2_layout, ParseQ2Layout(order.q2_layout()));
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> model, OpenModel(order.model_path(), options));
  pb::ProbeAnswer answer;
  *answer.mutable_model()->mutable_fingerprints() = ToProto(model->file->fingerprints());
  if (!order.timed()) return answer;
  ASSIGN_OR_RETURN(Place place, PlaceOf(order.threads()));
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(order.kv_type()));
  const int64_t layer = LayerToTime(model->hyper);
  uint64_t model_bytes = 0;
  for (const GgufTensor& tensor : model->file->tensors()) model_bytes += tensor.bytes;
  ASSIGN_OR_RETURN(const std::vector<LayerTime> times,
                   MeasureLayerTimes({.model = model,
                                      .layer = layer,
                                      .kv_type = kv_type,
                                      .threads = place.threads,
                                      .cpus = std::move(place.cpus),
                                      .contended = place.contended,
                                      .stage_bytes = model_bytes / static_cast<uint64_t>(stages),
                                      .isa = place.isa}));
  answer.mutable_model()->set_layer(layer);
  for (const LayerTime& time : times) {
    pb::ProbeStepTime* step = answer.mutable_model()->add_steps();
    step->set_rows(time.rows);
    step->set_sequences(time.sequences);
    step->set_context(time.context);
    step->set_threads(place.threads);
    step->set_layer_us(time.layer_us);
    step->set_head_us(time.head_us);
  }
  return answer;
}

// Carries out the coordinator's orders, each with an answer, until the last one. Measurements run on their own thread,
// so pings and heartbeats go on; a new order abandons a link measurement. Runs on the endpoint's thread.
class ProbeServer {
 public:
  explicit ProbeServer(Endpoint* endpoint) : endpoint_(endpoint), pool_(kMaxTelemetryFrameBytes, 0) {}
  ~ProbeServer() {
    if (worker_.joinable()) worker_.join();
  }

  absl::Status Run(const pb::ProbeOrder& first) {
    absl::Status status = Take(first);
    while (status.ok() && !ended_) status = Turn();
    if (status.ok()) return status;
    if (absl::Status sent = ReportFailure({}, stage_, status, &pool_, endpoint_); !sent.ok()) LogError(sent.message());
    return status;
  }

 private:
  using Work = std::function<absl::StatusOr<pb::ProbeAnswer>()>;

  // One round of the loop.
  absl::Status Turn() {
    ASSIGN_OR_RETURN(std::optional<ReceivedFrame> frame, endpoint_->Poll());
    bool progressed = frame.has_value();
    if (frame.has_value()) RETURN_IF_ERROR(Take(*frame));
    if (working_ && work_done_.load(std::memory_order_acquire)) {
      worker_.join();
      working_ = false;
      work_done_ = false;
      RETURN_IF_ERROR(AnswerOrError(std::exchange(result_, pb::ProbeAnswer())));
      progressed = true;
    }
    if (const int64_t now = MonotonicUs(); now >= next_heartbeat_us_ && begun_) {
      next_heartbeat_us_ = now + kProbeHeartbeatUs;
      pb::Heartbeat heartbeat;
      heartbeat.set_stage(stage_);
      RETURN_IF_ERROR(Send(heartbeat));
    }
    if (progressed) {
      ladder_.Progressed();
    } else {
      ladder_.Wait();
    }
    return absl::OkStatus();
  }

  absl::Status Take(const ReceivedFrame& frame) {
    if (frame.channel() == Channel::kStep) return AnswerPing(endpoint_, frame);
    if (frame.channel() == Channel::kResult) return TakePingAnswer(frame);
    ASSIGN_OR_RETURN(const ControlBody body, DecodeControl({}, frame.bytes()));
    if (const auto* order = std::get_if<pb::ProbeOrder>(&body)) return Take(*order);
    return absl::InternalError("the coordinator's frame in a probe is no order");
  }

  absl::Status Take(const pb::ProbeOrder& order) {
    if (working_ || ended_)
      return absl::InternalError("the coordinator gives an order before the last one is answered");
    if (begun_ == order.has_begin())
      return absl::InternalError("the coordinator's first order must say who this stage is");
    order_ = order.number();
    meter_.reset();
    switch (order.order_case()) {
      case pb::ProbeOrder::kBegin: return Begin(order.begin());
      case pb::ProbeOrder::kSpeed: return Start([speed = order.speed()] { return MeasureSpeed(speed); });
      case pb::ProbeOrder::kModel:
        return Start([model = order.model(), stages = endpoint_->size() - 1] { return MeasureModel(model, stages); });
      case pb::ProbeOrder::kLink:
        if (next_rank_ == kCoordinatorRank) return absl::InternalError("the last stage has no stage behind it to ping");
        meter_ = std::make_unique<LinkMeter>(endpoint_, next_rank_, order_);
        return meter_->Begin();
      case pb::ProbeOrder::kEnd: ended_ = true; return absl::OkStatus();
      default: return absl::InternalError("the coordinator gives an order that this version does not know");
    }
  }

  absl::Status Begin(const pb::ProbeBegin& begin) {
    const int self = endpoint_->rank(), ranks = endpoint_->size();
    const auto is_neighbour = [&](int rank) { return rank >= 0 && rank < ranks && rank != self; };
    if (begin.stage() < 0 || begin.stage() >= ranks - 1 || !is_neighbour(begin.previous_rank()) ||
        !is_neighbour(begin.next_rank())) {
      return absl::InvalidArgumentError(absl::StrCat("told to be stage ", begin.stage(), " between ranks ",
                                                     begin.previous_rank(), " and ", begin.next_rank(),
                                                     ", but this is rank ", self, " of ", ranks));
    }
    begun_ = true;
    stage_ = begin.stage();
    next_rank_ = begin.next_rank();
    RETURN_IF_ERROR(OpenPings(endpoint_, kCoordinatorRank));
    if (begin.previous_rank() != kCoordinatorRank) RETURN_IF_ERROR(OpenPings(endpoint_, begin.previous_rank()));
    if (next_rank_ != kCoordinatorRank) RETURN_IF_ERROR(OpenPingAnswers(endpoint_, next_rank_));
    pb::ProbeAnswer answer;
    *answer.mutable_host() = DescribeHost();
    TryHugePagesHere(answer.mutable_host());
    return Answer(std::move(answer));
  }

  absl::Status Start(Work work) {
    working_ = true;
    worker_ = std::thread([this, work = std::move(work)] {
      try {
        result_ = work();
      } catch (const std::bad_alloc&) {
        result_ = absl::ResourceExhaustedError("not enough memory to measure one layer and the head of the model");
      } catch (const std::system_error& error) {
        result_ = absl::ResourceExhaustedError(
            absl::StrCat("cannot start the compute threads: ", error.what(), "; lower `threads`"));
      }
      work_done_.store(true, std::memory_order_release);
      ladder_.Wake();
    });
    return absl::OkStatus();
  }

  absl::Status TakePingAnswer(const ReceivedFrame& frame) {
    if (meter_ == nullptr) return absl::OkStatus();  // late: the measurement was given up
    RETURN_IF_ERROR(meter_->Take(frame));
    if (!meter_->done()) return absl::OkStatus();
    pb::ProbeAnswer answer;
    pb::ProbeLink* link = answer.mutable_link();
    link->set_from_stage(stage_);
    link->set_to_stage(stage_ + 1);
    link->set_latency_us(meter_->latency_us());
    link->set_bytes_per_s(meter_->bytes_per_s());
    link->set_clock_offset_us(meter_->clock().offset_us());
    link->set_clock_error_us(meter_->clock().error_us());
    meter_.reset();
    return Answer(std::move(answer));
  }

  absl::Status AnswerOrError(absl::StatusOr<pb::ProbeAnswer> result) {
    if (result.ok()) return Answer(*std::move(result));
    pb::ProbeAnswer answer;
    answer.set_code(static_cast<int>(result.status().code()));
    answer.set_error(std::string(result.status().message().substr(0, kMostErrorBytes)));
    return Answer(std::move(answer));
  }

  absl::Status Answer(pb::ProbeAnswer answer) {
    answer.set_stage(stage_);
    answer.set_number(order_);
    return Send(answer);
  }

  absl::Status Send(const ControlBody& body) {
    std::shared_ptr<FrameBuffer> buffer = pool_.Acquire();
    RETURN_IF_ERROR(EncodeControl({}, body, buffer.get()));
    return endpoint_->Send(Channel::kTelemetry, kCoordinatorRank, std::move(buffer));
  }

  Endpoint* const endpoint_;
  FramePool pool_;
  WaitLadder ladder_;  // waits on the endpoint's thread, woken by the worker

  // The endpoint's thread.
  bool begun_ = false, ended_ = false;
  int stage_ = 0;
  int next_rank_ = 0;
  uint32_t order_ = 0;  // the latest
  std::unique_ptr<LinkMeter> meter_;
  int64_t next_heartbeat_us_ = 0;
  bool working_ = false;

  // Written by the worker before work_done_, read after it was joined.
  absl::StatusOr<pb::ProbeAnswer> result_ = pb::ProbeAnswer();
  std::atomic<bool> work_done_{false};
  std::thread worker_;
};

// The coordinator first waits for its front, so this wait has no deadline: the coordinator's end ends the whole job.
absl::StatusOr<ControlBody> AwaitFirstWord(Endpoint* endpoint) {
  RETURN_IF_ERROR(endpoint->OpenReceive(Channel::kSetup, kCoordinatorRank, kMaxSetupFrameBytes, 1));
  WaitLadder ladder;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<ReceivedFrame> frame, endpoint->Poll());
    if (!frame.has_value()) {
      ladder.Wait();
      continue;
    }
    return DecodeControl({}, frame->bytes());
  }
}

}  // namespace

absl::Status ServeStage(Endpoint* endpoint) {
  ASSIGN_OR_RETURN(const ControlBody first, AwaitFirstWord(endpoint));
  if (const auto* assignment = std::get_if<pb::StageAssignment>(&first)) {
    if (!assignment->has_emulated_link()) return StageLoop(endpoint, *assignment).Run();
    const EmulatedLink link = FromProto(assignment->emulated_link());
    RETURN_IF_ERROR(CheckEmulatedLink(link));
    EmulatedEndpoint emulated(endpoint, link);
    return StageLoop(&emulated, *assignment).Run();
  }
  if (const auto* order = std::get_if<pb::ProbeOrder>(&first)) return ProbeServer(endpoint).Run(*order);
  return absl::InternalError("the coordinator's first frame is neither a stage assignment nor the order of a probe");
}

}  // namespace stagecoach
