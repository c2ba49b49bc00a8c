#ifndef STAGECOACH_COORDINATOR_REQUEST_SEQUENCE_H_
#define STAGECOACH_COORDINATOR_REQUEST_SEQUENCE_H_

// A request on its way through the scheduler: its tokens, its progress, its state, whose changes are checked, and
// whether a job can hold it.

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/base/value_range.h"
#include "common/step/step.h"
#include "coordinator/request/grammar_ids.h"

namespace stagecoach {

// Who goes first: all that wait of a higher class, up to a bound, and within a class tenants by what they had for their
// weight (coordinator/schedule/waiting_queue.h). The numbers are those of requests' `priority` and of the wire.
enum class PriorityClass : int32_t { kInteractive = 0, kDefault = 1, kBatch = 2 };  // the highest first
inline constexpr size_t kPriorityClassCount = 3;
inline constexpr NamedValue<PriorityClass> kPriorityClasses[] = {{PriorityClass::kInteractive, "interactive"},
                                                                 {PriorityClass::kDefault, "default"},
                                                                 {PriorityClass::kBatch, "batch"}};

inline constexpr NumberRange kWeightRange = {0.001, 1000};  // of a tenant

enum class FinishReason { kStop, kLength, kCancelled, kScored, kInvalidLogits, kGrammarExhausted };

// Names an entry of the prefix cache (coordinator/schedule/prefix_index.h), which may be gone by now.
struct PrefixRef {
  BlockId block = kNoBlock;  // in the first block group without a window
  uint64_t number = 0;       // 0: no entry
  bool exists() const { return number != 0; }
  friend bool operator==(const PrefixRef&, const PrefixRef&) = default;
};

// What a request asks for; constant while it runs.
struct SequenceSpec {
  SequenceId id = 0;
  std::vector<TokenId> prompt;  // never empty
  std::vector<TokenId> output;  // produced before a restart; never computed as output again
  SamplingParams sampling;
  int64_t max_new_tokens = 0;        // counted from the prompt's end, `output` included; 0 only with score_from >= 0
  std::vector<TokenId> stop_tokens;  // sampling one ends the sequence; it is reported
  int64_t score_from = -1;           // >= 0: targets for every row whose next token is the prompt's, at positions
                                     // >= score_from (the row at position p predicts token p + 1; reported for
                                     // p + 1 >= score_from)
  // Tokens that the prompt has in common with the next turn of its conversation, as far as the front knows: those
  // before what asks for the answer. Of a model with recurrent states, a snapshot is kept there; -1: all.
  int64_t conversation_tokens = -1;
  std::string salt;  // what is stored of this one serves only those of the same salt
  // A compiled grammar that the output follows; empty: none. At most kMaxDefinitionBytes. The scheduler takes it out.
  std::string grammar;
  // What much of the output is expected to be; serves guesses. The engine takes it out.
  std::vector<TokenId> prediction;
  // Whom it is for: requests of one tenant share what its weight gives it (coordinator/schedule/waiting_queue.h).
  std::string tenant;
  double weight = 1;  // of kWeightRange
  PriorityClass priority_class = PriorityClass::kDefault;
};

// Who keeps its blocks: the lowest, which is served first and preempted last.
struct SequenceRank {
  PriorityClass priority_class = PriorityClass::kDefault;
  uint64_t admission = 0;
  friend bool operator<(const SequenceRank& a, const SequenceRank& b) {
    return std::pair(a.priority_class, a.admission) < std::pair(b.priority_class, b.admission);
  }
};

// What bounds a request of a job: the front refuses what cannot run by it, and so does the scheduler.
struct RoomLimits {
  int64_t context = 0;       // most tokens of a sequence
  int64_t blocks = 0;        // of the KV pool
  int64_t block_tokens = 0;  // tokens a block holds
};

// Tokens whose K and V are kept at most, where `max_new_tokens` fit the context: those of the last new token would
// serve one that is not produced.
int64_t MostKvTokens(int64_t prompt_tokens, int64_t max_new_tokens);

// OK, or kOutOfRange with what is asked for and what there is. A request that asks for more new tokens than fit the
// context runs, and ends there; one whose prompt leaves no room for a single one does not.
absl::Status CheckRoom(int64_t prompt_tokens, int64_t max_new_tokens, const RoomLimits& limits);

struct TenantAccount;

enum class SequenceState {
  kWaiting,     // no blocks: new, or preempted and drained
  kPrefilling,  // has blocks; prompt (or, after preemption, prompt and output) still to hand out or to confirm
  kDecoding,    // everything known is computed; one row at a time
  kPreempted,   // blocks gone, results still in flight
  kFinished,
};
inline constexpr NamedValue<SequenceState> kSequenceStates[] = {{SequenceState::kWaiting, "waiting"},
                                                                {SequenceState::kPrefilling, "prefilling"},
                                                                {SequenceState::kDecoding, "decoding"},
                                                                {SequenceState::kPreempted, "preempted"},
                                                                {SequenceState::kFinished, "finished"}};
constexpr const char* SequenceStateName(SequenceState state) { return NameOf(kSequenceStates, state); }
// Whether the state machine has this edge.
bool IsValidTransition(SequenceState from, SequenceState to);

// Not thread-safe; owned by the scheduler.
class Sequence {
 public:
  explicit Sequence(SequenceSpec spec) : spec_(std::move(spec)), output_(spec_.output) {}
  const SequenceSpec& spec() const { return spec_; }
  SequenceState state() const { return state_; }
  void MoveTo(SequenceState next);  // CHECKs the transition

  const std::vector<TokenId>& output() const { return output_; }
  int64_t tokens() const { return static_cast<int64_t>(spec_.prompt.size() + output_.size()); }
  TokenId token(int64_t position) const;  // of the prompt, then of the output; position < tokens()
  TokenId last_token() const { return output_.empty() ? spec_.prompt.back() : output_.back(); }
  SequenceRank rank() const { return {spec_.priority_class, admission}; }  // once it has an admission

  // Owned by the scheduler's loop.
  int64_t handed_out = 0;  // rows given to the pipeline since it was opened
  int64_t confirmed = 0;   // of those, rows whose micro-batch has come back
  int32_t slices_in_flight = 0;
  // Decoding: what was sent for the positions [tokens(), handed_out), whose rows may yet prove wrong.
  std::vector<TokenId> guesses;
  // With recurrent states: the slot of the state behind each of them; state_slot is that behind the row before.
  std::vector<SlotId> guess_slots;
  int64_t furthest = 0;       // most rows ever handed out since it was opened: its tables cover these, and never shrink
  uint64_t latest_batch = 0;  // 1 + the number of the micro-batch with its latest slice; 0: none
  BlockLists block_tables;
  std::vector<int32_t> released;  // [groups] places at the beginning of its table that hold kNoBlock: with a window
  int32_t preemptions = 0;
  uint64_t order = 0;                      // of arrival
  uint64_t admission = 0;                  // the number of its first one, kept through preemptions; 0: none yet
  TenantAccount* account = nullptr;        // its tenant's; the waiting queue's
  GrammarIds::Grammar* grammar = nullptr;  // of the scheduler's; nullptr: none
  bool opened = false;                     // the stages know it, or will with the micro-batch being composed
  // Entries of the prefix cache for its first full blocks: waiting, those it could begin with; running, those it began
  // with and those made of its blocks since, or found to have their content.
  std::vector<PrefixRef> chain;
  std::vector<uint64_t> block_hashes;   // of the chain up to each full block, as far as they were needed
  uint64_t hits_version = 0;            // of the cache, when `chain` was last looked up
  int64_t hits = 0;                     // of those in `chain` then: with how many it could begin
  int64_t stateless_hits = 0;           // and with how many more, were there a state
  std::vector<int64_t> evictable_hits;  // [groups] of the blocks that it would begin with
  int64_t cached_tokens = 0;            // rows that its first admission found
  bool admitted = false;                // ever
  // Up to where others with the same tokens wait for it to be handed out, in order; and the group that it waits for.
  struct Lead {
    int64_t blocks = 0;
    uint64_t group = 0;  // the hash up to the last of them
  };
  std::vector<Lead> leads;
  uint64_t group = 0;
  // With recurrent states: the slot that its next slice reads; kNoSlot: zeros, or it does not run. And the blocks
  // behind which it parts from others, where it keeps snapshots.
  SlotId state_slot = kNoSlot;
  std::vector<int64_t> parting_blocks;
  int64_t scored = 0;             // rows whose target log-probabilities were reported; never asked for again
  std::vector<int64_t> promised;  // [groups] blocks: its share of what admission leaves free for those that run
  enum class List : uint8_t { kReady, kAhead, kOther };  // of the scheduler
  List list = List::kOther;
  std::list<Sequence*>::iterator place;  // in it
  void Append(TokenId token) { output_.push_back(token); }

 private:
  SequenceSpec spec_;
  std::vector<TokenId> output_;
  SequenceState state_ = SequenceState::kWaiting;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REQUEST_SEQUENCE_H_
