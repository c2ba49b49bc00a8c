#ifndef STAGECOACH_COMMON_STEP_STEP_H_
#define STAGECOACH_COMMON_STEP_STEP_H_

// The plain structs of one step, shared by the scheduler, the engine and the stages. No protobuf here: common/wire
// turns them to frames and back.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/sampling.h"
#include "common/step/step_part.h"

namespace stagecoach {

// Lists of KV blocks, one a block group: the layers whose keys and values live alike. Each group has a pool of its own,
// as large on every stage, and an id means something only within its group. The block at place i of a sequence's table
// holds positions [i * block_tokens, (i + 1) * block_tokens). With a window (WindowOf) blocks at the beginning
// that no later row sees are given back while the sequence goes on, and their places hold kNoBlock.
using BlockLists = std::vector<std::vector<BlockId>>;  // [groups][blocks]

// A compiled grammar (common/grammar/program.h). The last stage keeps it until it is dropped.
struct GrammarDefinition {
  GrammarId id = kNoGrammar;  // not used before in this job
  std::string program;        // its bytes, which the last stage checks
  friend bool operator==(const GrammarDefinition&, const GrammarDefinition&) = default;
};
inline constexpr int64_t kMaxDefinitionBytes = int64_t{1} << 20;  // of the programs that one micro-batch defines
// Of the programs that the last stage has: those that open sequences follow, and idle ones within what these leave.
inline constexpr int64_t kMaxFollowedBytes = int64_t{2} << 20;
inline constexpr int32_t kMaxIdleGrammars = 16;
constexpr int64_t MostGrammars(int64_t open_sequences) { return open_sequences + kMaxIdleGrammars; }

// Makes a sequence known to every stage. Output tokens are those produced before a preemption or a restart: they are
// computed again like a prompt, but stay output for the penalties. It may begin behind rows of other sequences with the
// same tokens, and then shares their blocks, which are full; of a group with a window those of the last places, from
// the first that a row from shared_rows on sees.
struct OpenSequence {
  SequenceId sequence = 0;
  std::vector<TokenId> prompt;  // never empty
  std::vector<TokenId> output;
  SamplingParams sampling;
  BlockLists shared_blocks;        // empty, or [groups] of shared_rows / block_tokens blocks, or of fewer with a window
  int32_t shared_rows = 0;         // whole blocks of them; where the first slice starts; less than its tokens
  GrammarId grammar = kNoGrammar;  // that its output follows, from its first token on; it is there
  friend bool operator==(const OpenSequence&, const OpenSequence&) = default;
};

// A run of consecutive rows of one sequence: a prefill chunk, or one decode row. Never empty.
struct SequenceSlice {
  SequenceId sequence = 0;
  // Position of the first row: the rows of this sequence sent so far; or, of one sampled row whose token is known, less
  // by up to the guesses that a job allows: a rewind, over rows that were all sent as guesses.
  int32_t start = 0;
  int32_t count = 0;             // rows
  std::vector<TokenId> tokens;   // [count]; of a guess on every hop, else in frames to the first stage, elsewhere empty
  BlockLists new_blocks;         // empty, or [groups] of the same length: appended to the sequence's block tables
                                 // before the rows are computed
  bool sample = false;           // the last row is sampled: the token for position start + count is wanted
  std::vector<TokenId> targets;  // empty, or [count]: the log-probability of this token after each row; kNoToken: none
  // Empty: as before; or [groups]: from this slice on, the first so many places of each table are empty. Never less
  // than before, 0 of a group without a window, and no place that a row of the slice sees. The blocks are given back
  // before new_blocks are taken: this slice and those behind it may get them.
  std::vector<int32_t> released_blocks;
  // Of a model with recurrent layers, on every stage alike: the slots of the state that stands before the first row
  // (kNoSlot: zeros, at position 0) and of the one behind the last, which may be the same. Without such layers both are
  // kNoSlot. A slot that a slice writes is named by no other slice of the micro-batch, and remembers how many rows it
  // is the state of; one with another number is not read.
  SlotId state_read = kNoSlot, state_write = kNoSlot;
  // Its one token is a guess, which the last stage judges (GuessHolds): count 1, sample, no targets, start the rows
  // sent so far. Every stage computes the row; of one whose guess proves wrong nothing is sampled, and right rows
  // overwrite its keys and values before anybody reads them.
  bool guess = false;
  friend bool operator==(const SequenceSlice&, const SequenceSlice&) = default;
};

// One unit of work of the pipeline. Within it, frees come first, then drops and definitions of grammars, then opens,
// then slices in their order. All stages see the same stream of micro-batches in the same order, so a block freed by
// one micro-batch may be given away in the same one.
struct MicroBatch {
  uint64_t number = 0;  // consecutive from 0 within a job
  std::vector<SequenceId> free;
  std::vector<GrammarId> drop_grammars;  // which no open sequence follows
  std::vector<GrammarDefinition> define_grammars;
  std::vector<OpenSequence> open;
  std::vector<SequenceSlice> slices;
  bool shutdown = false;  // the last frame of a job; carries no rows and gives an empty result

  int32_t rows() const {
    int32_t rows = 0;
    for (const SequenceSlice& slice : slices) rows += slice.count;
    return rows;
  }
  friend bool operator==(const MicroBatch&, const MicroBatch&) = default;
};

// Whether a guessed row stands, once `tokens` of its sequence are known, the last of them `last`: its position is that
// of the last one, which is what was guessed. Scheduler and last stage judge by this alone. The stream is ordered, so
// behind a wrong guess all rows are void until the right one for that position has come.
inline bool GuessHolds(int64_t start, TokenId guess, int64_t tokens, TokenId last) {
  return tokens == start + 1 && last == guess;
}

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// One token from the last stage.
struct SampledToken {
  SequenceId sequence = 0;
  int32_t position = 0;  // of this token in its sequence (prompt and output counted)
  TokenId token = kNoToken;
  float logprob = 0;              // of the raw distribution; valid when logprobs >= 0 were asked for
  std::vector<TokenLogprob> top;  // the K most probable, most probable first
  bool invalid_logits = false;  // the model gave a NaN, +infinity, or nothing above -infinity: the token means nothing
  bool grammar_exhausted = false;  // following the grammar took too many steps: the token means nothing
  // Of a guessed row whose guess proved wrong: it has a sequence and a position, token is kNoToken.
  bool is_void = false;
  friend bool operator==(const SampledToken&, const SampledToken&) = default;
};

// The log-probabilities of a slice's targets; 0 where the target was kNoToken.
struct TargetLogprobs {
  SequenceId sequence = 0;
  int32_t start = 0;  // position of the slice's first row
  std::vector<float> logprobs;
  bool invalid_logits = false;  // of a row with a target: as of SampledToken
  // [logprobs.size()][SamplingParams::prompt_logprobs], of each row with a target the most probable tokens, most
  // probable first. Places that have none hold kNoToken: rows without a target, and what the vocabulary lacks.
  std::vector<TokenLogprob> top;

  // A part of them: the rows at positions [begin, end), which it has.
  TargetLogprobs Rows(int64_t begin, int64_t end) const {
    TargetLogprobs part = {
        .sequence = sequence, .start = static_cast<int32_t>(begin), .invalid_logits = invalid_logits};
    part.logprobs.assign(logprobs.begin() + (begin - start), logprobs.begin() + (end - start));
    const int64_t tops = logprobs.empty() ? 0 : static_cast<int64_t>(top.size() / logprobs.size());
    part.top.assign(top.begin() + (begin - start) * tops, top.begin() + (end - start) * tops);
    return part;
  }
  friend bool operator==(const TargetLogprobs&, const TargetLogprobs&) = default;
};

// CRC-32C of the hidden states, as floats, of consecutive rows of a sequence behind each layer.
struct RowChecksums {
  int32_t start = 0;  // position of the first row
  int32_t rows = 0;
  std::vector<uint32_t> values;  // [layers of the model][rows]
  friend bool operator==(const RowChecksums&, const RowChecksums&) = default;
};

// When one stage worked on a micro-batch, by MonotonicUs() of that stage's host, and what it says of an earlier one's
// send, which was complete when this one's compute began.
struct StageTimes {
  int32_t stage = 0;
  int64_t received_us = 0;    // frame complete in memory
  int64_t start_us = 0;       // compute began
  int64_t end_us = 0;         // compute ended
  int64_t send_us = 0;        // duration of the send completed last, begin to completion (0 when none)
  int64_t send_start_us = 0;  // when that send began (0 when none); the same twice: none was completed in between
  StepAccount account;        // of the time from start to end; empty where the job does not ask for it
  friend bool operator==(const StageTimes&, const StageTimes&) = default;
};

// What a micro-batch gave, straight from the last stage.
struct StepResult {
  uint64_t number = 0;                  // the micro-batch's
  std::vector<SampledToken> sampled;    // in the order of the slices
  std::vector<TargetLogprobs> targets;  // in the order of the slices
  std::vector<StageTimes> times;        // one a stage, in stage order
  // [layers of the model][rows of the micro-batch], see RowChecksums. Empty where the job does not ask for them.
  std::vector<uint32_t> layer_checksums;
  friend bool operator==(const StepResult&, const StepResult&) = default;
};

// What makes a sequence valid for a vocabulary, for the engine, for frames and for the stage that samples.
// kInvalidArgument names the field, what it is and what was expected: "sampling.top_p is 2, expected more than 0 and up
// to 1". Ranges: sampling.h. Thread-safe.

// Every token is in [0, vocab); `field` names the list.
absl::Status CheckTokenIds(absl::string_view field, absl::Span<const TokenId> tokens, int64_t vocab);

// A bias is in its range, or -inf, which forbids the token.
absl::Status CheckSamplingParams(const SamplingParams& sampling, int64_t vocab);

// There is a prompt, every token is in [0, vocab), and the sampling parameters are valid.
absl::Status CheckOpenSequence(const OpenSequence& open, int64_t vocab);

// Nothing is released that a row of the slice sees, nothing of a group without a window, and there is an entry for
// every group or none at all. `groups` and `windows`, [groups] or empty, are of block groups (WindowOf). What
// was released before, the stages know.
absl::Status CheckReleasedBlocks(const SequenceSlice& slice, size_t groups, absl::Span<const int64_t> windows,
                                 int32_t block_tokens);

// What a window means for the blocks of a sequence: a row of a group with window W sees its own position and the W - 1
// before it; with window 0 all before it.

// Of a block group; `windows` is [groups], or empty where no group has one.
inline int64_t WindowOf(absl::Span<const int64_t> windows, size_t group) {
  return group < windows.size() ? windows[group] : 0;
}

// The place in a table of the first block that the row at `position` sees. No row behind it sees an earlier one.
inline int64_t FirstPlaceSeen(int64_t position, int64_t window, int64_t block_tokens) {
  return window == 0 ? 0 : std::max<int64_t>(position - (window - 1), 0) / block_tokens;
}

// Most blocks that `rows` consecutive rows of a sequence see together, their own included: the positions that they see
// can begin at the end of a block. window > 0.
inline int64_t MostBlocksSeen(int64_t rows, int64_t window, int64_t block_tokens) {
  const int64_t positions = window - 1 + rows;
  return (positions - 1 + block_tokens - 1) / block_tokens + 1;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_STEP_STEP_H_
