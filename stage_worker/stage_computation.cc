#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/job/job_limits.h"
#include "common/step/sampling.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "stage_worker/exec/huge_pages.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach {
namespace {

absl::Status CheckFingerprints(const GgufFile& file, const pb::StageAssignment& assignment) {
  const std::vector<FileFingerprint>& found = file.fingerprints();
  const std::vector<FileFingerprint> expected = FromProto(assignment.fingerprints());
  if (SameContent(found, expected)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("model file '", file.path(), "' is not the one the coordinator opened (", found.front().size_bytes,
                   " bytes here, ", assignment.fingerprints_size() > 0 ? assignment.fingerprints(0).size_bytes() : 0,
                   " bytes there; header and samples of the data are compared too); put the same file there"));
}

// The coordinator has read this file successfully, so any error here means that this host's copy is bad.
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

// An impossible assignment comes from another version of the program.
absl::Status CheckPlace(const pb::StageAssignment& a, int rank, int ranks) {
  const bool first = a.stage() == 0, last = a.stage() + 1 == a.stages();
  const auto can_be_beside = [&](int32_t other, bool outside) {
    return outside ? other == kCoordinatorRank
                   : other >= 0 && other < ranks && other != rank && other != kCoordinatorRank;
  };
  if (a.rank() == rank && a.stage() >= 0 && a.stage() < a.stages() && a.stages() < ranks &&
      can_be_beside(a.previous_rank(), first) && can_be_beside(a.next_rank(), last) && a.owns_embedding() == first &&
      a.owns_head() == last && a.run_id() != 0 && a.epoch() != 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("assigned to be stage ", a.stage(), " of ", a.stages(), " and rank ",
                                                 a.rank(), " between ranks ", a.previous_rank(), " and ", a.next_rank(),
                                                 ", but this is rank ", rank, " of ", ranks,
                                                 "; do coordinator and stage_worker have one version?"));
}

absl::Status CheckAssignment(const pb::StageAssignment& a, int rank, int ranks) {
  RETURN_IF_ERROR(CheckPlace(a, rank, ranks));
  // Rows, slices, threads and context are the model's to check.
  RETURN_IF_ERROR(CheckJobField({"in_flight", JobLimits::kMicroBatches.range}, a.in_flight()));
  RETURN_IF_ERROR(CheckJobField({"max_prompt_logprobs", kPromptLogprobsRange}, a.max_prompt_logprobs()));
  const int64_t most_guesses = std::min<int64_t>(JobLimits::kMostGuesses.range.max, a.in_flight() - 1);
  RETURN_IF_ERROR(CheckJobField({JobLimits::kMostGuesses.name, {0, most_guesses}}, a.most_guesses()));
  if (a.cuts_history() && a.stages() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("assigned to be one of the ", a.stages(),
                                                   " stages of a draft, expected the only one; do coordinator and "
                                                   "stage_worker have one version?"));
  }
  RETURN_IF_ERROR(CheckBlockTokens(a.block_tokens()));
  for (const int32_t blocks : a.group_blocks()) RETURN_IF_ERROR(CheckJobField(JobLimits::kGroupBlocks, blocks));
  for (const int64_t window : a.group_windows()) RETURN_IF_ERROR(CheckJobField(JobLimits::kGroupWindows, window));
  RETURN_IF_ERROR(
      CheckJobField({"max_open_tokens", {a.context(), JobLimits::kMaxOpenTokens.range.max}}, a.max_open_tokens()));
  constexpr int32_t kMostCpus = 1 << 20;
  const bool bad_cpu =
      std::any_of(a.cpus().begin(), a.cpus().end(), [](int32_t cpu) { return cpu < 0 || cpu >= kMostCpus; });
  if (bad_cpu || a.cpus_size() > kMostCpus) {
    return absl::InvalidArgumentError(absl::StrCat("assigned CPUs out of range: ", a.ShortDebugString()));
  }
  return FromProto(a.wire_type()).status();
}

absl::StatusOr<StageConfig> ConfigOf(const pb::StageAssignment& assignment) {
  StageConfig config;
  config.first_layer = assignment.first_layer();
  config.last_layer = assignment.last_layer();
  config.owns_embedding = assignment.owns_embedding();
  config.owns_head = assignment.owns_head();
  config.block_tokens = assignment.block_tokens();
  config.group_blocks.assign(assignment.group_blocks().begin(), assignment.group_blocks().end());
  config.group_windows.assign(assignment.group_windows().begin(), assignment.group_windows().end());
  config.state_slots = assignment.state_slots();
  config.most_guesses = assignment.most_guesses();
  config.cuts_history = assignment.cuts_history();
  ASSIGN_OR_RETURN(config.kv_type, FromProto(assignment.kv_type()));
  config.threads = assignment.threads();
  config.cpus.assign(assignment.cpus().begin(), assignment.cpus().end());
  config.contended = assignment.contended();
  config.context = assignment.context();
  config.max_rows = assignment.max_rows();
  config.max_slices = assignment.max_slices();
  ASSIGN_OR_RETURN(config.isa, FromProto(assignment.isa()));
  config.layer_checksums = assignment.checksum_layers() > 0;
  config.allow_damaged = assignment.allow_damaged();
  return config;
}

}  // namespace

StageComputation::StageComputation(const pb::StageAssignment& assignment, int rank, int ranks, WeightStream* stream)
    : rank_(rank),
      ranks_(ranks),
      assignment_(assignment),
      is_last_(assignment.stage() + 1 == assignment.stages()),
      stream_(stream) {}

absl::Status BadFrame(const absl::Status& status) {
  return absl::DataLossError(absl::StrCat("received a bad frame: ", status.message()));
}

absl::Status StageComputation::Load() {
  RETURN_IF_ERROR(CheckAssignment(assignment_, rank_, ranks_));
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> description,
                   stream_ != nullptr ? OpenStreamedModel(assignment_, stream_) : OpenSameModel(assignment_));
  ASSIGN_OR_RETURN(const StageConfig config, ConfigOf(assignment_));
  const int64_t layers = description->hyper.layer_count(), checksummed = assignment_.checksum_layers();
  if (checksummed != 0 && checksummed != layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("assigned to checksum ", checksummed, " layers, expected 0 or ", layers, ", as the model has"));
  }
  ASSIGN_OR_RETURN(model_, StageModel::Load(description, config, &counters_));
  tensor_bytes_read_ = description->file->bytes_read();
  limits_ = LimitsOf(assignment_, description->hyper.hidden, description->hyper.vocab);
  pool_ = is_last_ ? std::make_unique<FramePool>(limits_.MaxResultFrameBytes(), 0)
                   : std::make_unique<FramePool>(limits_.MaxStepHeaderBytes(), limits_.MaxStepPayloadBytes());
  wide_hidden_ = AlignedBuffer(limits_.HiddenOutsideBytes(is_last_));
  return absl::OkStatus();
}

absl::StatusOr<StageComputation::Step> StageComputation::Compute(absl::Span<const uint8_t> bytes, int64_t received_us,
                                                                 FrameSend last_send) {
  StageTimes times{.stage = assignment_.stage(),
                   .received_us = received_us,
                   .start_us = MonotonicUs(),
                   .send_us = last_send.took_us,
                   .send_start_us = last_send.start_us};
  absl::StatusOr<StepFrame> decoded =
      DecodeStep(limits_, bytes, next_number_, /*expect_hidden=*/assignment_.stage() > 0);
  if (!decoded.ok()) return BadFrame(decoded.status());
  StepFrame step = *std::move(decoded);
  if (step.times.size() != static_cast<size_t>(assignment_.stage())) {
    return BadFrame(absl::InvalidArgumentError(
        absl::StrCat("it has the times of ", step.times.size(), " stages, expected ", assignment_.stage())));
  }
  const size_t checksums = limits_.checksum_layers > 0
                               ? static_cast<size_t>(assignment_.first_layer()) * static_cast<size_t>(step.batch.rows())
                               : 0;
  if (step.layer_checksums.size() != checksums) {
    return BadFrame(absl::InvalidArgumentError(
        absl::StrCat("it has ", step.layer_checksums.size(), " checksums of layers, expected ", checksums)));
  }
  ++next_number_;
  if (absl::Status taken = model_->Begin(step.batch); !taken.ok()) return BadFrame(taken);

  std::shared_ptr<FrameBuffer> buffer = pool_->Acquire();
  float* hidden = wide_hidden_.size() > 0 ? wide_hidden_.as<float>() : reinterpret_cast<float*>(buffer->payload());
  if (step.batch.rows() > 0) {
    if (step.has_hidden)
      DecodeHidden(limits_.wire_type, step.hidden.data(), step.batch.rows() * limits_.hidden, hidden);
    model_->Forward(step.batch, hidden);
    const absl::Span<const uint32_t> own = model_->layer_checksums();
    step.layer_checksums.insert(step.layer_checksums.end(), own.begin(), own.end());
    if (assignment_.stage_delay_us() > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(assignment_.stage_delay_us()));
  }
  step.times.push_back(times);
  Step done{.frame = {}, .shutdown = step.batch.shutdown};
  if (is_last_) {
    ASSIGN_OR_RETURN(done.frame, Result(std::move(step), std::move(buffer), hidden));
  } else {
    ASSIGN_OR_RETURN(done.frame, NextHop(std::move(step), std::move(buffer), hidden));
  }
  ++steps_done_;
  return done;
}

// The time that the head and the codec take belongs to this stage's computation.
void StageComputation::FinishTimes(StageTimes* times) {
  if (limits_.step_account) times->account = model_->TakeAccount();
  times->end_us = MonotonicUs();
  compute_us_ += times->end_us - times->start_us;
}

absl::StatusOr<OutgoingFrame> StageComputation::Result(StepFrame step, std::shared_ptr<FrameBuffer> buffer,
                                                       const float* hidden) {
  result_.number = step.batch.number;
  result_.sampled.clear();
  result_.targets.clear();
  if (step.batch.rows() > 0) model_->Finish(step.batch, hidden, &result_);
  result_.times = std::move(step.times);
  result_.layer_checksums = std::move(step.layer_checksums);
  FinishTimes(&result_.times.back());
  RETURN_IF_ERROR(EncodeResult(limits_, result_, buffer.get()));
  return OutgoingFrame{Channel::kResult, assignment_.next_rank(), std::move(buffer)};
}

absl::StatusOr<OutgoingFrame> StageComputation::NextHop(StepFrame step, std::shared_ptr<FrameBuffer> buffer,
                                                        const float* hidden) {
  const size_t elements = static_cast<size_t>(step.batch.rows()) * limits_.hidden;
  if (wide_hidden_.size() > 0) EncodeHidden(limits_.wire_type, hidden, elements, buffer->payload());
  for (SequenceSlice& slice : step.batch.slices) {
    if (!slice.guess) slice.tokens.clear();
  }
  step.has_hidden = true;
  step.hidden = {};
  FinishTimes(&step.times.back());
  RETURN_IF_ERROR(EncodeStep(limits_, step, buffer.get()));
  return OutgoingFrame{Channel::kStep, assignment_.next_rank(), std::move(buffer)};
}

pb::StageReady StageComputation::Ready() const {
  pb::StageReady ready;
  ready.set_stage(assignment_.stage());
  ready.set_weight_bytes(model_->weight_bytes());
  ready.set_kv_bytes(model_->kv_bytes());
  ready.set_scratch_bytes(model_->scratch_bytes() + limits_.StageFrameBytes(is_last_, assignment_.in_flight()));
  ready.set_tensor_bytes_read(tensor_bytes_read_);
  ready.set_resident_bytes(ResidentBytes());
  const HugeShare huge = OwnHugeShare();
  ready.set_huge_wanted_bytes(huge.resident_bytes);
  ready.set_huge_bytes(huge.huge_bytes);
  if (stream_ != nullptr) {
    const StreamedRanges streamed = stream_->streamed();
    ready.set_streamed_bytes(streamed.bytes());
    ready.set_streamed_crc32c(streamed.Checksum());
  }
  return ready;
}

pb::Heartbeat StageComputation::Progress() const {
  pb::Heartbeat heartbeat;
  heartbeat.set_stage(assignment_.stage());
  heartbeat.set_bytes_to_load(counters_.bytes_to_load);
  heartbeat.set_bytes_touched(counters_.bytes_touched);
  heartbeat.set_bytes_loaded(counters_.bytes_loaded);
  heartbeat.set_layers_done(counters_.layers_done);
  heartbeat.set_steps_done(steps_done_);
  heartbeat.set_compute_us(compute_us_);
  heartbeat.set_grammar_mask_ns(counters_.masks.ns);
  heartbeat.set_grammar_mask_hits(counters_.masks.hits);
  if (stream_ != nullptr) heartbeat.set_bytes_streamed(stream_->bytes_streamed());
  return heartbeat;
}

}  // namespace stagecoach
