#include "stage_worker/probe/layer_times.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/types/span.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
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
constexpr int64_t kShortChunks[] = {kTinyChunk, 16, 32, kSmallChunk};
constexpr int64_t kShortFill = 32;
constexpr int kDecodes[] = {1, 2, 4, kSequences};
constexpr int64_t kDecodeRuns = 5;
constexpr int64_t kMostDecodes = kDecodeRuns * static_cast<int64_t>(std::size(kDecodes));  // of one sequence
constexpr int64_t kChunkRuns = 3;
constexpr double kFillUs = 2.5e6;  // for the chunks of all sequences
constexpr size_t kLeastCacheBytes = size_t{64} << 20;

double MicrosecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Memory to read between runs, so that the caches hold as much of the model as in a stage of `stage_bytes`; 0: nothing.
class CacheFiller {
 public:
  static absl::StatusOr<CacheFiller> Create(uint64_t stage_bytes) {
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t wanted = std::max(kLeastCacheBytes, cache > 0 ? 2 * static_cast<size_t>(cache) : 0);
    if (stage_bytes > 0) wanted = std::min<size_t>(wanted, stage_bytes);
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
    bench->blocks_ = BlocksOf(context);
    bench->groups_ = static_cast<size_t>(hyper.block_groups());
    StageConfig config;
    config.first_layer = request.layer;
    config.last_layer = request.layer + 1;
    config.owns_head = true;
    config.block_tokens = kBlockTokens;
    config.group_blocks.assign(bench->groups_, static_cast<int32_t>(kSequences * bench->blocks_));
    bench->recurrent_ = hyper.recurrent();
    config.state_slots = bench->recurrent_ ? kSequences : 0;
    config.kv_type = request.kv_type;
    config.threads = request.threads;
    config.cpus = request.cpus;
    config.contended = request.contended;
    config.context = context;
    config.max_rows = kLargeChunk;
    config.max_slices = kSequences;
    config.isa = request.isa;
    config.allow_damaged = true;  // times are the same
    ASSIGN_OR_RETURN(bench->model_, StageModel::Load(request.model, config, &bench->counters_));
    ASSIGN_OR_RETURN(bench->filler_, CacheFiller::Create(request.stage_bytes));
    bench->rows_ = ProbeRows(kLargeChunk, hyper.hidden);
    bench->hidden_ = bench->rows_;
    return bench;
  }

  // Opens sequence `slot` anew and runs its first `rows` rows. It has `more` further tokens, for Decode or ChunkBehind.
  absl::StatusOr<LayerTime> Chunk(int slot, int64_t rows, int64_t more = 1) {
    MicroBatch batch;
    if (ids_[slot] != 0) batch.free.push_back(ids_[slot]);
    ids_[slot] = ++last_id_;
    computed_[slot] = rows;
    batch.open.push_back({ids_[slot], std::vector<TokenId>(static_cast<size_t>(rows + more), 0)});
    batch.slices.push_back(Slice(slot, 0, rows));
    ASSIGN_OR_RETURN(LayerTime time, Run(std::move(batch)));
    time.context = rows;
    return time;
  }

  // The next `rows` rows of a sequence.
  absl::StatusOr<LayerTime> ChunkBehind(int slot, int64_t rows) {
    MicroBatch batch;
    batch.slices.push_back(Slice(slot, computed_[slot], rows));
    computed_[slot] += rows;
    ASSIGN_OR_RETURN(LayerTime time, Run(std::move(batch)));
    time.context = computed_[slot];
    return time;
  }

  // One row of each of the first `sequences` sequences.
  absl::StatusOr<LayerTime> Decode(int sequences) {
    MicroBatch batch;
    int64_t context = 0;
    for (int slot = 0; slot < sequences; ++slot) {
      batch.slices.push_back(Slice(slot, computed_[slot]++, 1));
      batch.slices.back().sample = true;
      context = std::max(context, computed_[slot]);
    }
    ASSIGN_OR_RETURN(LayerTime time, Run(std::move(batch)));
    time.context = context;
    return time;
  }

 private:
  static int64_t BlocksOf(int64_t rows) { return (rows + kBlockTokens - 1) / kBlockTokens; }

  SequenceSlice Slice(int slot, int64_t start, int64_t rows) const {
    SequenceSlice slice;
    slice.sequence = ids_[slot];
    slice.start = static_cast<int32_t>(start);
    slice.count = static_cast<int32_t>(rows);
    std::vector<BlockId> blocks;
    for (int64_t i = BlocksOf(start); i < BlocksOf(start + rows); ++i)
      blocks.push_back(static_cast<BlockId>(slot * blocks_ + i));
    if (!blocks.empty()) slice.new_blocks.assign(groups_, blocks);
    if (!recurrent_) return slice;
    slice.state_write = slot;
    slice.state_read = start == 0 ? kNoSlot : slot;
    return slice;
  }

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
  bool recurrent_ = false;  // the model: each sequence has the state slot of its number
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

// Decode steps of so many sequences each, with whatever tokens they have.
absl::Status MeasureDecodes(LayerBench* bench, absl::Span<const int> counts, std::vector<LayerTime>* times) {
  for (const int sequences : counts) {
    std::optional<LayerTime> best;
    for (int64_t i = 0; i < kDecodeRuns; ++i) {
      ASSIGN_OR_RETURN(const LayerTime run, bench->Decode(sequences));
      Keep(run, &best);
    }
    times->push_back(*best);
  }
  return absl::OkStatus();
}

// Chunks of 64 rows and less; a warm-up first.
absl::Status MeasureShortChunks(LayerBench* bench, int64_t longest, std::vector<LayerTime>* times) {
  RETURN_IF_ERROR(bench->Chunk(0, std::min(kTinyChunk, longest)).status());
  for (const int64_t rows : kShortChunks) {
    if (rows > longest && !times->empty()) break;
    std::optional<LayerTime> best;
    for (int64_t i = 0; i < kChunkRuns; ++i) {
      ASSIGN_OR_RETURN(const LayerTime run, bench->Chunk(0, std::min(rows, longest)));
      Keep(run, &best);
    }
    times->push_back(*best);
  }
  return absl::OkStatus();
}

// The time of the runs that fill all sequences, each with `rows` rows.
absl::StatusOr<LayerTime> FillSequences(LayerBench* bench, int64_t rows) {
  std::optional<LayerTime> best;
  for (int slot = 0; slot < kSequences; ++slot) {
    ASSIGN_OR_RETURN(const LayerTime run, bench->Chunk(slot, rows));
    Keep(run, &best);
  }
  return *best;
}

// The longest chunk that is not too slow for all sequences, estimated from the shorter ones.
int64_t LongestFill(int64_t longest, const std::vector<LayerTime>& chunks) {
  const double row_us = chunks.back().layer_us / static_cast<double>(chunks.back().rows);
  int64_t fill = longest;
  for (const LayerTime* shorter : {&chunks.back(), &chunks.front()}) {
    if (row_us * static_cast<double>(fill) * kSequences > kFillUs) fill = std::min<int64_t>(fill, shorter->rows);
  }
  return fill;
}

}  // namespace

std::vector<float> ProbeRows(int64_t rows, int64_t hidden) {
  std::vector<float> values(static_cast<size_t>(rows * hidden));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(3 * UniformAt(1, i) - 1.5);
  return values;
}

absl::StatusOr<std::vector<LayerTime>> MeasureLayerTimes(const LayerTimesRequest& request) {
  // The longest chunk and what follows it must fit; models trained for a shorter context have shorter chunks.
  const int64_t context = request.model->hyper.context;
  const int64_t longest = std::min(kLargeChunk, context - kMostDecodes);
  if (longest < 1) return absl::InvalidArgumentError("the model's context is too short to be measured");
  const int64_t room = std::max(kMostDecodes, kChunkRuns * kSmallChunk);
  ASSIGN_OR_RETURN(const std::unique_ptr<LayerBench> bench,
                   LayerBench::Create(request, std::min(context, longest + room)));
  std::vector<LayerTime> chunks, decodes;
  RETURN_IF_ERROR(MeasureShortChunks(bench.get(), longest, &chunks));
  const int64_t fill = LongestFill(longest, chunks);
  const int64_t small_rows = chunks.back().rows;
  if (fill > kShortFill) {
    RETURN_IF_ERROR(FillSequences(bench.get(), kShortFill).status());
    RETURN_IF_ERROR(MeasureDecodes(bench.get(), kDecodes, &decodes));
    if (fill + kChunkRuns * small_rows <= context) {
      RETURN_IF_ERROR(bench->Chunk(0, fill, kChunkRuns * small_rows + 1).status());
      std::optional<LayerTime> behind;
      for (int64_t i = 0; i < kChunkRuns; ++i) {
        ASSIGN_OR_RETURN(const LayerTime run, bench->ChunkBehind(0, small_rows));
        Keep(run, &behind);
      }
      chunks.push_back(*behind);
    }
  }
  // Filling the sequences is also how the longest chunk is timed.
  ASSIGN_OR_RETURN(const LayerTime large, FillSequences(bench.get(), fill));
  if (fill > small_rows) chunks.push_back(large);
  constexpr int kFewAndAll[] = {1, kSequences};
  RETURN_IF_ERROR(MeasureDecodes(
      bench.get(), fill > kShortFill ? absl::MakeConstSpan(kFewAndAll) : absl::MakeConstSpan(kDecodes), &decodes));
  decodes.insert(decodes.end(), chunks.begin(), chunks.end());
  return decodes;
}

}  // namespace stagecoach
