#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLING_TAILS_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLING_TAILS_H_

// What the last stage knows of the sequences that it samples: their tokens, and where their output stands in its
// grammar. All of it follows from the stream of micro-batches and the tokens sampled, so nothing of it is ever saved.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/grammar/grammar_vocabulary.h"
#include "common/grammar/mask.h"
#include "common/grammar/matcher.h"
#include "common/grammar/program.h"
#include "common/step/step.h"
#include "stage_worker/sample/sampler.h"

namespace stagecoach {

// Sums since the stage began. Thread-safe.
struct MaskCounters {
  std::atomic<uint64_t> ns{0};    // that masks took, and following the output of sequences that were opened
  std::atomic<uint64_t> hits{0};  // masks that were kept from before

  void AddNsSince(int64_t begin_ns);  // of MonotonicNs()
};

// Of one sequence: all that its next token depends on beside the logits. For one thread at a time.
class SamplingTail {
 public:
  // matcher: where the output of `open` stands in its grammar; absent without one. most_cut: tokens that Follow may
  // take back at once.
  SamplingTail(const OpenSequence& open, std::optional<GrammarMatcher> matcher, int32_t most_cut = 0)
      : history_(open),
        matcher_(std::move(matcher)),
        grammar_(open.grammar),
        opened_(history_.size()),
        most_cut_(most_cut) {}

  // A sampled token. False: its grammar does not allow it, or takes too long to follow, and the tail means nothing any
  // more.
  bool Append(TokenId token);

  // A draft's: these are the tokens from position `start` <= history().size() on, whatever was sampled there. What was
  // sampled behind another token is taken back; with `ends`, so is what was sampled behind all of them. The tokens that
  // the sequence was opened with stay. A token that its grammar refuses is no error: what is sampled behind it may fit
  // the grammar no more, and is a draft's guess.
  void Follow(int64_t start, absl::Span<const TokenId> tokens, bool ends);

  const TokenHistory& history() const { return history_; }
  int64_t opened() const { return opened_; }  // tokens that it was opened with
  GrammarId grammar() const { return grammar_; }

  // nullptr: there is no grammar. Requires: its mask is made.
  const AllowedTokens* allowed() const;
  bool lacks_mask() const { return matcher_.has_value() && !masked_; }
  void MakeMask(GrammarMasks* masks, MaskCounters* counters);

 private:
  void CutTo(int64_t size);

  TokenHistory history_;
  std::optional<GrammarMatcher> matcher_;
  GrammarId grammar_;
  int64_t opened_;
  int32_t most_cut_;
  std::vector<GrammarMatcher> before_;  // each of the last most_cut_ tokens
  AllowedTokens allowed_;
  bool masked_ = false;  // allowed_ is of the next token
};

// Of all sequences, and the grammars that the stream defines, with one cache of masks. Used by the thread that leads
// the stage; while masks are made or rows are sampled, different tails by different threads.
class SamplingTails {
 public:
  using VocabularySource = std::function<absl::StatusOr<std::shared_ptr<const GrammarVocabulary>>()>;

  // most_grammars: that are defined at once. `vocabulary` is asked when the first grammar comes, once. `counters`
  // outlives this. most_cut: of its tails.
  SamplingTails(size_t most_grammars, VocabularySource vocabulary, MaskCounters* counters, int32_t most_cut = 0)
      : most_grammars_(most_grammars), source_(std::move(vocabulary)), counters_(counters), most_cut_(most_cut) {}

  // Checks a batch whose frees, opens and sampling parameters are valid. kInvalidArgument names a grammar that
  //   is dropped but not there, or an open sequence follows it     is defined, but is there
  //   does not decode, or not for this vocabulary                  is one too many
  //   a sequence is to follow, but is not there, or does not allow the output that the sequence begins with
  absl::Status Validate(const MicroBatch& batch);
  // Applies the batch that was validated last.
  void Commit(const MicroBatch& batch);

  // Of an open sequence.
  SamplingTail& Of(SequenceId sequence) { return tails_.at(sequence); }
  const SamplingTail& Of(SequenceId sequence) const { return tails_.at(sequence); }

  // Of a tail that lacks its mask.
  void MakeMask(SamplingTail* tail) { tail->MakeMask(masks_.get(), counters_); }
  // Of any, while there is nothing else to do. False: none lacks one.
  bool MakeAnyMask();

  size_t grammars() const { return grammars_.size(); }

 private:
  struct Grammar {
    GrammarProgram program;
    int64_t followers = 0;  // open sequences
  };
  // What the batch under validation changes.
  struct Pending {
    std::vector<std::pair<GrammarId, GrammarProgram>> defined;
    absl::flat_hash_map<GrammarId, int64_t> freed;        // followers
    std::vector<std::optional<GrammarMatcher>> matchers;  // [opens]
  };
  absl::Status ValidateDrops(const MicroBatch& batch);
  absl::Status ValidateDefinitions(const MicroBatch& batch);
  absl::Status ValidateOpen(const MicroBatch& batch, const OpenSequence& open);
  absl::Status ReadVocabulary();

  const size_t most_grammars_;
  const VocabularySource source_;
  MaskCounters* const counters_;
  const int32_t most_cut_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;  // with the first grammar
  std::unique_ptr<GrammarMasks> masks_;                  // "
  absl::flat_hash_map<GrammarId, Grammar> grammars_;
  absl::flat_hash_map<SequenceId, SamplingTail> tails_;
  Pending pending_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_SAMPLING_TAILS_H_
