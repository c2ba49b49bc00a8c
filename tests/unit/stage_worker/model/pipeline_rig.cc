#include "tests/unit/stage_worker/model/pipeline_rig.h"

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach::testing {

std::string TwinIsa() {
  if (!(*SelectKernels("auto"))->bf16_dot) return "auto";
  for (const char* isa : {"avx512-vnni", "avx512", "avx2"}) {
    if (SelectKernels(isa).ok()) return isa;
  }
  return "scalar";
}

PipelineRig::PipelineRig(std::shared_ptr<const ModelDescription> model, const RigOptions& options)
    : model_(std::move(model)), block_tokens_(options.block_tokens) {
  const int32_t blocks = 4096 / options.block_tokens;
  const int64_t layers = model_->hyper.layer_count();
  std::vector<int64_t> begins = {0};
  begins.insert(begins.end(), options.cuts.begin(), options.cuts.end());
  for (int i = 1; i < options.stages; ++i) begins.push_back(layers * i / options.stages);
  begins.push_back(layers);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    StageConfig config;
    config.first_layer = begins[i];
    config.last_layer = begins[i + 1];
    config.owns_embedding = i == 0;
    config.owns_head = config.last_layer == layers;
    config.state_slots = model_->hyper.recurrent() ? kStateSlots : 0;
    config.block_tokens = options.block_tokens;
    config.group_blocks.assign(static_cast<size_t>(model_->hyper.block_groups()), 2 * blocks);
    config.group_blocks.back() = blocks;
    config.kv_type = options.kv_type;
    config.threads = options.threads;
    config.allow_damaged = options.allow_damaged;
    config.most_guesses = options.most_guesses;
    config.context = model_->hyper.context;
    config.max_rows = kMaxRows;
    config.max_slices = kMaxSlices;
    if (options.isa != "auto") config.isa = ParseInstructionSet(options.isa).value();
    counters_.push_back(std::make_unique<StageCounters>());
    stages_.push_back(StageModel::Load(model_, config, counters_.back().get()).value());
  }
  for (SlotId slot = 0; model_->hyper.recurrent() && slot < kStateSlots; ++slot) free_slots_.push_back(slot);
  // Handed out in an order in which neighbours in a sequence are not neighbours in the pool, another one in each group.
  // The last group's pool has none of the blocks of the other groups' tables, so that reading the wrong table shows.
  for (int32_t group = 0; group < model_->hyper.block_groups(); ++group) {
    std::vector<BlockId>& free = free_blocks_.emplace_back();
    const int32_t first = group + 1 < model_->hyper.block_groups() ? blocks : 0;
    for (int32_t i = 0; i < blocks; ++i) free.push_back(first + (i * 37 + 11 + 5 * group) % blocks);
  }
}

SequenceId PipelineRig::Open(const std::vector<TokenId>& prompt, const SamplingParams& sampling) {
  const SequenceId sequence = next_sequence_++;
  Reopen(sequence, prompt, sampling);
  return sequence;
}

void PipelineRig::Reopen(SequenceId sequence, const std::vector<TokenId>& prompt, const SamplingParams& sampling,
                         const std::vector<TokenId>& output) {
  batch_.open.push_back({.sequence = sequence, .prompt = prompt, .output = output, .sampling = sampling});
  sequences_[sequence] = {.tables = BlockLists(free_blocks_.size()), .next_state = TakeSlot()};
}

SlotId PipelineRig::TakeSlot() {
  if (!model_->hyper.recurrent()) return kNoSlot;
  const SlotId slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void PipelineRig::GiveSlot(SlotId slot) {
  if (slot != kNoSlot) free_slots_.push_back(slot);
}

SlotId PipelineRig::KeepState(SequenceId sequence) {
  sequences_.at(sequence).next_state = TakeSlot();
  return sequences_.at(sequence).state;
}

SequenceId PipelineRig::OpenBehind(SequenceId other, int32_t rows, SlotId state, const std::vector<TokenId>& prompt,
                                   const SamplingParams& sampling) {
  const SequenceId sequence = Open(prompt, sampling);
  Sequence& opened = sequences_.at(sequence);
  opened.rows = rows;
  opened.shared = static_cast<size_t>(rows / block_tokens_);
  opened.state = state;
  for (size_t group = 0; group < opened.tables.size(); ++group) {
    const std::vector<BlockId>& table = sequences_.at(other).tables[group];
    opened.tables[group].assign(table.begin(), table.begin() + static_cast<int64_t>(opened.shared));
  }
  batch_.open.back().shared_blocks = opened.tables;
  batch_.open.back().shared_rows = rows;
  return sequence;
}

void PipelineRig::Close(SequenceId sequence) {
  const Sequence& closed = sequences_.at(sequence);
  for (size_t group = 0; group < closed.tables.size(); ++group) {
    const std::vector<BlockId>& table = closed.tables[group];
    free_blocks_[group].insert(free_blocks_[group].end(), table.begin() + static_cast<int64_t>(closed.shared),
                               table.end());
  }
  GiveSlot(closed.next_state);
  for (const SlotId slot : closed.guesses) GiveSlot(slot);
  sequences_.erase(sequence);
  batch_.free.push_back(sequence);
}

void PipelineRig::Feed(SequenceId sequence, const std::vector<TokenId>& tokens, bool sample,
                       const std::vector<TokenId>& targets) {
  Sequence& state = sequences_.at(sequence);
  AddSlice({.sequence = sequence,
            .start = state.rows,
            .count = static_cast<int32_t>(tokens.size()),
            .tokens = tokens,
            .sample = sample,
            .targets = targets,
            .state_read = state.state,
            .state_write = state.next_state});
  state.state = state.next_state;
}

void PipelineRig::Guess(SequenceId sequence, TokenId token) {
  Sequence& state = sequences_.at(sequence);
  const SlotId read = state.guesses.empty() ? state.state : state.guesses.back();
  state.guesses.push_back(TakeSlot());
  AddSlice({.sequence = sequence,
            .start = state.rows,
            .count = 1,
            .tokens = {token},
            .sample = true,
            .state_read = read,
            .state_write = state.guesses.back(),
            .guess = true});
}

void PipelineRig::Hold(SequenceId sequence) {
  Sequence& state = sequences_.at(sequence);
  GiveSlot(state.state);
  state.state = state.next_state = state.guesses.front();
  state.guesses.erase(state.guesses.begin());
}

void PipelineRig::Miss(SequenceId sequence) {
  Sequence& state = sequences_.at(sequence);
  for (const SlotId slot : state.guesses) GiveSlot(slot);
  state.rows -= static_cast<int32_t>(state.guesses.size());
  state.guesses.clear();
}

void PipelineRig::AddSlice(SequenceSlice slice) {
  Sequence& state = sequences_.at(slice.sequence);
  state.rows += slice.count;
  while (static_cast<int32_t>(state.tables[0].size()) * block_tokens_ < state.rows) {
    slice.new_blocks.resize(free_blocks_.size());
    for (size_t group = 0; group < free_blocks_.size(); ++group) {
      slice.new_blocks[group].push_back(free_blocks_[group].back());
      state.tables[group].push_back(free_blocks_[group].back());
      free_blocks_[group].pop_back();
    }
  }
  batch_.slices.push_back(std::move(slice));
}

StepResult PipelineRig::Step() {
  hidden_.assign(static_cast<size_t>(batch_.rows() * model_->hyper.hidden), 0);
  StepResult result;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const absl::Status taken = stages_[i]->Begin(batch_);
    EXPECT_TRUE(taken.ok()) << taken;
    if (batch_.rows() == 0) continue;
    stages_[i]->Forward(batch_, hidden_.data());
    if (i + 1 == stages_.size()) stages_[i]->Finish(batch_, hidden_.data(), &result);
  }
  const uint64_t number = batch_.number;
  batch_ = MicroBatch();
  batch_.number = number + 1;
  return result;
}

StepResult PipelineRig::Prefill(SequenceId sequence, const std::vector<TokenId>& tokens, int chunk) {
  StepResult result;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk)) {
    const size_t end = std::min(tokens.size(), at + static_cast<size_t>(chunk));
    Feed(sequence, {tokens.begin() + static_cast<int64_t>(at), tokens.begin() + static_cast<int64_t>(end)},
         end == tokens.size());
    result = Step();
  }
  return result;
}

std::vector<std::vector<float>> PipelineRig::LogitsOf(const std::vector<TokenId>& tokens, size_t chunk) {
  const SequenceId sequence = Open(tokens);
  std::vector<std::vector<float>> logits;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto begin = tokens.begin() + static_cast<int64_t>(at);
    const size_t count = std::min(chunk, tokens.size() - at);
    Feed(sequence, {begin, begin + static_cast<int64_t>(count)}, false);
    Step();
    for (size_t row = 0; row < count; ++row) logits.push_back(Logits(static_cast<int64_t>(row)));
  }
  return logits;
}

std::vector<float> PipelineRig::Logits(int64_t row) {
  std::vector<float> logits(static_cast<size_t>(model_->hyper.vocab));
  stages_.back()->ComputeLogits(hidden_.data() + row * model_->hyper.hidden, logits.data());
  return logits;
}

}  // namespace stagecoach::testing
