#include "stage_worker/stage_loop.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/host_info.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr int kCoordinator = 0;
constexpr int64_t kHeartbeatUs = 1000000;

// What the system does not give is this rank's own, final error; it must not end the process unheard.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "not enough memory for weights, scratch and frames; lower `max_num_batched_tokens`, `max_num_seqs` "
        "or `micro_batches`");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the compute threads: ", error.what(), "; lower `threads`"));
  }
}

// A frame that fails its checks was damaged on the way or is out of step: nothing this rank could repair, but a new job
// can.
absl::Status BadFrame(const absl::Status& status) {
  return absl::DataLossError(absl::StrCat("received a bad frame: ", status.message()));
}

absl::Status CheckFingerprints(const GgufFile& file, const pb::StageAssignment& assignment) {
  const std::vector<FileFingerprint>& found = file.fingerprints();
  bool same = static_cast<int>(found.size()) == assignment.fingerprints_size();
  for (size_t i = 0; same && i < found.size(); ++i) {
    const pb::FileFingerprint& expected = assignment.fingerprints(static_cast<int>(i));
    same = found[i].size_bytes == expected.size_bytes() && found[i].modified_ns == expected.modified_ns() &&
           found[i].header_hash == expected.header_hash();
  }
  if (same) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "model file '", file.path(), "' is not the one the coordinator opened (", found.front().size_bytes,
      " bytes here, ", assignment.fingerprints_size() > 0 ? assignment.fingerprints(0).size_bytes() : 0,
      " bytes there; modification time and header are compared too); put the same file at this path on every host"));
}

// The coordinator has read this file and found it good, so whatever is wrong with it here is wrong with this host's
// copy.
absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenSameModel(const pb::StageAssignment& assignment) {
  GgufOpenOptions options;
  ASSIGN_OR_RETURN(options.q2_layout, ParseQ2Layout(assignment.q2_layout()));
  absl::StatusOr<std::shared_ptr<const ModelDescription>> model = OpenModel(assignment.model_path(), options);
  if (absl::IsInvalidArgument(model.status()) || absl::IsUnavailable(model.status())) {
    return absl::DataLossError(model.status().message());
  }
  if (model.ok()) RETURN_IF_ERROR(CheckFingerprints(*(*model)->file, assignment));
  return model;
}

// An assignment that this rank cannot be in comes from another program than ours.
absl::Status CheckAssignment(const pb::StageAssignment& a, int rank, int ranks) {
  const bool first = a.stage() == 0, last = a.stage() + 1 == a.stages();
  if (a.stage() + 1 != rank || a.stages() + 1 != ranks || a.owns_embedding() != first || a.owns_head() != last) {
    return absl::InvalidArgumentError(absl::StrCat("assigned to be stage ", a.stage(), " of ", a.stages(),
                                                   ", but this is rank ", rank, " of ", ranks,
                                                   "; do coordinator and stage_worker have one version?"));
  }
  constexpr int64_t kMostOpenTokens = int64_t{1} << 31;
  constexpr int32_t kMostCpus = 1 << 20;
  const bool bad_cpu =
      std::any_of(a.cpus().begin(), a.cpus().end(), [](int32_t cpu) { return cpu < 0 || cpu >= kMostCpus; });
  if (a.in_flight() < 1 || a.in_flight() > 256 || a.context() < 1 || a.max_open_tokens() < a.context() ||
      a.max_open_tokens() > kMostOpenTokens || a.block_tokens() < 1 || a.blocks() < 1 || a.max_rows() < 1 ||
      a.max_slices() < 1 || bad_cpu || a.cpus_size() > kMostCpus) {
    return absl::InvalidArgumentError(absl::StrCat("assigned limits out of range: ", a.ShortDebugString()));
  }
  return ParseWireType(a.wire_type()).status();
}

absl::StatusOr<StageConfig> ConfigOf(const pb::StageAssignment& assignment) {
  StageConfig config;
  config.first_layer = assignment.first_layer();
  config.last_layer = assignment.last_layer();
  config.owns_embedding = assignment.owns_embedding();
  config.owns_head = assignment.owns_head();
  config.block_tokens = assignment.block_tokens();
  config.blocks = assignment.blocks();
  ASSIGN_OR_RETURN(config.kv_type, ParseKvType(assignment.kv_type()));
  config.threads = assignment.threads();
  config.cpus.assign(assignment.cpus().begin(), assignment.cpus().end());
  config.context = assignment.context();
  config.max_rows = assignment.max_rows();
  config.max_slices = assignment.max_slices();
  config.isa = assignment.isa();
  return config;
}

}  // namespace

StageLoop::StageLoop(Endpoint* endpoint, const pb::StageAssignment& assignment)
    : endpoint_(endpoint),
      rank_(endpoint->rank()),
      ranks_(endpoint->size()),
      assignment_(assignment),
      is_last_(assignment.stage() + 1 == assignment.stages()),
      name_(StageName(assignment.stage(), HostName())),
      control_pool_(kMaxTelemetryFrameBytes, 0) {}

StageLoop::~StageLoop() = default;

absl::Status StageLoop::Run() {
  std::thread computing([this] {
    compute_status_ = Guarded([this] { return LoadModel(); });
    if (compute_status_.ok()) {
      loaded_ = true;
      compute_status_ = Guarded([this] { return ComputeFrames(); });
    }
    outgoing_.End();
    ladder_.Wake();
  });
  const absl::Status communicated = Guarded([this] { return Communicate(); });
  incoming_.End();
  computing.join();
  const absl::Status failure = compute_status_.ok() ? communicated : compute_status_;
  if (failure.ok()) return failure;
  if (absl::Status reported = Report(failure); !reported.ok()) LogError(reported.message());
  return failure;
}

// --- computing thread ------------------------------------------------------------------------------------------------

absl::Status StageLoop::LoadModel() {
  RETURN_IF_ERROR(CheckAssignment(assignment_, rank_, ranks_));
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> description, OpenSameModel(assignment_));
  ASSIGN_OR_RETURN(const StageConfig config, ConfigOf(assignment_));
  ASSIGN_OR_RETURN(model_, StageModel::Load(description, config, &counters_));
  tensor_bytes_read_ = description->file->bytes_read();
  limits_ = LimitsOf(assignment_, description->hyper.hidden, description->hyper.vocab);
  MakeBuffers(description->hyper.hidden);
  return absl::OkStatus();
}

void StageLoop::MakeBuffers(int64_t hidden) {
  pool_ = is_last_ ? std::make_unique<FramePool>(limits_.MaxResultFrameBytes(), 0)
                   : std::make_unique<FramePool>(limits_.MaxStepHeaderBytes(), limits_.MaxStepPayloadBytes());
  if (is_last_ || limits_.wire_type != WireType::kF32) {
    wide_hidden_ = AlignedBuffer(static_cast<size_t>(assignment_.max_rows()) * hidden * sizeof(float));
  }
}

absl::Status StageLoop::ComputeFrames() {
  while (true) {
    const int64_t begin_us = MonotonicUs();
    std::optional<Incoming> incoming = incoming_.Take();
    wait_us_ += MonotonicUs() - begin_us;
    if (!incoming.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool more, ComputeOne(*std::move(incoming)));
    if (!more) return absl::OkStatus();
  }
}

absl::StatusOr<bool> StageLoop::ComputeOne(Incoming incoming) {
  StageTimes times{.stage = assignment_.stage(), .received_us = incoming.received_us, .start_us = TraceUs()};
  absl::StatusOr<StepFrame> decoded =
      DecodeStep(limits_, incoming.frame.bytes(), next_number_, /*expect_hidden=*/assignment_.stage() > 0);
  if (!decoded.ok()) return BadFrame(decoded.status());
  StepFrame step = *std::move(decoded);
  if (step.times.size() != static_cast<size_t>(assignment_.stage())) {
    return BadFrame(absl::InvalidArgumentError(
        absl::StrCat("it has the times of ", step.times.size(), " stages, expected ", assignment_.stage())));
  }
  ++next_number_;
  const bool shutdown = step.batch.shutdown;
  if (absl::Status taken = model_->Begin(step.batch); !taken.ok()) return BadFrame(taken);

  std::shared_ptr<FrameBuffer> buffer = pool_->Acquire();
  float* hidden = wide_hidden_.size() > 0 ? wide_hidden_.as<float>() : reinterpret_cast<float*>(buffer->payload());
  if (step.batch.rows() > 0) {
    if (step.has_hidden)
      DecodeHidden(limits_.wire_type, step.hidden.data(), step.batch.rows() * limits_.hidden, hidden);
    model_->Forward(step.batch, hidden);
    if (assignment_.stage_delay_us() > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(assignment_.stage_delay_us()));
  }
  times.send_us = last_send_us_.load(std::memory_order_relaxed);
  step.times.push_back(times);
  RETURN_IF_ERROR(HandOver(std::move(step), std::move(buffer), hidden));
  ++steps_done_;
  return !shutdown;
}

// Result or next hop; the time the head and the codec take belongs to this stage's computation.
absl::Status StageLoop::HandOver(StepFrame step, std::shared_ptr<FrameBuffer> buffer, const float* hidden) {
  const auto finish_times = [&](StageTimes& times) {
    times.end_us = TraceUs();
    compute_us_ += times.end_us - times.start_us;
  };
  if (is_last_) {
    result_.number = step.batch.number;
    result_.sampled.clear();
    result_.targets.clear();
    if (step.batch.rows() > 0) model_->Finish(step.batch, hidden, &result_);
    result_.times = std::move(step.times);
    finish_times(result_.times.back());
    RETURN_IF_ERROR(EncodeResult(limits_, result_, buffer.get()));
    outgoing_.Push({Channel::kResult, kCoordinator, std::move(buffer)});
    ladder_.Wake();
    return absl::OkStatus();
  }
  const size_t elements = static_cast<size_t>(step.batch.rows()) * limits_.hidden;
  if (wide_hidden_.size() > 0) EncodeHidden(limits_.wire_type, hidden, elements, buffer->payload());
  for (SequenceSlice& slice : step.batch.slices) slice.tokens.clear();
  step.has_hidden = true;
  step.hidden = {};
  finish_times(step.times.back());
  RETURN_IF_ERROR(EncodeStep(limits_, step, buffer.get()));
  outgoing_.Push({Channel::kStep, rank_ + 1, std::move(buffer)});
  ladder_.Wake();
  return absl::OkStatus();
}

// --- communication thread --------------------------------------------------------------------------------------------

absl::Status StageLoop::Communicate() {
  while (!outgoing_.Exhausted() || endpoint_->SendsPending()) {
    ASSIGN_OR_RETURN(const bool progressed, CommunicateOnce());
    if (progressed) {
      ladder_.Progressed();
    } else {
      ladder_.Wait();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StageLoop::CommunicateOnce() {
  bool progressed = false;
  if (loaded_ && !announced_) {
    RETURN_IF_ERROR(AnnounceReady());
    announced_ = true;
  }
  while (std::optional<Outgoing> out = outgoing_.TryTake()) {
    RETURN_IF_ERROR(endpoint_->Send(out->channel, out->destination, std::move(out->buffer)));
    progressed = true;
  }
  ASSIGN_OR_RETURN(std::optional<ReceivedFrame> frame, endpoint_->Poll());
  if (frame.has_value()) {
    progressed = true;
    // A frame on the set-up channel once a job runs only wakes this thread up: work is on its way.
    if (frame->channel() == Channel::kStep) incoming_.Push({*std::move(frame), TraceUs()});
  }
  last_send_us_.store(static_cast<int64_t>(endpoint_->counters().last_send_us), std::memory_order_relaxed);
  if (const int64_t now = MonotonicUs(); now >= next_heartbeat_us_) {
    next_heartbeat_us_ = now + kHeartbeatUs;
    RETURN_IF_ERROR(SendToCoordinator(MakeHeartbeat()));
  }
  return progressed;
}

absl::Status StageLoop::AnnounceReady() {
  // One more receive than the window, so that a frame never waits for its buffer.
  RETURN_IF_ERROR(
      endpoint_->OpenReceive(Channel::kStep, rank_ - 1, limits_.MaxStepFrameBytes(), assignment_.in_flight() + 1));
  const size_t frames = assignment_.in_flight() + 1;
  const size_t frame_bytes = is_last_ ? limits_.MaxResultFrameBytes() : limits_.MaxStepFrameBytes();
  pb::StageReady ready;
  ready.set_stage(assignment_.stage());
  ready.set_weight_bytes(model_->weight_bytes());
  ready.set_kv_bytes(model_->kv_bytes());
  ready.set_scratch_bytes(model_->scratch_bytes() + wide_hidden_.size() +
                          frames * (frame_bytes + limits_.MaxStepFrameBytes()));
  ready.set_tensor_bytes_read(tensor_bytes_read_);
  ready.set_resident_bytes(ResidentBytes());
  return SendToCoordinator(ready);
}

absl::Status StageLoop::SendToCoordinator(const ControlBody& body) {
  std::shared_ptr<FrameBuffer> buffer = control_pool_.Acquire();
  RETURN_IF_ERROR(EncodeControl(assignment_.run_id(), body, buffer.get()));
  return endpoint_->Send(Channel::kTelemetry, kCoordinator, std::move(buffer));
}

pb::Heartbeat StageLoop::MakeHeartbeat() const {
  pb::Heartbeat heartbeat;
  heartbeat.set_stage(assignment_.stage());
  heartbeat.set_bytes_to_load(counters_.bytes_to_load);
  heartbeat.set_bytes_loaded(counters_.bytes_loaded);
  heartbeat.set_layers_done(counters_.layers_done);
  heartbeat.set_steps_done(steps_done_);
  heartbeat.set_resident_bytes(ResidentBytes());
  heartbeat.set_compute_us(compute_us_);
  heartbeat.set_send_us(endpoint_->counters().send_us);
  heartbeat.set_wait_us(wait_us_);
  return heartbeat;
}

absl::Status StageLoop::Report(const absl::Status& failure) {
  constexpr int64_t kDeadlineUs = 2000000;
  pb::StageFailure report;
  report.set_stage(assignment_.stage());
  report.set_code(static_cast<int>(failure.code()));
  report.set_message(absl::StrCat(name_, ": ", failure.message().substr(0, kMaxTelemetryFrameBytes / 4)));
  RETURN_IF_ERROR(SendToCoordinator(report));
  const int64_t deadline = MonotonicUs() + kDeadlineUs;
  WaitLadder ladder;
  while (endpoint_->SendsPending() && MonotonicUs() < deadline) {
    RETURN_IF_ERROR(endpoint_->Poll().status());
    ladder.Wait();
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
