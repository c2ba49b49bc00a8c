// A stage takes the working memory that the planner counted, and a step takes no memory from the heap. Counted through
// operator new of the whole program while a step runs. What may take some: opening and freeing a sequence; the first
// sample of each thread; a sequence's history where it doubles; a repetition penalty (the set of tokens it has met) and
// lists of log-probabilities, which belong to the result.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/grammar/mask.h"
#include "common/model/footprint.h"
#include "common/step/step.h"
#include "common/text/token_bytes.h"
#include "common/text/vocabulary.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/stage_model.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/ffn/expert_rig.h"

// With the sanitizers g++ inlines these and finds the memory of aligned_alloc freed by free in a delete expression.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
std::atomic<int64_t> aligned_bytes{0};  // in use now, of those that ask for an alignment: AlignedBuffer

void* Allocate(size_t bytes, size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, alignof(std::max_align_t)); }
// The size lies before what is handed out.
void* operator new(size_t bytes, std::align_val_t alignment) {
  const size_t before = static_cast<size_t>(alignment);
  uint8_t* const memory = static_cast<uint8_t*>(Allocate(before + bytes, before));
  std::memcpy(memory, &bytes, sizeof(bytes));
  aligned_bytes += static_cast<int64_t>(bytes);
  return memory + before;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t alignment) noexcept {
  if (memory == nullptr) return;
  uint8_t* const begin = static_cast<uint8_t*>(memory) - static_cast<size_t>(alignment);
  size_t bytes;
  std::memcpy(&bytes, begin, sizeof(bytes));
  aligned_bytes -= static_cast<int64_t>(bytes);
  std::free(begin);
}
void operator delete(void* memory, size_t, std::align_val_t alignment) noexcept { operator delete(memory, alignment); }

namespace stagecoach {
namespace {

struct Case {
  TensorType type;
  int threads;
  const char* architecture = "";  // a random tiny one; plain layers without
};

class StepMemory : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int32_t kBlockTokens = 16, kMaxRows = 64, kPrompt = 96;
  static constexpr SequenceId kSequences = 3;

  StepMemory() {
    testing::TinyModelOptions options;
    options.type = GetParam().type;
    const std::string path = dir_.File("tiny.gguf");
    const std::string architecture = GetParam().architecture;
    const auto model =
        OpenModel(architecture.empty()
                      ? testing::WriteTinyModel(path, options)
                      : testing::WriteTinyArchitecture(path, testing::TinyArchitecture(architecture, options.type)))
            .value();
    windows_ = model->hyper.group_windows();
    recurrent_ = model->hyper.recurrent();
    const StageConfig config = {.last_layer = model->hyper.layer_count(),
                                .owns_embedding = true,
                                .owns_head = true,
                                .block_tokens = kBlockTokens,
                                .group_blocks = std::vector<int32_t>(windows_.size(), 64),
                                .state_slots = recurrent_ ? static_cast<int32_t>(kSequences) : 0,
                                .group_windows = windows_,
                                .threads = GetParam().threads,
                                .context = 512,
                                .max_rows = kMaxRows,
                                .max_slices = kSequences};
    stage_ = StageModel::Load(model, config, &counters_).value();
    hidden_.resize(static_cast<size_t>(kMaxRows * model->hyper.hidden));
  }

  // Rows for one sequence; it is sampled after the last one when its history ends there.
  void Add(SequenceId sequence, int32_t count, bool sample) {
    SequenceSlice& slice = batch_.slices.emplace_back();
    slice.sequence = sequence;
    slice.start = rows_[sequence];
    slice.count = count;
    slice.sample = sample;
    if (recurrent_) {
      slice.state_write = static_cast<SlotId>(sequence);
      slice.state_read = slice.start == 0 ? kNoSlot : slice.state_write;
    }
    for (int32_t i = 0; i < count; ++i) slice.tokens.push_back((slice.start + i) * 7 % 300);
    for (const int64_t window : windows_) {
      slice.released_blocks.push_back(static_cast<int32_t>(FirstPlaceSeen(slice.start, window, kBlockTokens)));
      released_ += slice.released_blocks.back();
    }
    rows_[sequence] += count;
    for (; blocks_[sequence] * kBlockTokens < rows_[sequence]; ++blocks_[sequence]) {
      slice.new_blocks.resize(windows_.size());
      for (std::vector<BlockId>& blocks : slice.new_blocks) blocks.push_back(next_block_);
      ++next_block_;
    }
  }

  void AddAll(int32_t count, bool sample) {
    for (SequenceId sequence = 0; sequence < kSequences; ++sequence) Add(sequence, count, sample);
  }

  void Open(SequenceId sequence, int32_t prompt, float temperature) {
    OpenSequence& open = batch_.open.emplace_back();
    open.sequence = sequence;
    open.prompt.assign(static_cast<size_t>(prompt), 5);
    open.sampling.temperature = temperature;
    open.sampling.top_p = 0.9f;
    open.sampling.logprobs = 0;
  }

  // How often the stage took memory for the batch.
  int Step() {
    allocations = 0;
    counting = true;
    const absl::Status taken = stage_->Begin(batch_);
    if (taken.ok()) {
      stage_->Forward(batch_, hidden_.data());
      stage_->Finish(batch_, hidden_.data(), &result_);
    }
    counting = false;
    EXPECT_TRUE(taken.ok()) << taken;
    const uint64_t number = batch_.number;
    batch_ = MicroBatch();
    batch_.number = number + 1;
    return allocations;
  }

  testing::TempDir dir_;
  StageCounters counters_;
  std::unique_ptr<StageModel> stage_;
  std::vector<float> hidden_;
  MicroBatch batch_;
  StepResult result_;             // as the stage loop does, one for all steps
  std::vector<int64_t> windows_;  // [groups]
  bool recurrent_ = false;        // each sequence has the state slot of its number
  int64_t released_ = 0;
  int32_t rows_[kSequences] = {}, blocks_[kSequences] = {};
  BlockId next_block_ = 0;
};

TEST_P(StepMemory, IsThereBeforePrefillChunksAndDecodeStepsRun) {
  for (SequenceId sequence = 0; sequence < kSequences; ++sequence) Open(sequence, kPrompt, sequence == 0 ? 0 : 0.8f);
  AddAll(8, false);
  EXPECT_GT(Step(), 0) << "opening a sequence takes memory, and this test can see it";
  for (SequenceId sequence = 0; sequence < kSequences; ++sequence) {
    Add(sequence, kMaxRows, false);
    EXPECT_EQ(Step(), 0) << "a chunk of the prompt of sequence " << sequence;
  }
  AddAll(20, false);
  EXPECT_EQ(Step(), 0) << "chunks of several prompts, through new blocks";
  for (int i = 0; i < 2; ++i) {
    AddAll(i == 0 ? kPrompt - kMaxRows - 28 : 1, true);
    Step();  // the first samples: every thread's sampler takes its memory
  }
  for (int i = 0; i < 40; ++i) {
    AddAll(1, true);
    EXPECT_EQ(Step(), 0) << "decode step " << i;
    ASSERT_EQ(result_.sampled.size(), static_cast<size_t>(kSequences));
  }
  EXPECT_EQ(released_ > 0, std::ranges::any_of(windows_, [](int64_t window) { return window > 0; }));
}

INSTANTIATE_TEST_SUITE_P(Models, StepMemory,
                         ::testing::Values(Case{TensorType::kQ8_0, 1}, Case{TensorType::kQ8_0, 2},
                                           Case{TensorType::kF32, 1}, Case{TensorType::kBF16, 2},
                                           Case{TensorType::kF32, 1, "glm4moe"}, Case{TensorType::kQ8_0, 2, "glm4moe"},
                                           Case{TensorType::kF32, 1, "gpt-oss"}, Case{TensorType::kQ8_0, 2, "gpt-oss"},
                                           Case{TensorType::kQ8_0, 1, "deepseek2"},
                                           Case{TensorType::kQ8_0, 2, "deepseek2"},
                                           Case{TensorType::kQ8_0, 2, "gemma3"}, Case{TensorType::kF32, 1, "qwen35"},
                                           Case{TensorType::kQ8_0, 2, "qwen35moe"}),
                         [](const auto& info) {
                           std::string name = std::string(GetTensorType(info.param.type).name) + "With" +
                                              std::to_string(info.param.threads) + "Threads";
                           for (const char* c = info.param.architecture; *c != 0; ++c) name += *c == '-' ? '_' : *c;
                           return name;
                         });

// The gang keeps its counters on cache lines of their own: its own, and one of each thread.
size_t GangBytes(int threads) { return sizeof(Gang) + static_cast<size_t>(threads) * 64; }

// Everything that changes a buffer: the ends of the pipeline, threads, rows, the cache that is smaller than the
// context, and types whose products want their input as floats, codes, bfloat16 or several of these.
TEST(StageMemory, IsWhatThePlannerCounts) {
  struct Shape {
    TensorType type;
    bool mixed;  // the down projections in Q8_0, whatever the others are
    int threads;
    int32_t max_rows, blocks;
    bool owns_head;
  };
  const Shape shapes[] = {
      {TensorType::kF32, false, 1, 64, 64, true},   {TensorType::kF32, true, 3, 1, 64, true},
      {TensorType::kBF16, false, 2, 33, 64, true},  {TensorType::kBF16, true, 2, 33, 64, false},
      {TensorType::kQ8_0, false, 1, 200, 2, true},  {TensorType::kQ8_0, false, 4, 200, 2, false},
      {TensorType::kQ4_0, false, 40, 16, 64, true},
  };
  const testing::TempDir dir;
  for (const Shape& shape : shapes) {
    for (const bool fused : {false, true}) {
      testing::TinyModelOptions options;
      options.type = shape.type;
      options.fused_qkv = fused;
      options.ffn_of_layers = {96, 32, 160, 64};
      GgufWriter writer = testing::TinyModel(options);
      if (shape.mixed) {
        writer.SetTensor("blk.2.ffn_down.weight", {160, 64}, TensorType::kQ8_0, std::vector<float>(160 * 64, 0.5f));
      }
      const auto model = OpenModel(testing::WriteModel(dir.File("tiny.gguf"), writer)).value();
      const StageConfig config = {.first_layer = 1,
                                  .last_layer = 4,
                                  .owns_head = shape.owns_head,
                                  .group_blocks = {shape.blocks},
                                  .threads = shape.threads,
                                  .context = 512,
                                  .max_rows = shape.max_rows,
                                  .max_slices = 8};
      StageCounters counters;
      const int64_t before = aligned_bytes;
      const auto stage = StageModel::Load(model, config, &counters).value();
      const StepLimits limits = {.max_rows = shape.max_rows,
                                 .max_slices = 8,
                                 .context = std::min(512, shape.blocks * 32),
                                 .threads = shape.threads,
                                 .bf16_dot = HasBf16Dot(*ParseInstructionSet(stage->isa()))};
      const StageScratchSizes counted = ScratchSizesOf(*model, 1, 4, shape.owns_head, limits);
      const uint64_t taken_at_once = counted.layers.bytes() + (shape.owns_head ? counted.head->head_bytes() : 0);
      EXPECT_EQ(aligned_bytes - before, static_cast<int64_t>(taken_at_once + GangBytes(shape.threads)))
          << GetTensorType(shape.type).name << ", " << shape.threads << " threads";
      EXPECT_EQ(stage->scratch_bytes(), counted.bytes());
      if (shape.owns_head) {
        EXPECT_GT(counted.bytes(), taken_at_once) << "samplers take theirs with the first samples";
      }
    }
  }
}

// Windows have a memory of begins, angles are those of every kind, and outputs that are completed wait somewhere.
TEST(StageMemory, IsWhatThePlannerCountsForLayersThatDiffer) {
  const testing::TempDir dir;
  const auto plain = OpenModel(testing::WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  const StepLimits limits = {.max_rows = 40, .max_slices = 8, .context = 512, .threads = 3};
  for (int kinds = 0; kinds < 4; ++kinds) {
    const auto model = std::make_shared<ModelDescription>(*plain);
    std::vector<LayerSpec>& layers = model->hyper.layers;
    if (kinds > 0) layers[1].attention.kind = AttentionKind::kWindowed;
    layers[1].attention.window = 40;
    if (kinds > 1) layers[2].attention.rope.dims = 16;
    if (kinds > 2) layers[3].residual_scale = 0.5;
    const StageConfig config = {.last_layer = 4,
                                .group_blocks = {16},
                                .threads = limits.threads,
                                .context = limits.context,
                                .max_rows = limits.max_rows,
                                .max_slices = limits.max_slices};
    StageCounters counters;
    const int64_t before = aligned_bytes;
    const auto stage = StageModel::Load(model, config, &counters).value();
    const uint64_t counted = ScratchSizesOf(*model, 0, 4, false, limits).bytes();
    EXPECT_EQ(aligned_bytes - before, static_cast<int64_t>(counted + GangBytes(limits.threads)));
    if (kinds > 0) {
      LayerSpec& last = layers[static_cast<size_t>(kinds)];
      const LayerSpec changed = last;
      last = layers[0];
      EXPECT_LT(ScratchSizesOf(*model, 0, 4, false, limits).bytes(), counted);
      last = changed;
    }
  }
}

// Of delta nets and of gated attention, alone and beside each other.
TEST(StageMemory, OfRecurrentLayersIsWhatThePlannerCounts) {
  const testing::TempDir dir;
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0}) {
    const auto model =
        OpenModel(testing::WriteTinyArchitecture(dir.File("m.gguf"), testing::TinyArchitecture("qwen35moe", type)))
            .value();
    for (const auto& [first, last] : {std::pair(0, 2), std::pair(2, 3), std::pair(1, 4)}) {
      const StepLimits limits = {.max_rows = 40,
                                 .max_slices = 8,
                                 .context = 512,
                                 .threads = 3,
                                 .bf16_dot = SelectKernels("auto").value()->bf16_dot};
      const StageConfig config = {.first_layer = first,
                                  .last_layer = last,
                                  .group_blocks = {16},
                                  .state_slots = 2,
                                  .threads = limits.threads,
                                  .context = limits.context,
                                  .max_rows = limits.max_rows,
                                  .max_slices = limits.max_slices};
      StageCounters counters;
      const int64_t before = aligned_bytes;
      const auto stage = StageModel::Load(model, config, &counters).value();
      const uint64_t counted = ScratchSizesOf(*model, first, last, false, limits).bytes();
      EXPECT_EQ(aligned_bytes - before, static_cast<int64_t>(counted + GangBytes(limits.threads)))
          << first << " to " << last;
      EXPECT_EQ(stage->scratch_bytes(), counted);
    }
  }
}

// Of layers of experts, with a shared unit and without one, and with more rows than are computed at once.
TEST(StageMemory, OfExpertsIsWhatThePlannerCounts) {
  for (const auto& [shared, gated] : {std::pair(0, false), std::pair(256, false), std::pair(256, true)}) {
    for (const int32_t max_rows : {1, 40, 3000}) {
      ExpertShape shape;
      shape.hidden = 256;
      shape.ffn = {.kind = FfnKind::kExperts,
                   .width = 256,
                   .experts = 6,
                   .experts_used = 2,
                   .shared_width = shared,
                   .shared_gated = gated};
      shape.gate = TensorType::kQ4_K;
      shape.down = TensorType::kBF16;
      const ExpertRig rig(shape, *SelectKernels("auto").value());
      StepLimits limits{.max_rows = max_rows, .max_slices = 2, .context = 512, .threads = 3};
      const LayerScratchSizes sizes = ScratchSizesOf(rig.model(), 0, 1, false, limits).layers;
      const int64_t before = aligned_bytes;
      const StepScratch scratch(sizes);
      EXPECT_EQ(aligned_bytes - before, static_cast<int64_t>(sizes.bytes())) << max_rows << " rows";
      EXPECT_EQ(sizes.experts.rows, std::min(max_rows, 2048));
    }
  }
}

TEST(StageMemory, FollowsTheFormsThatTheKernelsOfEveryInstructionSetWant) {
  for (const Isa& isa : ListIsas()) {
    EXPECT_EQ(isa.kernels->bf16_dot, HasBf16Dot(*ParseInstructionSet(isa.kernels->isa))) << isa.kernels->isa;
  }
}

TEST(StageMemory, OfSamplersIsAtMostWhatThePlannerCounts) {
  for (const int64_t vocab : {260, 4096, 151936, 1000000}) {
    EXPECT_LE(Sampler::MaxBytes(vocab), static_cast<uint64_t>(vocab) * kSamplerBytesPerToken + kSamplerBytes);
  }
}

// Of real vocabularies: as many masks as are kept, what they are found in, one for each sequence, and programs.
TEST(StageMemory, OfGrammarsIsAtMostWhatThePlannerCounts) {
  GrammarAutomaton places;  // with a mask each
  constexpr GrammarStateId kPlaces = GrammarMasks::kMaxCachedMasks + 10;
  places.states.resize(kPlaces + 1);
  for (GrammarStateId id = 0; id <= kPlaces; ++id) {
    places.states[id].accepting = true;
    if (id < kPlaces) places.states[id].bytes = {{0, 255, id + 1}};
  }
  const GrammarProgram program = GrammarProgram::Make(places).value();
  for (const char* name : {"llama-spm", "gpt-2", "qwen"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/tokenizers/", name, ".gguf"));
    const auto file = GgufFile::Open(path).value();
    const auto tokens = static_cast<int64_t>(ReadVocabulary(file->metadata())->texts.size());
    const auto vocabulary = ReadGrammarVocabulary(file->metadata(), tokens).value();
    TokenId letter = 0;
    while (vocabulary->BytesOf(letter) != "a") ++letter;
    GrammarMasks masks(vocabulary);
    GrammarMatcher matcher(program, vocabulary);
    std::vector<uint64_t> mask;
    for (GrammarStateId place = 0; place < kPlaces; ++place) {
      masks.Allowed(matcher, &mask);
      ASSERT_TRUE(matcher.Append(letter));
    }
    constexpr int64_t kSequences = 64;
    const HeadScratchSizes sizes = {.vocab = tokens, .sequences = kSequences};
    const size_t taken = masks.cached_bytes() + vocabulary->memory_bytes() + kSequences * mask.size() * sizeof(mask[0]);
    const size_t programs =
        kGrammarExpansion * kMaxFollowedBytes + static_cast<size_t>(MostGrammars(kSequences)) * kMaxGrammarRowBytes;
    EXPECT_LE(taken + programs, sizes.grammar_bytes()) << name;
    EXPECT_GE(taken, static_cast<size_t>(tokens) * kMaskBytesPerToken * 6 / 10) << name;
  }
}

}  // namespace
}  // namespace stagecoach
