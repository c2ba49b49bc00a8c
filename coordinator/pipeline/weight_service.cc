#include "coordinator/pipeline/weight_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr int kMadeAhead = 2;  // one is read while another is checked and encoded

std::vector<WeightRange> AllowedRanges(const ModelDescription& model, const pb::StageAssignment& assignment) {
  std::vector<WeightRange> allowed;
  const std::vector<uint64_t>& opened = model.file->opened_bytes();
  for (size_t i = 0; i < opened.size(); ++i) allowed.push_back({static_cast<int32_t>(i), 0, opened[i]});
  for (const GgufTensor* tensor : model.StageTensors(assignment.first_layer(), assignment.last_layer(),
                                                     assignment.owns_embedding(), assignment.owns_head())) {
    allowed.push_back({tensor->shard, tensor->file_offset, tensor->bytes});
  }
  std::sort(allowed.begin(), allowed.end());
  return allowed;
}

}  // namespace

WeightService::WeightService(std::shared_ptr<const ModelDescription> model,
                             const std::vector<pb::StageAssignment>& assignments, std::function<void()> wake)
    : model_(std::move(model)),
      job_(EpochOf(assignments.front())),
      wake_(std::move(wake)),
      pool_(kMaxWeightHeaderBytes, kMaxWeightChunkBytes) {
  CHECK(model_->file->has_files());
  for (const pb::StageAssignment& assignment : assignments) {
    stages_.emplace_back().allowed = AllowedRanges(*model_, assignment);
  }
  reading_ = std::thread([this] { ReadRequests(); });
}

WeightService::~WeightService() {
  to_make_.End();
  reading_.join();
}

absl::Status WeightService::Take(int stage, absl::Span<const uint8_t> frame) {
  Stage& asking = stages_[static_cast<size_t>(stage)];
  ASSIGN_OR_RETURN(const WeightRange range, DecodeWeightRequest(job_, frame, asking.next_number));
  const size_t unanswered = asking.requests.size() + static_cast<size_t>(asking.being_made);
  if (unanswered >= kWeightCredit) {
    return absl::InvalidArgumentError(absl::StrCat("a request for weights while ", unanswered,
                                                   " are without their answers, expected at most ", kWeightCredit));
  }
  ++moved_;
  asking.requests.push_back({stage, asking.next_number++, range, CheckRange(stage, range)});
  return absl::OkStatus();
}

absl::Status WeightService::CheckRange(int stage, const WeightRange& range) const {
  const std::vector<WeightRange>& allowed = stages_[static_cast<size_t>(stage)].allowed;
  // Ranges may lie in each other, but only the headers' hold others, and each is the first of its shard.
  const auto holds = [&range](const WeightRange& one) {
    return one.shard == range.shard && one.offset <= range.offset && range.end() <= one.end();
  };
  const auto after =
      std::upper_bound(allowed.begin(), allowed.end(), WeightRange{range.shard, range.offset, UINT64_MAX});
  if (after != allowed.begin() && holds(*(after - 1))) return absl::OkStatus();
  const auto header = std::lower_bound(allowed.begin(), allowed.end(), WeightRange{range.shard, 0, 0});
  if (header != allowed.end() && holds(*header)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("stage ", stage, " asked for bytes [", range.offset, ", ", range.end(), ") of file ",
                   range.shard + 1, " of '", model_->file->path(),
                   "', which are neither a header nor in its own tensors; do coordinator and stage_worker have one "
                   "version?"));
}

bool WeightService::MayBeServed(Stage* stage) const {
  if (stage->requests.empty() || stage->refused) return false;
  std::erase_if(stage->sent, [](const auto& frame) { return frame.expired(); });
  return stage->being_made + static_cast<int>(stage->sent.size()) < kChunksOnTheWay;
}

void WeightService::HandOut() {
  for (size_t in_vain = 0; in_vain < stages_.size() && being_made_ < kMadeAhead;) {
    Stage& stage = stages_[turn_];
    turn_ = (turn_ + 1) % stages_.size();
    if (!MayBeServed(&stage)) {
      ++in_vain;
      continue;
    }
    in_vain = 0;
    ++stage.being_made;
    ++being_made_;
    stage.refused = !stage.requests.front().refusal.ok();
    to_make_.Push(std::move(stage.requests.front()));
    stage.requests.pop_front();
  }
}

std::optional<WeightService::Answer> WeightService::Next() {
  std::optional<Made> made = made_.TryTake();
  if (made.has_value()) {
    ++moved_;
    --being_made_;
    Stage& stage = stages_[static_cast<size_t>(made->answer.stage)];
    --stage.being_made;
    stage.refused |= made->refused;
    if (!made->refused) stage.streamed.Add(made->range, made->crc32c);
    stage.sent.push_back(made->answer.frame);
  }
  HandOut();
  if (!made.has_value()) return std::nullopt;
  return std::move(made->answer);
}

absl::Status WeightService::CheckReceived(const pb::StageReady& ready) const {
  const StreamedRanges& sent = stages_[static_cast<size_t>(ready.stage())].streamed;
  if (ready.streamed_bytes() == sent.bytes() && ready.streamed_crc32c() == sent.Checksum()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("received ", ready.streamed_bytes(), " bytes of weights with the checksum ",
                                          absl::Hex(ready.streamed_crc32c(), absl::kZeroPad8), ", expected ",
                                          sent.bytes(), " and ", absl::Hex(sent.Checksum(), absl::kZeroPad8)));
}

// --- the reading thread ----------------------------------------------------------------------------------------------

void WeightService::ReadRequests() {
  while (const std::optional<Request> request = to_make_.Take()) {
    made_.Push(Make(*request));
    wake_();
  }
}

WeightService::Made WeightService::Make(const Request& request) {
  std::shared_ptr<FrameBuffer> buffer = pool_.Acquire();
  const WeightRange& range = request.range;
  absl::Status status = request.refusal;
  if (status.ok()) status = model_->file->ReadShard(range.shard, range.offset, {buffer->payload(), range.bytes});
  Made made{{request.stage, buffer}, range, 0, !status.ok()};
  if (status.ok()) {
    made.crc32c = Crc32c({buffer->payload(), range.bytes});
    status = EncodeWeightChunk(job_, request.number, range, made.crc32c, buffer.get());
  } else {
    status = EncodeWeightRefusal(job_, request.number, status, buffer.get());
  }
  CHECK(status.ok());
  return made;
}

}  // namespace stagecoach
