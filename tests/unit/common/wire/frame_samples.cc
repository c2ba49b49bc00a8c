#include "tests/unit/common/wire/frame_samples.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/step/step.h"

namespace stagecoach {

FrameLimits SmallLimits() {
  FrameLimits limits;
  limits.job = {.run_id = 0x0123456789abcdef, .epoch = 1};
  limits.stages = 3;
  limits.hidden = 5;
  limits.vocab = 100;
  limits.context = 64;
  limits.group_blocks = {16, 12};
  limits.group_windows = {0, 10};
  limits.block_tokens = 8;
  limits.max_rows = 32;
  limits.max_slices = 4;
  limits.max_prompt_logprobs = 3;
  limits.max_open_tokens = 96;
  return limits;
}

MicroBatch SampleBatch() {
  MicroBatch batch;
  batch.number = 7;
  batch.free = {9};
  OpenSequence open;
  open.sequence = 2;
  open.prompt = {11, 12};
  open.output = {13};
  open.sampling.temperature = 0.5f;
  open.sampling.logprobs = 2;
  open.sampling.prompt_logprobs = 3;
  open.sampling.logit_bias = {{40, -1.5f}};
  batch.open = {open};
  SequenceSlice chunk;
  chunk.sequence = 1;
  chunk.start = 6;
  chunk.count = 3;
  chunk.tokens = {21, 22, 23};
  chunk.new_blocks = {{15}, {11}};
  chunk.targets = {22, 23, kNoToken};
  SequenceSlice start;
  start.sequence = 2;
  start.count = 1;
  start.tokens = {11};
  start.new_blocks = {{3}, {3}};
  start.sample = true;
  batch.slices = {chunk, start};
  return batch;
}

FrameLimits StatefulLimits() {
  FrameLimits limits = SmallLimits();
  limits.state_slots = 9;
  return limits;
}

MicroBatch StatefulBatch() {
  MicroBatch batch = SampleBatch();
  batch.slices[0].state_read = 8;
  batch.slices[0].state_write = 2;
  batch.slices[1].state_write = 0;
  return batch;
}

FrameLimits GuessingLimits() {
  FrameLimits limits = SmallLimits();
  limits.most_guesses = 3;
  return limits;
}

MicroBatch GuessingBatch() {
  MicroBatch batch;
  batch.number = 7;
  SequenceSlice guess;
  guess.sequence = 1;
  guess.start = 24;
  guess.count = 1;
  guess.tokens = {21};
  guess.new_blocks = {{15}, {11}};
  guess.sample = true;
  guess.released_blocks = {0, 1};
  guess.guess = true;
  SequenceSlice back;
  back.sequence = 2;
  back.start = 16;
  back.count = 1;
  back.tokens = {33};
  back.sample = true;
  batch.slices = {guess, back};
  return batch;
}

MicroBatch WithGrammars(MicroBatch batch) {
  batch.drop_grammars = {3, 1};
  batch.define_grammars = {{4, "a program"}, {7, std::string("\0\xff", 2)}};
  batch.open[0].grammar = 7;
  return batch;
}

MicroBatch WithoutTokens(MicroBatch batch) {
  for (SequenceSlice& slice : batch.slices) {
    if (!slice.guess) slice.tokens.clear();
  }
  return batch;
}

namespace {

class Draw {
 public:
  explicit Draw(std::mt19937_64* random) : random_(random) {}
  int64_t Between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(*random_); }
  bool Coin() { return Between(0, 1) == 1; }
  float Unit() { return std::uniform_real_distribution<float>(0.f, 1.f)(*random_); }
  std::vector<int32_t> List(int64_t count, int64_t least, int64_t most) {
    std::vector<int32_t> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(static_cast<int32_t>(Between(least, most)));
    return list;
  }
  uint64_t Word() { return (*random_)(); }
  std::string Text(int64_t bytes) {
    std::string text;
    while (static_cast<int64_t>(text.size()) < bytes) text.push_back(static_cast<char>(Between(0, 255)));
    return text;
  }

 private:
  std::mt19937_64* random_;
};

SamplingParams RandomSampling(const FrameLimits& limits, Draw* draw) {
  SamplingParams sampling;
  sampling.temperature = 2 * draw->Unit();
  sampling.top_k = static_cast<int32_t>(draw->Between(0, 50));
  sampling.top_p = 1 - draw->Unit() / 2;
  sampling.min_p = draw->Unit();
  sampling.repeat_penalty = 0.5f + draw->Unit();
  sampling.presence_penalty = draw->Unit() - 0.5f;
  sampling.frequency_penalty = draw->Unit() - 0.5f;
  sampling.repeat_last_n = static_cast<int32_t>(draw->Between(-1, 100));
  sampling.seed = draw->Word();
  sampling.logprobs = static_cast<int32_t>(draw->Between(-1, kMaxLogprobs));
  sampling.prompt_logprobs = static_cast<int32_t>(draw->Between(0, limits.max_prompt_logprobs));
  for (int64_t i = draw->Between(0, 3); i > 0; --i) {
    sampling.logit_bias.emplace_back(static_cast<int32_t>(draw->Between(0, limits.vocab - 1)), draw->Unit() - 0.5f);
  }
  sampling.min_new_tokens = static_cast<int32_t>(draw->Between(0, 50));
  sampling.end_tokens = draw->List(draw->Between(0, 3), 0, limits.vocab - 1);
  return sampling;
}

}  // namespace

MicroBatch RandomBatch(const FrameLimits& limits, std::mt19937_64* random) {
  Draw draw(random);
  MicroBatch batch;
  batch.number = draw.Word() >> draw.Between(0, 63);
  for (int64_t i = draw.Between(0, limits.MaxFrees()); i > 0; --i) {
    batch.free.push_back(draw.Word() << 8 | static_cast<uint64_t>(i));
  }
  for (int64_t i = draw.Coin() ? draw.Between(0, limits.MaxGrammars()) : 0; i > 0; --i) {
    batch.drop_grammars.push_back(draw.Word() << 8 | static_cast<uint64_t>(i));
  }
  for (int64_t i = draw.Coin() ? draw.Between(0, limits.max_slices) : 0; i > 0; --i) {
    batch.define_grammars.push_back({draw.Word() << 8 | static_cast<uint64_t>(i), draw.Text(draw.Between(1, 300))});
  }
  for (int64_t i = draw.Between(0, limits.max_slices); i > 0; --i) {
    const int64_t most = limits.max_open_tokens / limits.max_slices;
    const int64_t prompt = draw.Between(1, most);
    batch.open.push_back({draw.Word() << 8 | static_cast<uint64_t>(i), draw.List(prompt, 0, limits.vocab - 1),
                          draw.List(draw.Between(0, most - prompt), 0, limits.vocab - 1),
                          RandomSampling(limits, &draw)});
    OpenSequence& open = batch.open.back();
    if (draw.Coin()) open.grammar = draw.Word();
    const auto tokens = static_cast<int64_t>(open.prompt.size() + open.output.size());
    const int64_t shared = draw.Between(0, (tokens - 1) / limits.block_tokens);
    open.shared_rows = static_cast<int32_t>(shared * limits.block_tokens);
    for (size_t group = 0; shared > 0 && group < limits.group_blocks.size(); ++group) {
      const int64_t window = WindowOf(limits.group_windows, group);
      const int64_t left_out = draw.Between(0, FirstPlaceSeen(open.shared_rows, window, limits.block_tokens));
      open.shared_blocks.push_back(draw.List(shared - left_out, 0, limits.group_blocks[group] - 1));
    }
  }
  for (int64_t i = draw.Between(0, limits.max_slices); i > 0; --i) {
    SequenceSlice slice;
    slice.sequence = draw.Word() << 8 | static_cast<uint64_t>(i);
    slice.guess = limits.most_guesses > 0 && draw.Coin();
    slice.count = static_cast<int32_t>(draw.Between(1, slice.guess ? 1 : limits.max_rows / limits.max_slices));
    slice.start = static_cast<int32_t>(draw.Between(slice.guess ? 1 : 0, limits.context - slice.count));
    slice.tokens = draw.List(slice.count, 0, limits.vocab - 1);
    const int64_t blocks = limits.BlocksFor(slice.start + slice.count) - limits.BlocksFor(slice.start);
    for (const int32_t most : limits.group_blocks) {
      if (blocks > 0) slice.new_blocks.push_back(draw.List(blocks, 0, most - 1));
    }
    slice.sample = slice.guess || draw.Coin();
    if (limits.most_guesses > 0 && slice.count == 1 && slice.sample && draw.Coin()) slice.new_blocks.clear();
    if (!slice.guess && draw.Coin()) slice.targets = draw.List(slice.count, kNoToken, limits.vocab - 1);
    for (size_t group = 0; i % 2 == 0 && group < limits.group_blocks.size(); ++group) {
      const int64_t most = FirstPlaceSeen(slice.start, WindowOf(limits.group_windows, group), limits.block_tokens);
      slice.released_blocks.push_back(static_cast<int32_t>(draw.Between(0, most)));
    }
    batch.slices.push_back(slice);
  }
  if (limits.state_slots == 0) return batch;
  // Each writes a slot of its own, and reads that or one of those that are left, which others may read too.
  std::vector<SlotId> slots(static_cast<size_t>(limits.state_slots));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), *random);
  for (SequenceSlice& slice : batch.slices) {
    slice.state_write = slots.back();
    slots.pop_back();
  }
  for (SequenceSlice& slice : batch.slices) {
    if (slice.start == 0) continue;
    const auto read = static_cast<size_t>(draw.Between(0, static_cast<int64_t>(slots.size()) - 1));
    slice.state_read = draw.Coin() ? slice.state_write : slots[read];
  }
  return batch;
}

std::vector<StageTimes> SampleTimes(int stages) {
  std::vector<StageTimes> times;
  for (int stage = 0; stage < stages; ++stage) {
    const int64_t at = 1'700'000'000'000'000 + stage * 1000;
    times.push_back({stage, at, at + 10, at + 900, stage * 30, at - 1000});
  }
  return times;
}

StepResult SampleResult(const FrameLimits& limits) {
  StepResult result;
  result.number = 7;
  result.sampled = {
      {2, 1, 99, -0.25f, {{99, -0.25f}, {4, -1.75f}}}, {5, 64, 0, 0, {}, true}, {6, 3, 0, 0, {}, false, true}};
  if (limits.most_guesses > 0) result.sampled.push_back({.sequence = 8, .position = 9, .is_void = true});
  result.targets = {{1, 6, {-1.5f, -2.5f, 0.f}, true, {{7, -0.5f}, {99, -1.5f}, {0, -0.25f}, {8, -2.5f}, {}, {}}}};
  result.times = SampleTimes(limits.stages);
  return result;
}

StepFrame FrameWith(MicroBatch batch, bool has_hidden, int stages) {
  StepFrame frame;
  frame.batch = std::move(batch);
  frame.has_hidden = has_hidden;
  if (has_hidden) frame.times = SampleTimes(stages);
  return frame;
}

FrameBuffer StepBuffer(const FrameLimits& limits) {
  FrameBuffer buffer(limits.MaxStepHeaderBytes(), limits.MaxStepPayloadBytes());
  for (size_t i = 0; i < buffer.payload_capacity(); ++i) buffer.payload()[i] = static_cast<uint8_t>(3 * i + 1);
  return buffer;
}

std::vector<uint8_t> Bytes(const FrameBuffer& buffer) { return {buffer.message().begin(), buffer.message().end()}; }

std::vector<uint8_t> EncodedStep(const FrameLimits& limits, const MicroBatch& batch, bool has_hidden) {
  FrameBuffer buffer = StepBuffer(limits);
  CHECK(EncodeStep(limits, FrameWith(batch, has_hidden), &buffer).ok());
  return Bytes(buffer);
}

}  // namespace stagecoach
