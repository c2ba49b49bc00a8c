#ifndef STAGECOACH_STAGE_WORKER_STREAM_WEIGHT_STREAM_H_
#define STAGECOACH_STAGE_WORKER_STREAM_WEIGHT_STREAM_H_

// The model's files on a stage that has none: requests go to the coordinator ahead of the reader, as far as the credit
// allows. Knows no endpoint: the communication thread carries requests and answers.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf/byte_source.h"
#include "common/model/model_description.h"
#include "common/transport/endpoint.h"
#include "common/wire/weight_frame.h"
#include "proto/control.pb.h"
#include "stage_worker/stream/weight_cache.h"

namespace stagecoach {

// Thread-safe: any number of loader threads read, one communication thread carries.
//   Order    reads are planned and cut into chunks. Requests follow the plan; chunks with a waiting reader go first.
//   Memory   at most kWeightCredit chunks are requested or unread; one without a waiting reader gives way to one with a
//            reader. A chunk is freed when as many bytes were read as it has.
//   Cache    a cached chunk is read from there on demand; the first reader of a streamed chunk writes it there.
class WeightStream {
 public:
  // `wake`: called on a reader's thread when there is a request to send.
  WeightStream(const JobEpoch& job, std::function<void()> wake);

  // --- loader threads ---

  // Replaces the plan; only planned bytes can be read. No reader may be active.
  void Plan(absl::Span<const WeightRange> ranges);
  // Plans whole tensors: single rows and biases, which are read one by one, in the order given, then the others in file
  // order. `cache`: where to look first, and to keep them; may be nullptr.
  void PlanTensors(absl::Span<const GgufTensor* const> tensors, std::unique_ptr<WeightCache> cache = nullptr);
  // Waits for the bytes. kInternal: not planned. Otherwise the status of Stop, or the coordinator's refusal.
  absl::Status Read(int shard, uint64_t offset, absl::Span<uint8_t> out);
  // Removes a planned tensor from the cache. Nobody may be reading.
  void DiscardCached(const WeightRange& tensor) const {
    if (cache_ != nullptr) cache_->Remove(tensor);
  }

  // --- communication thread ---

  // The next request to send, if there is one now.
  absl::StatusOr<std::shared_ptr<const FrameBuffer>> NextRequest();
  // A frame of the weights channel. kInvalidArgument: it is not the answer that is due, or was damaged.
  absl::Status Deliver(ReceivedFrame frame);
  // Whether requests are without their answers.
  bool waiting() const;

  // --- any thread ---

  // Every Read, now and later, returns this error. The first one counts.
  void Stop(const absl::Status& status);
  uint64_t bytes_streamed() const { return bytes_streamed_.load(std::memory_order_relaxed); }
  StreamedRanges streamed() const;

 private:
  struct Chunk {
    enum class State { kWanted, kFetched, kRequested, kHere, kRead };  // kFetched: a reader gets it from the cache
    WeightRange range;
    size_t number = 0;  // in its tensor
    State state = State::kWanted;
    std::optional<ReceivedFrame> frame;          // kHere, when it was sent
    std::vector<uint8_t> copy;                   // kHere, when it comes from the cache
    absl::Span<const uint8_t> bytes;             // kHere: of one of the two
    uint32_t crc32c = 0;                         // of what was sent
    uint64_t read = 0;                           // bytes that were read of it
    int readers = 0;                             // threads that wait for it, or copy
    std::shared_ptr<const CachedTensor> cached;  // where it lies; nullptr: it has to be sent
    std::shared_ptr<CachingTensor> caching;      // where it is to be kept, until a reader takes this on
  };

  void AddChunks(const WeightRange& range, std::vector<std::shared_ptr<Chunk>>* plan) const;
  void FetchFromCache(std::unique_lock<std::mutex>* lock, Chunk* chunk);
  absl::StatusOr<Chunk*> Acquire(std::unique_lock<std::mutex>* lock, int shard, uint64_t offset);
  void Release(Chunk* chunk, uint64_t read);
  Chunk* FindChunk(int shard, uint64_t offset);  // nullptr when not planned
  Chunk* MostUrgent();                           // to request next; nullptr when there is none
  bool MakeRoom();                               // drops a chunk that nobody waits for
  void RequestMore();

  const JobEpoch job_;
  const std::function<void()> wake_;
  FramePool request_pool_;
  std::unique_ptr<WeightCache> cache_;  // of the thread that plans; outlives the chunks, which point to it
  std::atomic<uint64_t> bytes_streamed_{0};

  mutable std::mutex mu_;  // guards all below
  std::condition_variable arrived_;
  absl::Status stopped_;
  std::vector<std::shared_ptr<Chunk>> plan_;       // in the order of requests
  std::vector<Chunk*> by_place_;                   // by shard and offset
  size_t next_ = 0;                                // chunks of the plan before it were requested
  std::vector<Chunk*> wanted_;                     // that readers wait for and that may not be requested
  size_t here_ = 0;                                // chunks that are kHere and were sent
  std::deque<std::shared_ptr<Chunk>> unanswered_;  // in the order of requests
  size_t unsent_ = 0;                              // of these the last ones
  uint64_t next_request_ = 0, next_answer_ = 0;    // numbers
  StreamedRanges streamed_;
};

// One of the files.
class StreamedBytes : public ByteSource {
 public:
  StreamedBytes(WeightStream* stream, int shard) : stream_(stream), shard_(shard) {}
  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    return stream_->Read(shard_, offset, out);
  }
  void Discard(uint64_t offset, uint64_t bytes) const override { stream_->DiscardCached({shard_, offset, bytes}); }

 private:
  WeightStream* const stream_;
  const int shard_;
};

// Opens the assignment's model from streamed headers, then plans the stage's own tensors. `stream` outlives the model.
// kDataLoss: no model, or not the one of the fingerprints; kInvalidArgument: an impossible assignment.
absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenStreamedModel(const pb::StageAssignment& assignment,
                                                                          WeightStream* stream);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STREAM_WEIGHT_STREAM_H_
