#include "stage_worker/probe/layer_times.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/host_info.h"
#include "common/base/status_macros.h"
#include "common/step/step.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/model/stage_model.h"

namespace stagecoach {
namespace {

constexpr int kBlockTokens = 32;
constexpr int kSequences = 8;
constexpr int64_t kSmallChunk = 64;
constexpr int64_t kLargeChunk = 512;
constexpr int64_t kTinyChunk = 8;  // fills sequences where a chunk of 64 rows takes seconds
constexpr int64_t kDecodeRuns = 5;
constexpr int64_t kChunkRuns = 3;
constexpr double kFillUs = 2.5e6;  // for the chunks of all sequences
constexpr size_t kLeastCacheBytes = size_t{64} << 20;

double MicrosecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Memory whose reading leaves nothing of a model in the caches.
class CacheFiller {
 public:
  static absl::StatusOr<CacheFiller> Create() {
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t wanted = std::max(kLeastCacheBytes, cache > 0 ? 2 * static_cast<size_t>(cache) : 0);
    const size_t bytes = std::max<size_t>(std::min<size_t>(wanted, AvailableMemoryBytes() / 4), size_t{1} << 20);
    CacheFiller filler;
    ASSIGN_OR_RETURN(filler.memory_, PageMemory::Allocate(bytes, "what fills the cache between measurements"));
    std::memset(filler.memory_.data(), 1, bytes);
    return filler;
  }

  void Fill() {
    constexpr size_t kLine = 64;
    uint64_t sum = 0;
    for (size_t i = 0; i < memory_.size(); i += kLine) sum += memory_.data()[i];
    sum_ = sum;
  }

 private:
  PageMemory memory_;
  volatile uint64_t sum_ = 0;  // used, so that the reading is
};

// A stage of one layer and the head, and sequences in it.
class LayerBench {
 public:
  static absl::StatusOr<std::unique_ptr<LayerBench>> Create(const LayerTimesRequest& request, int64_t context) {
    auto bench = std::make_unique<LayerBench>();
    const HyperParameters& hyper = request.model->hyper;
    bench->blocks_ = (context + kBlockTokens - 1) / kBlockTokens;
    bench->groups_ = static_cast<size_t>(hyper.block_groups());
    StageConfig config;
    config.first_layer = request.layer;
    config.last_layer = request.layer + 1;
    config.owns_head = true;
    config.block_tokens = kBlockTokens;
    config.group_blocks.assign(bench->groups_, static_cast<int32_t>(kSequences * bench->blocks_));
    config.kv_type = request.kv_type;
    config.threads = request.threads;
    config.cpus = request.cpus;
    config.contended = request.contended;
    config.context = context;
    config.max_rows = kLargeChunk;
    config.max_slices = kSequences;
    config.isa = request.isa;
    ASSIGN_OR_RETURN(bench->model_, StageModel::Load(request.model, config, &bench->counters_));
    ASSIGN_OR_RETURN(bench->filler_, CacheFiller::Create());
    // Rows of about unit size, whatever they are: the time of dense kernels does not depend on values.
    bench->rows_.resize(static_cast<size_t>(kLargeChunk * hyper.hidden));
    for (size_t i = 0; i < bench->rows_.size(); ++i) bench->rows_[i] = std::sin(static_cast<float>(i % 10007));
    bench->hidden_ = bench->rows_;
    return bench;
  }

  // Makes sequence `slot` anew and runs its first `rows` rows. It has one token more, the first that Decode computes.
  absl::StatusOr<LayerTime> Chunk(int slot, int64_t rows) {
    MicroBatch batch;
    if (ids_[slot] != 0) batch.free.push_back(ids_[slot]);
    ids_[slot] = ++last_id_;
    computed_[slot] = rows;
    batch.open.push_back({ids_[slot], std::vector<TokenId>(static_cast<size_t>(rows + 1), 0)});
    SequenceSlice slice{.sequence = ids_[slot], .start = 0, .count = static_cast<int32_t>(rows)};
    std::vector<BlockId> blocks;
    for (int64_t i = 0; i < blocks_; ++i) blocks.push_back(static_cast<BlockId>(slot * blocks_ + i));
    slice.new_blocks.assign(groups_, blocks);
    batch.slices.push_back(std::move(slice));
    ASSIGN_OR_RETURN(LayerTime time, Run(std::move(batch)));
    time.context = rows;
    return time;
  }

  // One row of each of the first `sequences` sequences.
  absl::StatusOr<LayerTime> Decode(int sequences) {
    MicroBatch batch;
    int64_t context = 0;
    for (int slot = 0; slot < sequences; ++slot) {
      batch.slices.push_back(
          {.sequence = ids_[slot], .start = static_cast<int32_t>(computed_[slot]++), .count = 1, .sample = true});
      context = std::max(context, computed_[slot]);
    }
    ASSIGN_OR_RETURN(LayerTime time, Run(std::move(batch)));
    time.context = context;
    return time;
  }

 private:
  absl::StatusOr<LayerTime> Run(MicroBatch batch) {
    batch.number = number_++;
    std::copy_n(rows_.begin(), rows_.size() / kLargeChunk * static_cast<size_t>(batch.rows()), hidden_.begin());
    filler_.Fill();
    LayerTime time{.rows = batch.rows(), .sequences = static_cast<int>(batch.slices.size())};
    RETURN_IF_ERROR(model_->Begin(batch));
    auto begin = std::chrono::steady_clock::now();
    model_->Forward(batch, hidden_.data());
    time.layer_us = MicrosecondsSince(begin);
    if (!batch.slices.front().sample) return time;
    filler_.Fill();
    begin = std::chrono::steady_clock::now();
    model_->Finish(batch, hidden_.data(), &result_);
    time.head_us = MicrosecondsSince(begin);
    return time;
  }

  StageCounters counters_;
  std::unique_ptr<StageModel> model_;
  CacheFiller filler_;
  std::vector<float> rows_, hidden_;  // [kLargeChunk, D]
  StepResult result_;
  int64_t blocks_ = 0;  // of a sequence
  size_t groups_ = 0;
  uint64_t number_ = 0;
  SequenceId last_id_ = 0;
  SequenceId ids_[kSequences] = {};    // 0: none yet
  int64_t computed_[kSequences] = {};  // rows
};

// Adds a run to the best so far.
void Keep(const LayerTime& run, std::optional<LayerTime>* best) {
  if (!best->has_value()) {
    *best = run;
    return;
  }
  (*best)->layer_us = std::min((*best)->layer_us, run.layer_us);
  (*best)->head_us = std::min((*best)->head_us, run.head_us);
}

absl::StatusOr<std::vector<LayerTime>> Measure(const LayerTimesRequest& request) {
  // Room for the longest chunk and the decode steps behind it; a model that was trained for less has shorter chunks.
  const int64_t longest = std::min(kLargeChunk, request.model->hyper.context - 4 * kDecodeRuns);
  if (longest < 1) return absl::InvalidArgumentError("the model's context is too short to be measured");
  ASSIGN_OR_RETURN(const std::unique_ptr<LayerBench> bench, LayerBench::Create(request, longest + 4 * kDecodeRuns));
  std::vector<LayerTime> times;
  std::optional<LayerTime> small, large, one, all;
  ASSIGN_OR_RETURN(const LayerTime tiny, bench->Chunk(0, std::min(kTinyChunk, longest)));  // also warms up
  const int64_t small_rows = std::min(kSmallChunk, longest);
  for (int64_t i = 0; i < kChunkRuns; ++i) {
    ASSIGN_OR_RETURN(const LayerTime run, bench->Chunk(0, small_rows));
    Keep(run, &small);
  }
  times.push_back(*small);
  // Filling the sequences is also how the longest chunk that is not too long is timed.
  const double row_us = small->layer_us / static_cast<double>(small_rows);
  int64_t fill = longest;
  for (const int64_t shorter : {small_rows, tiny.context}) {
    if (row_us * static_cast<double>(fill) * kSequences > kFillUs) fill = std::min(fill, shorter);
  }
  for (int slot = 0; slot < kSequences; ++slot) {
    ASSIGN_OR_RETURN(const LayerTime run, bench->Chunk(slot, fill));
    Keep(run, &large);
  }
  if (fill > small_rows) times.push_back(*large);
  for (int64_t i = 0; i < kDecodeRuns; ++i) {
    ASSIGN_OR_RETURN(const LayerTime run, bench->Decode(1));
    Keep(run, &one);
  }
  for (int64_t i = 0; i < kDecodeRuns; ++i) {
    ASSIGN_OR_RETURN(const LayerTime run, bench->Decode(kSequences));
    Keep(run, &all);
  }
  times.insert(times.begin(), {*one, *all});
  return times;
}

}  // namespace

absl::StatusOr<std::vector<LayerTime>> MeasureLayerTimes(const LayerTimesRequest& request) {
  try {
    return Measure(request);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("not enough memory for one layer and the head of the model");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start ", request.threads, " threads: ", error.what()));
  }
}

}  // namespace stagecoach
