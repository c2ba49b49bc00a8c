// What attention costs one sequence while others share the step or the cache: flat, when a sequence pays for its own
// context alone. Prints VALID or INVALID first; then, for 1 to 32 sequences with a context of their own, the time that
// attention takes in one layer: of one decoding sequence with the others idle, and per sequence with all of them
// decoding. Attention's time is that of a step with the context less that of the same step without one; the least of
// many, with one thread in CPU time.
//
//   attention_bench [context] [threads] [kv type] [isa]

#include <memory>

#include "common/base/check.h"
#include "common/gguf/dummy_model.h"
#include "common/model/model_description.h"
#include "stage_worker/model/stage_model.h"
#include "tests/bench/kernels/checked_kernels.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

constexpr int kLayers = 2;
constexpr int kMostSequences = 32;
constexpr int32_t kChunk = 256;
constexpr int32_t kBlockTokens = 32;
constexpr int kSteps = 40;  // of each kind, for one number
constexpr int kCounts[] = {1, 2, 4, 8, 16, 32};
constexpr int32_t kMostGrowth = 2 * kSteps * 6 + kBlockTokens;  // tokens that a sequence decodes in all

struct Options {
  int32_t context = 1024;
  int32_t threads = 1;
  KvType kv_type = KvType::kF16;
  std::string isa = "auto";
};

// The first layers of a model as a stage in the middle of a pipeline, so that nothing but layers runs.
class Stage {
 public:
  explicit Stage(const Options& options)
      : model_(OpenModel(DummyModelPath("qwen3-0.6b", "q8_0")).value()),
        clock_(options.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {
    StageConfig config;
    config.first_layer = 1;
    config.last_layer = 1 + kLayers;
    config.block_tokens = kBlockTokens;
    config.group_blocks = {kMostSequences * (BlocksOf(options.context) + 2 * BlocksOf(kMostGrowth) + 2)};
    config.kv_type = options.kv_type;
    config.threads = options.threads;
    config.context = options.context + kMostGrowth;
    config.max_rows = kChunk;
    config.max_slices = kMostSequences;
    if (options.isa != "auto") config.isa = ParseInstructionSet(options.isa).value();
    stage_ = StageModel::Load(model_, config, &counters_).value();
    hidden_.assign(static_cast<size_t>(kChunk * model_->hyper.hidden), 0.5f);
  }

  // A new sequence with so many tokens of context.
  SequenceId Open(int32_t context) {
    const SequenceId id = ++last_id_;
    sequences_.emplace_back();
    batch_.open.push_back({.sequence = id, .prompt = {1}});
    while (sequences_[id - 1].rows < context) {
      Feed(id, std::min(kChunk, context - sequences_[id - 1].rows));
      Step();
    }
    return id;
  }

  // Seconds of a step in which each of these decodes one row.
  double Decode(const std::vector<SequenceId>& sequences) {
    for (SequenceId id : sequences) Feed(id, 1);
    return Step();
  }

 private:
  struct Sequence {
    int32_t rows = 0, blocks = 0;
  };

  static int32_t BlocksOf(int32_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

  void Feed(SequenceId id, int32_t count) {
    Sequence& sequence = sequences_[id - 1];
    SequenceSlice slice = {.sequence = id, .start = sequence.rows, .count = count};
    sequence.rows += count;
    const int32_t more = BlocksOf(sequence.rows) - sequence.blocks;
    if (more > 0) slice.new_blocks.resize(1);
    for (; sequence.blocks < BlocksOf(sequence.rows); ++sequence.blocks) slice.new_blocks[0].push_back(next_block_++);
    batch_.slices.push_back(std::move(slice));
  }

  double Step() {
    CHECK(stage_->Begin(batch_).ok());
    const double begin = SecondsOf(clock_);
    stage_->Forward(batch_, hidden_.data());
    const double seconds = SecondsOf(clock_) - begin;
    std::fill(hidden_.begin(), hidden_.end(), 0.5f);
    batch_ = {.number = batch_.number + 1};
    return seconds;
  }

  const std::shared_ptr<const ModelDescription> model_;
  const clockid_t clock_;
  StageCounters counters_;
  std::unique_ptr<StageModel> stage_;
  std::vector<float> hidden_;
  std::vector<Sequence> sequences_;
  SequenceId last_id_ = 0;
  BlockId next_block_ = 0;
  MicroBatch batch_;
};

// Microseconds of attention in one layer of a step of all `long_ones`, which have a context, against one of as many
// `short_ones`, which have none. The two take turns.
double AttentionUs(Stage* stage, const std::vector<SequenceId>& long_ones, const std::vector<SequenceId>& short_ones) {
  double least_long = 1e9, least_short = 1e9;
  for (int i = 0; i < kSteps; ++i) {
    least_long = std::min(least_long, stage->Decode(long_ones));
    least_short = std::min(least_short, stage->Decode(short_ones));
  }
  return (least_long - least_short) * 1e6 / kLayers;
}

int Main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.context = std::max(1, std::atoi(argv[1]));
  if (argc > 2) options.threads = std::max(1, std::atoi(argv[2]));
  if (argc > 3) {
    const absl::StatusOr<KvType> type = ParseKvType(argv[3]);
    if (!type.ok()) return std::fprintf(stderr, "%s\n", type.status().ToString().c_str()), 2;
    options.kv_type = *type;
  }
  if (argc > 4) options.isa = argv[4];
  CheckedKernelsOf(options.isa);
  std::printf("context %d, KV %s, %d threads; microseconds of attention in a layer\n", options.context,
              KvTypeName(options.kv_type), options.threads);
  std::printf("%10s %24s %24s\n", "sequences", "of one, others idle", "per sequence, all decode");
  Stage stage(options);
  std::vector<SequenceId> long_ones, short_ones;
  for (int sequences : kCounts) {
    while (static_cast<int>(long_ones.size()) < sequences) {
      long_ones.push_back(stage.Open(options.context));
      short_ones.push_back(stage.Open(1));
    }
    const double one = AttentionUs(&stage, {long_ones[0]}, {short_ones[0]});
    const double all = AttentionUs(&stage, long_ones, short_ones) / sequences;
    std::printf("%10d %24.1f %24.1f\n", sequences, one, all);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
