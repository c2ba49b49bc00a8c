#include "stage_worker/stream/weight_stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/wire/job_proto.h"

namespace stagecoach {

WeightStream::WeightStream(const JobEpoch& job, std::function<void()> wake)
    : job_(job), wake_(std::move(wake)), request_pool_(kMaxWeightHeaderBytes, 0) {}

// --- loader threads --------------------------------------------------------------------------------------------------

void WeightStream::Plan(absl::Span<const WeightRange> ranges) {
  // Looking into the cache takes a while, and the communication thread must not wait for it.
  std::vector<std::shared_ptr<Chunk>> plan;
  for (const WeightRange& range : ranges) AddChunks(range, &plan);
  std::vector<Chunk*> by_place;
  by_place.reserve(plan.size());
  for (const std::shared_ptr<Chunk>& chunk : plan) by_place.push_back(chunk.get());
  std::sort(by_place.begin(), by_place.end(), [](const Chunk* a, const Chunk* b) { return a->range < b->range; });
  {
    const std::lock_guard<std::mutex> lock(mu_);
    CHECK(wanted_.empty());
    plan_ = std::move(plan);
    by_place_ = std::move(by_place);
    next_ = here_ = 0;
    RequestMore();
  }
  wake_();
}

void WeightStream::AddChunks(const WeightRange& range, std::vector<std::shared_ptr<Chunk>>* plan) const {
  const std::shared_ptr<const CachedTensor> cached = cache_ == nullptr ? nullptr : cache_->Find(range);
  const std::shared_ptr<CachingTensor> caching = cache_ == nullptr || cached != nullptr ? nullptr : cache_->Add(range);
  for (uint64_t done = 0; done < range.bytes; done += kMaxWeightChunkBytes) {
    auto chunk = std::make_shared<Chunk>();
    chunk->range = {range.shard, range.offset + done, std::min(range.bytes - done, kMaxWeightChunkBytes)};
    chunk->number = done / kMaxWeightChunkBytes;
    chunk->cached = cached;
    chunk->caching = caching;
    plan->push_back(std::move(chunk));
  }
}

void WeightStream::PlanTensors(absl::Span<const GgufTensor* const> tensors, std::unique_ptr<WeightCache> cache) {
  cache_ = std::move(cache);
  std::vector<const GgufTensor*> ordered(tensors.begin(), tensors.end());
  const auto matrices = std::stable_partition(ordered.begin(), ordered.end(), [](const GgufTensor* tensor) {
    return tensor->rows() == 1 || absl::EndsWith(tensor->name, ".bias");
  });
  std::sort(matrices, ordered.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::tie(a->shard, a->file_offset) < std::tie(b->shard, b->file_offset);
  });
  std::vector<WeightRange> ranges;
  ranges.reserve(ordered.size());
  for (const GgufTensor* tensor : ordered) ranges.push_back({tensor->shard, tensor->file_offset, tensor->bytes});
  Plan(ranges);
}

absl::Status WeightStream::Read(int shard, uint64_t offset, absl::Span<uint8_t> out) {
  while (!out.empty()) {
    std::unique_lock<std::mutex> lock(mu_);
    ASSIGN_OR_RETURN(Chunk* const chunk, Acquire(&lock, shard, offset));
    const std::shared_ptr<CachingTensor> caching = std::move(chunk->caching);
    lock.unlock();  // a chunk that has a reader stays
    if (caching != nullptr) caching->Write(chunk->number, chunk->bytes, chunk->crc32c);
    const uint64_t begin = offset - chunk->range.offset;
    const size_t bytes = std::min<uint64_t>(out.size(), chunk->range.bytes - begin);
    std::memcpy(out.data(), chunk->bytes.data() + begin, bytes);
    lock.lock();
    Release(chunk, bytes);
    lock.unlock();
    wake_();
    offset += bytes;
    out.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<WeightStream::Chunk*> WeightStream::Acquire(std::unique_lock<std::mutex>* lock, int shard,
                                                           uint64_t offset) {
  if (!stopped_.ok()) return stopped_;
  Chunk* const chunk = FindChunk(shard, offset);
  if (chunk == nullptr) {
    return absl::InternalError(absl::StrCat("offset ", offset, " of shard ", shard,
                                            " is not part of what was to be streamed; do coordinator and stage_worker "
                                            "have one version?"));
  }
  if (chunk->state == Chunk::State::kRead) {
    chunk->state = Chunk::State::kWanted;
    chunk->read = 0;
  }
  ++chunk->readers;
  if (chunk->state == Chunk::State::kWanted && chunk->cached != nullptr) FetchFromCache(lock, chunk);
  if (chunk->state != Chunk::State::kHere) {
    wanted_.push_back(chunk);
    RequestMore();
    lock->unlock();
    wake_();
    lock->lock();
    arrived_.wait(*lock, [&] { return chunk->state == Chunk::State::kHere || !stopped_.ok(); });
    wanted_.erase(std::find(wanted_.begin(), wanted_.end(), chunk));
  }
  if (stopped_.ok()) return chunk;
  --chunk->readers;
  return stopped_;
}

void WeightStream::FetchFromCache(std::unique_lock<std::mutex>* lock, Chunk* chunk) {
  chunk->state = Chunk::State::kFetched;
  lock->unlock();
  std::vector<uint8_t> copy(chunk->range.bytes);
  const bool good = chunk->cached->Read(chunk->number, absl::MakeSpan(copy));
  lock->lock();
  if (good) {
    chunk->copy = std::move(copy);
    chunk->bytes = chunk->copy;
    chunk->state = Chunk::State::kHere;
    arrived_.notify_all();
  } else {  // to be sent, also to those who wait for it already
    chunk->cached = nullptr;
    chunk->state = Chunk::State::kWanted;
  }
}

void WeightStream::Release(Chunk* chunk, uint64_t read) {
  --chunk->readers;
  chunk->read += read;
  if (chunk->read >= chunk->range.bytes && chunk->readers == 0) {
    if (chunk->frame.has_value()) --here_;
    chunk->state = Chunk::State::kRead;
    chunk->frame.reset();
    chunk->copy = {};
  }
  RequestMore();
}

WeightStream::Chunk* WeightStream::FindChunk(int shard, uint64_t offset) {
  const auto after = std::upper_bound(
      by_place_.begin(), by_place_.end(), std::pair(shard, offset),
      [](const auto& place, const Chunk* c) { return place < std::pair(c->range.shard, c->range.offset); });
  if (after == by_place_.begin()) return nullptr;
  Chunk* const chunk = *(after - 1);
  return chunk->range.shard == shard && offset < chunk->range.end() ? chunk : nullptr;
}

WeightStream::Chunk* WeightStream::MostUrgent() {
  for (Chunk* chunk : wanted_) {
    if (chunk->state == Chunk::State::kWanted) return chunk;
  }
  const auto is_to_be_sent = [](const Chunk& chunk) {
    return chunk.state == Chunk::State::kWanted && chunk.cached == nullptr;
  };
  while (next_ < plan_.size() && !is_to_be_sent(*plan_[next_])) ++next_;
  return next_ < plan_.size() ? plan_[next_].get() : nullptr;
}

bool WeightStream::MakeRoom() {
  for (size_t i = plan_.size(); i-- > 0;) {
    Chunk& chunk = *plan_[i];
    if (chunk.state != Chunk::State::kHere || !chunk.frame.has_value() || chunk.readers > 0) continue;
    chunk.state = Chunk::State::kWanted;
    chunk.frame.reset();
    --here_;
    next_ = std::min(next_, i);
    return true;
  }
  return false;
}

void WeightStream::RequestMore() {
  while (Chunk* const chunk = MostUrgent()) {
    if (unanswered_.size() + here_ >= kWeightCredit && !(chunk->readers > 0 && MakeRoom())) return;
    chunk->state = Chunk::State::kRequested;
    const auto is_it = [chunk](const std::shared_ptr<Chunk>& entry) { return entry.get() == chunk; };
    unanswered_.push_back(next_ < plan_.size() && plan_[next_].get() == chunk
                              ? plan_[next_]
                              : *std::find_if(plan_.begin(), plan_.end(), is_it));
    ++unsent_;
  }
}

// --- communication thread --------------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const FrameBuffer>> WeightStream::NextRequest() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (unsent_ == 0 || !stopped_.ok()) return std::shared_ptr<const FrameBuffer>();
  const WeightRange& range = unanswered_[unanswered_.size() - unsent_]->range;
  std::shared_ptr<FrameBuffer> buffer = request_pool_.Acquire();
  RETURN_IF_ERROR(EncodeWeightRequest(job_, next_request_, range, buffer.get()));
  ++next_request_;
  --unsent_;
  return std::shared_ptr<const FrameBuffer>(std::move(buffer));
}

absl::Status WeightStream::Deliver(ReceivedFrame frame) {
  std::shared_ptr<Chunk> chunk;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (unanswered_.size() == unsent_) return absl::InvalidArgumentError("an answer, and nothing was asked for");
    chunk = unanswered_.front();
  }
  // The checksum takes a while; only this thread takes requests out again.
  ASSIGN_OR_RETURN(auto answer, DecodeWeightAnswer(job_, frame.bytes(), next_answer_, chunk->range));
  if (const auto* refusal = std::get_if<absl::Status>(&answer)) {
    Stop(*refusal);
    return absl::OkStatus();
  }
  const auto& [payload, crc32c] = std::get<WeightChunk>(answer);
  {
    const std::lock_guard<std::mutex> lock(mu_);
    ++next_answer_;
    unanswered_.pop_front();
    streamed_.Add(chunk->range, crc32c);
    const Chunk* planned = FindChunk(chunk->range.shard, chunk->range.offset);
    if (planned == chunk.get()) {  // not of an earlier plan
      chunk->state = Chunk::State::kHere;
      chunk->frame = std::move(frame);
      chunk->bytes = payload;
      chunk->crc32c = crc32c;
      ++here_;
    }
    bytes_streamed_.fetch_add(chunk->range.bytes, std::memory_order_relaxed);
    RequestMore();
  }
  arrived_.notify_all();
  return absl::OkStatus();
}

bool WeightStream::waiting() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return !unanswered_.empty();
}

// --- any thread ------------------------------------------------------------------------------------------------------

void WeightStream::Stop(const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (stopped_.ok()) stopped_ = status;
  }
  arrived_.notify_all();
}

StreamedRanges WeightStream::streamed() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return streamed_;
}

// --- the model -------------------------------------------------------------------------------------------------------

namespace {

constexpr int kMaxShards = 1024;                           // as of a model's files
constexpr uint64_t kMaxOpenedBytes = uint64_t{512} << 20;  // more than the header of any file may have

absl::Status CheckOpenedBytes(const pb::StageAssignment& assignment) {
  const int shards = assignment.fingerprints_size();
  if (shards < 1 || shards > kMaxShards || assignment.opened_bytes_size() != shards) {
    return absl::InvalidArgumentError(absl::StrCat("assigned a streamed model of ", shards, " files with ",
                                                   assignment.opened_bytes_size(), " headers, expected 1 to ",
                                                   kMaxShards, " and as many"));
  }
  for (int i = 0; i < shards; ++i) {
    const uint64_t bytes = assignment.opened_bytes(i), size = assignment.fingerprints(i).size_bytes();
    if (bytes <= size && bytes <= kMaxOpenedBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("assigned a streamed model whose file ", i, " of ", size,
                                                   " bytes has a header of ", bytes, ", expected at most ",
                                                   std::min(size, kMaxOpenedBytes)));
  }
  return absl::OkStatus();
}

std::vector<GgufSource> SourcesOf(const pb::StageAssignment& assignment, WeightStream* stream) {
  std::vector<GgufSource> sources;
  const std::vector<FileFingerprint> fingerprints = FromProto(assignment.fingerprints());
  for (size_t i = 0; i < fingerprints.size(); ++i) {
    const std::string which = i == 0 ? "" : absl::StrCat(", file ", i + 1);
    sources.push_back({absl::StrCat(assignment.model_path(), which), fingerprints[i],
                       std::make_unique<StreamedBytes>(stream, static_cast<int>(i))});
  }
  return sources;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenStreamedModel(const pb::StageAssignment& assignment,
                                                                          WeightStream* stream) {
  RETURN_IF_ERROR(CheckOpenedBytes(assignment));
  GgufOpenOptions options;
  ASSIGN_OR_RETURN(options.q2_layout, ParseQ2Layout(assignment.q2_layout()));
  std::vector<WeightRange> headers;
  headers.reserve(static_cast<size_t>(assignment.opened_bytes_size()));
  for (int i = 0; i < assignment.opened_bytes_size(); ++i) headers.push_back({i, 0, assignment.opened_bytes(i)});
  stream->Plan(headers);
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::OpenSources(SourcesOf(assignment, stream), options);
  // The coordinator has read these files and found them good.
  if (absl::IsInvalidArgument(file.status())) return absl::DataLossError(file.status().message());
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> model, DescribeModel(*std::move(file)));
  const int64_t first = assignment.first_layer(), last = assignment.last_layer();
  if (first < 0 || first >= last || last > model->hyper.layer_count()) return model;  // loading will refuse it
  std::unique_ptr<WeightCache> cache;
  if (!assignment.weights_cache().empty()) {
    cache = std::make_unique<WeightCache>(assignment.weights_cache(), model->file->fingerprints());
  }
  stream->PlanTensors(model->StageTensors(first, last, assignment.owns_embedding(), assignment.owns_head()),
                      std::move(cache));
  return model;
}

}  // namespace stagecoach
