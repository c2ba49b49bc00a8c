// What the scheduler says of block groups with a window, frames carry and stages take in: random histories through the
// encoder, the decoder and a stage's tables, whose checks are not the scheduler's.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/step/step.h"
#include "common/wire/frame.h"
#include "coordinator/schedule/scheduler.h"
#include "gtest/gtest.h"
#include "stage_worker/kv/sequence_table.h"

namespace stagecoach {
namespace {

constexpr int64_t kStreamVocabulary = 4;

SchedulerOptions StreamOptions(std::mt19937& random) {
  SchedulerOptions options;
  options.max_num_seqs = 5;
  options.policy = Policy::kInterleaved;
  options.max_num_batched_tokens = 40;
  options.prefill_chunk = 1 + static_cast<int32_t>(random() % 40);
  options.block_tokens = 4;
  options.group_blocks = {40, 30};
  options.group_windows = {0, 1 + static_cast<int64_t>(random() % 20)};
  if (random() % 2 == 0) options.group_blocks[1] = 8;
  options.context = 120;
  options.micro_batches = 3;
  options.max_open_tokens = 240;
  options.prefix_caching = random() % 2 == 0;
  return options;
}

FrameLimits StreamLimits(const SchedulerOptions& options) {
  FrameLimits limits;
  limits.job = {.run_id = 1, .epoch = 1};
  limits.stages = 2;
  limits.hidden = 1;
  limits.vocab = kStreamVocabulary;
  limits.context = options.context;
  limits.group_blocks = options.group_blocks;
  limits.group_windows = options.group_windows;
  limits.block_tokens = options.block_tokens;
  limits.max_rows = options.max_num_batched_tokens;
  limits.max_slices = options.max_num_seqs;
  limits.max_open_tokens = options.max_open_tokens;
  return limits;
}

class WindowedStream {
 public:
  explicit WindowedStream(uint32_t seed)
      : random_(seed),
        options_(StreamOptions(random_)),
        limits_(StreamLimits(options_)),
        scheduler_(options_),
        table_(options_.block_tokens, options_.group_blocks, options_.context, options_.group_windows),
        buffer_(limits_.MaxStepHeaderBytes(), 0) {}

  void Run() {
    for (int arrivals = 12; arrivals > 0 || scheduler_.HasUnfinished();) {
      if (arrivals > 0 && random_() % 5 == 0) {
        Arrive(static_cast<SequenceId>(arrivals--));
      } else if (random_() % 40 == 0) {
        Disturb();
      } else if (std::optional<MicroBatch> batch = scheduler_.Next(); batch.has_value()) {
        Carry(*batch);
      } else if (!results_.empty()) {
        ASSERT_TRUE(scheduler_.Confirm(results_.front()).ok());
        results_.pop_front();
      }
      ASSERT_TRUE(scheduler_.CheckIntegrity().ok()) << scheduler_.CheckIntegrity();
      if (::testing::Test::HasFailure()) return;
    }
  }

  int64_t released() const { return released_; }

 private:
  // Often with the beginning of the one before it.
  void Arrive(SequenceId id) {
    SequenceSpec spec{.id = id, .max_new_tokens = 1 + static_cast<int64_t>(random_() % 30)};
    const size_t prompt = 1 + random_() % 80;
    if (random_() % 3 > 0) spec.prompt.assign(last_.begin(), last_.begin() + std::min(last_.size(), prompt));
    while (spec.prompt.size() < prompt) spec.prompt.push_back(static_cast<TokenId>(random_() % kStreamVocabulary));
    last_ = spec.prompt;
    ASSERT_TRUE(scheduler_.Add(spec).ok());
    ids_.push_back(id);
  }

  void Disturb() {
    if (ids_.empty()) return;
    const SequenceId id = ids_[random_() % ids_.size()];
    const absl::Status status = random_() % 2 == 0 ? scheduler_.Preempt(id) : scheduler_.Cancel(id);
    EXPECT_FALSE(absl::IsInternal(status)) << status;
  }

  void Carry(const MicroBatch& batch) {
    ASSERT_TRUE(EncodeStep(limits_, {.batch = batch}, &buffer_).ok());
    ASSERT_EQ(DecodeStep(limits_, buffer_.message(), batch.number, false).value().batch, batch);
    ASSERT_TRUE(table_.Apply(batch).ok()) << table_.Apply(batch);
    StepResult result{.number = batch.number};
    for (const SequenceSlice& slice : batch.slices) {
      CheckRead(slice);
      if (!slice.sample) continue;
      result.sampled.push_back({.sequence = slice.sequence,
                                .position = slice.start + slice.count,
                                .token = static_cast<TokenId>(random_() % kStreamVocabulary)});
    }
    for (size_t group = 0; group < 2; ++group) {
      EXPECT_LE(table_.blocks_in_use(group), options_.group_blocks[group]);
    }
    results_.push_back(std::move(result));
  }

  // What its rows see is there.
  void CheckRead(const SequenceSlice& slice) {
    const SequenceTable::Entry& entry = *table_.Find(slice.sequence);
    for (size_t group = 0; group < 2; ++group) {
      const int64_t window = options_.group_windows[group];
      for (int64_t position = slice.start; position < slice.start + slice.count; ++position) {
        const int64_t first = window == 0 ? 0 : std::max<int64_t>(position - window + 1, 0);
        for (int64_t seen = first; seen <= position; ++seen) {
          ASSERT_NE(entry.tables[group].at(static_cast<size_t>(seen / options_.block_tokens)), kNoBlock);
        }
      }
    }
    released_ += slice.released_blocks.empty() ? 0 : 1;
  }

  std::mt19937 random_;
  const SchedulerOptions options_;
  const FrameLimits limits_;
  Scheduler scheduler_;
  SequenceTable table_;
  FrameBuffer buffer_;
  std::deque<StepResult> results_;
  std::vector<TokenId> last_;
  std::vector<SequenceId> ids_;
  int64_t released_ = 0;
};

TEST(WindowedStream, WhatTheSchedulerReleasesFramesAndStagesAccept) {
  int64_t released = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    WindowedStream stream(seed);
    stream.Run();
    if (HasFailure()) return;
    released += stream.released();
  }
  EXPECT_GT(released, 60 * 50);
}

}  // namespace
}  // namespace stagecoach
