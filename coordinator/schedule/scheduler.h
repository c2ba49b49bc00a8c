#ifndef STAGECOACH_COORDINATOR_SCHEDULE_SCHEDULER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_SCHEDULER_H_

// Continuous batching: decides what the next micro-batch holds. Pure: no clock, no I/O, no threads; the engine, the
// tests and a simulator drive the same object. Not thread-safe.
//
// Life of a sequence
//   Add        puts it into the waiting queue.
//   Next       admits it when its blocks are there and hands out its prompt as chunks, then one decode row at a time.
//              Several chunks may be in flight: every stage sees the same ordered stream, so chunk k+1 finds the K and
//              V of chunk k. For the same reason freed blocks may be given away at once.
//   Confirm    advances it when the last stage reports.
//   Preempted  it gives all its blocks back, waits for what it has in flight (a token sampled by it counts), and is
//              computed again from its prompt and its output so far.
// Frees of sequences that the stages know never cause a micro-batch; they ride on the next one.
//
// Admission
//   Order      by class, then tenant share, then arrival (waiting_queue.h). Nobody overtakes the head, even if it lacks
//              blocks or is preempted and drains. Only who lacks room for its grammar, or waits for its leader, stands
//              aside, and others go first (below: Grammars, Leaders).
//   Needs      blocks for all known tokens plus one, beyond what running sequences were promised: a prefilling one its
//              remaining prompt, a decoding one kGrowthHeadroomBlocks (or what it can still use, if less). A sequence
//              admitted into the last free blocks would soon be preempted and computed again.
//   Grammars   a sequence that brings a grammar which no open one has waits for the next micro-batch where this one
//              defines as much as it may. Where open sequences follow as much as they may (grammar_ids.h) it stands
//              aside until one of these grammars loses its last follower, and so do later ones that bring a grammar.
//   Rank       (class, admission number), kept for life. A sequence that is added with output was admitted by a job
//              that is gone: it has its rank at once.
// Preemption
//   When       a row needs a block and none is free. Blocks are taken as rows are handed out, lowest rank first.
//   Victim     the running sequence of the highest rank, possibly the one that asked; it could not come back at once,
//              for it needs more than it gave. Preempted sequences go before all others of their class, by rank.
//   Progress   the lowest rank is never a victim, so it finishes; by induction all do. A low class admitted by its
//              starvation bound can lose its blocks again, and then waits until higher classes leave it some.
//
// Prefix cache (prefix_caching)
//   Hits       a sequence begins behind the full blocks that earlier ones with the same tokens and salt left, at most
//              those before the first row that it has to compute: the last known one, and every row to be scored.
//              These blocks are not part of what admission needs.
//   Entries    a block is known from the micro-batch after the one that fills it, whoever still uses it. Preempted and
//              cancelled sequences leave theirs too, until somebody needs the memory (block_manager.h).
//   Leaders    a sequence whose prompt has the same full blocks as one in flight, its leader, waits until that one has
//              computed them or is gone, instead of computing them too. Sequences behind it may overtake it.
//
// Recurrent states (state_slots > 0; SequenceSlice in common/step/step.h, block_manager.h)
//   Slots      a running sequence has one, or a reference to the snapshot that its next slice reads. Admission needs no
//              more: there are as many slots as sequences that run, and what a micro-batch gives up the next one has.
//              A slice that cannot have a slot yet waits for the next micro-batch.
//   Hits       end where the cache has a snapshot too. What is known behind it is computed again, and counted.
//   Snapshots  are kept where a prompt's chunk ends, which is cut there, at the end of a block: the last one that the
//              next turn of its conversation shares (SequenceSpec::conversation_tokens), every state_blocks blocks, so
//              that snapshots take about as much memory as K and V, and where the prompt parts from another one that
//              waits or that came before, if computing so far again costs more than kLeastSnapshotShare of that.
//   Leaders    those that are to keep snapshots. Who has the same tokens as far as one of these waits for it.
//   Preempted  sequences begin again behind the last snapshot in their chain, or at zeros.
//
// Block groups with a window (common/step/step.h)
//   With each slice a sequence gives back the blocks that no later row sees; they may be given away at once. So it
//   needs as many as the window and a chunk, however long it is; admission asks for that. It begins behind full blocks
//   only where the cache also has the group's blocks that its first row sees, else behind as many fewer as it takes.
//
// Decode groups
//   Decode rows go round in at most decode_groups() micro-batches at once, of equal size or one apart. One carries at
//   most ceil(decoding sequences / groups), at most the floor of that when as many groups as divide the rest are in
//   flight with more, and at most its part of the ready rows among the groups that are not in flight. The rows that
//   waited longest go first. Nothing waits for a share to fill up, but what is ready while all groups are in flight
//   waits for one of them, so that fragments merge.
//
// Guesses (SequenceSlice::guess in common/step/step.h; SetGuessFeed, SetGuessPlaces)
//   Sent       last, in a micro-batch without prompt rows while none in flight has any and fewer than guess_places()
//              are in flight: of each decoding sequence a row for the token guessed behind those in flight. Never for a
//              stop token, nor behind the last possible row.
//   Blocks     new ones only beyond all that running sequences were promised, and only while nobody in turn waits that
//              max_num_seqs would let in. The sequence keeps them behind a miss.
//   Outcome    a guess proves right or wrong when the token at its position becomes known. Wrong: the next row of the
//              sequence is the right one at that position, and leaves at once. The rows behind the wrong one are void.
//              They count as in flight until they come back, and change nothing then.
//   Decode     with places, rows leave as soon as they are ready, at most ceil(decoding sequences / groups) together,
//              guesses that join them included.
//   Cache      a block that a guess fills is known once the guess has held.
// Invariants, of running sequences
//   I1  decoding: confirmed == tokens - 1, and it is ready: handed_out == tokens - 1, no guesses; or ahead: handed_out
//       == tokens + guesses
//   I2  of its slices in flight, the newest handed_out - confirmed rows are contiguous from `confirmed` on and have the
//       tokens that are known or guessed there; all older slices are guesses, and void
//   I3  decoding: at most 1 + most_guesses slices in flight
//   I4  each table has the blocks of `furthest` rows; what a decoding one released, no row from `confirmed` on sees
//   I5  with recurrent states, the slots of all guesses are at most min(most_guesses, state_slots - max_num_seqs), so
//       that no known row lacks one
// How many prompt rows go beside or before decode rows is the policy's (policy/scheduling_policy.h). A full chunk is
// min(prefill_chunk, the prompt's rows left, max_num_batched_tokens), or what chunk_planner.h makes of it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/job_choices.h"
#include "common/job/job_settings.h"
#include "common/step/step.h"
#include "coordinator/request/grammar_ids.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/block_manager.h"
#include "coordinator/schedule/chunk_planner.h"
#include "coordinator/schedule/guess_feed.h"
#include "coordinator/schedule/policy/scheduling_policy.h"
#include "coordinator/schedule/policy/step_time.h"
#include "coordinator/schedule/waiting_queue.h"

namespace stagecoach {

// Of state_blocks: how far a prompt goes behind a snapshot before it is worth another one where it parts from others.
inline constexpr double kLeastSnapshotShare = 0.125;

// Blocks that admission leaves free for the growth of each decoding sequence, at most.
inline constexpr int32_t kGrowthHeadroomBlocks = 4;

struct SchedulerOptions : BatchingSettings, BatchingRoom {
  ReadCurve reads;                  // of the model
  int32_t max_prompt_logprobs = 0;  // that a sequence may ask for beside each of its scores
};
absl::Status ValidateSchedulerOptions(const SchedulerOptions& options);  // each field with its range

// What Confirm found out.
struct SequenceEvent {
  SequenceId sequence = 0;
  absl::InlinedVector<SampledToken, 1> tokens;  // newly produced, in order
  std::vector<TargetLogprobs> scores;  // of this micro-batch: exactly the rows that score_from asks for, each once in a
                                       // sequence's life, in order, whatever preemptions happen
  std::optional<FinishReason> finished;
  std::string error;        // with kInvalidLogits, kGrammarExhausted: where, and what often helps; names fields of the
                            // job in backquotes
  int32_t preemptions = 0;  // of the sequence so far
  int64_t cached_tokens = 0;  // rows that its first admission found in the prefix cache
  // Of what was in flight for the position of tokens[0]: nothing, the right guess, a wrong one. Nothing once it ended.
  enum class Guess : uint8_t { kNone, kRight, kWrong } guess = Guess::kNone;
};

struct SchedulerCounters {
  uint64_t micro_batches = 0, prefill_rows = 0, decode_rows = 0, preemptions = 0;
  uint64_t decode_micro_batches = 0;  // with decode rows
  uint64_t visits = 0;  // of sequences, by Next and Confirm: grows with the slices, not with what runs or waits
  std::vector<int32_t> blocks_used_peak;  // [groups]
  // Micro-batches by their rows of a kind: [i] with more than 2^(i-1), up to 2^i; without rows of the kind nowhere.
  std::array<uint64_t, 32> prefill_sizes = {}, decode_sizes = {};
  // Of all admissions, with prefix_caching: known tokens, and those whose rows were found.
  int64_t prefix_queries = 0, prefix_hits = 0;
  int64_t prefix_stateless = 0;  // beyond these, whose K and V were there, but no state to go on from
  // Guessed rows, which decode_rows leaves out: sent; whose token proved right; that came back void.
  uint64_t guesses = 0, guesses_right = 0, guesses_void = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);  // options must be valid

  // Queues a sequence. max_new_tokens is cut to what the context leaves. kInvalidArgument for an empty prompt, negative
  // token ids, too many prompt_logprobs, or nothing asked for; kAlreadyExists while a sequence of this id is
  // unfinished; kOutOfRange when it does not fit (CheckRoom, of the smallest pool without a window);
  // kFailedPrecondition "nothing left to produce" when `output` already has max_new_tokens or ends with a stop token.
  absl::Status Add(SequenceSpec spec);

  // The next micro-batch, or nothing when no row can be handed out now (all waits for results, for blocks, or there is
  // no work). Never gives more unconfirmed ones than options.micro_batches or decode_groups(), whichever is more.
  std::optional<MicroBatch> Next();

  // The micro-batch behind all others, which tells every stage to end; Next is not called again. Its result is not
  // confirmed, those before it may be.
  MicroBatch Shutdown();

  // The result of the oldest unconfirmed micro-batch. kInternal when it is not that one or does not match what was
  // asked: what every slice asked for, in the order of the slices.
  absl::StatusOr<std::vector<SequenceEvent>> Confirm(const StepResult& result);

  // What the slowest stage took for a micro-batch, which has come back. Times steer nothing but sizes and turns.
  void ObserveStepTime(const MicroBatch& batch, int64_t slowest_us);

  // Ends a sequence now; its in-flight rows are ignored when they come back. kNotFound for an unknown or finished one.
  absl::Status Cancel(SequenceId sequence);

  // Takes a sequence's blocks away as if they had run out; for tests of preemption. kNotFound, kFailedPrecondition (not
  // running).
  absl::Status Preempt(SequenceId sequence);

  // How many groups decode rows go round in: 1 to the larger of micro_batches, which it is at first, and most_groups.
  // Takes effect as groups come back.
  void SetDecodeGroups(int32_t groups);
  int32_t decode_groups() const { return decode_groups_; }
  int32_t most_groups() const { return std::max(options_.micro_batches, options_.most_groups); }
  int64_t decoding() const { return decoding_; }

  // Who guesses; outlives the scheduler. nullptr, as at first: nobody.
  void SetGuessFeed(GuessFeed* feed) { guess_feed_ = feed; }
  // Micro-batches in flight up to which guesses are sent, and decode rows leave as soon as they are ready; those of
  // prompts alone do not keep decode rows back. At most most_groups(). 0, as at first: no guesses are sent, and decode
  // rows go round in groups.
  void SetGuessPlaces(int32_t places);
  int32_t guess_places() const { return guess_places_; }

  bool HasUnfinished() const { return !sequences_.empty(); }
  // Known tokens of the sequences that wait in turn, so not of those that stand aside.
  int64_t waiting_tokens() const { return waiting_rows_; }
  int64_t waiting() const { return queue_.waiting(); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  std::array<int64_t, kPriorityClassCount> RunningByClass() const;
  const WaitingQueue& queue() const { return queue_; }
  int32_t in_flight() const { return static_cast<int32_t>(in_flight_.size()); }
  const SchedulerCounters& counters() const { return counters_; }
  const BlockManager& blocks() const { return blocks_; }
  const SchedulerOptions& options() const { return options_; }
  const Sequence* Find(SequenceId sequence) const;  // unfinished ones
  // Of each full block of an unfinished sequence's known tokens: a hash of all tokens up to its end, and of the salt.
  std::vector<uint64_t> BlockHashes(SequenceId sequence);

  // Everything that must always hold: blocks free + evictable + used == total, each used block referenced once by every
  // table that has it, each slot once by every sequence whose state it is, tables of every group cover exactly the rows
  // handed out, states consistent with queues and in-flight micro-batches. kInternal names the first violation.
  absl::Status CheckIntegrity() const;

 private:
  struct SliceInFlight {
    uint64_t order = 0;  // of its sequence, which may be gone by now
    SequenceId sequence = 0;
    int64_t start = 0, count = 0;
    TokenId guess = kNoToken;  // a guessed row's
    bool decode = false, sample = false;
    bool first_token = false;                // after it the sequence decodes
    int64_t score_begin = 0, score_end = 0;  // positions of the rows with targets; equal: none
    int64_t tops = 0;                        // log-probabilities beside each target
    bool scores() const { return score_begin < score_end; }
  };
  struct InFlight {
    uint64_t number = 0;
    std::vector<SliceInFlight> slices;
    int64_t decode_rows = 0, guess_rows = 0, prompt_rows = 0;
  };
  struct Draft;  // a micro-batch being composed (draft.h)
  using Siblings = std::map<std::pair<uint64_t, uint64_t>, Sequence*>;
  // The group of those that wait until grammars have fewer bytes. A prompt with this hash does no harm: groups look
  // again.
  static constexpr uint64_t kLacksGrammarRoom = ~uint64_t{0};

  // Composition (micro_batch_composition.cc).
  void AddDecodeRows(Draft& draft);
  int64_t RowsOfGroup() const;   // of the ready ones: those that leave now as a group
  int64_t DecodeShare() const;   // rows that the next group may have
  int64_t LargestShare() const;  // of sequences that decode, of any group
  int64_t RowsAtOnce() const;    // of the ready ones: those that leave now, with places for guesses
  void AddPromptRows(Draft& draft, int64_t most_rows);
  std::optional<NextPrompt> FirstPrompt(const Draft& draft);
  PolicyLoad Load() const;
  int64_t HitRows(const Sequence& sequence) const { return sequence.hits * options_.block_tokens; }
  int64_t FirstRow(const Sequence& sequence) const;       // the next to be handed out, were it admitted now
  int64_t ChunkRows(const Sequence& sequence) const;      // of its next chunk
  int64_t MostChunkRows(const Sequence& sequence) const;  // of that, were the prompt longer
  Sequence* Admissible(const Draft& draft);
  bool WaitsForGrammars(Sequence& sequence, const Draft& draft) const;  // its group is then kLacksGrammarRoom
  void Admit(Sequence& sequence, Draft& draft);
  void HandOut(Sequence& sequence, int64_t wanted, Draft& draft);
  void AppendSlice(Sequence& sequence, int64_t count, bool released, Draft& draft);
  void PutIntoDraft(Sequence& sequence, SequenceSlice slice, const SliceInFlight& flight, Draft& draft);
  bool ReleaseUnseen(Sequence& sequence);  // what no row to come sees; whether there was any
  void TakeBlocks(Sequence& sequence, int64_t end, SequenceSlice& slice);
  void Withdraw(Sequence& sequence, Draft& draft);
  MicroBatch Submit(Draft& draft);

  // Guesses (guesses.cc).
  void AddGuesses(Draft& draft);
  TokenId NextGuess(const Sequence& sequence) const;
  void HandOutGuess(Sequence& sequence, TokenId token, Draft& draft);
  void TakeGuessOutcome(Sequence& sequence, SequenceEvent& event);
  void DropGuesses(Sequence& sequence);
  static bool HasTokenInPlace(const Sequence& sequence, const SliceInFlight& slice);

  // The prefix cache (prefix_reuse.cc).
  int64_t PromptBlocks(const Sequence& sequence) const;  // full ones
  int64_t MostHits(const Sequence& sequence) const;
  absl::Span<const TokenId> BlockOf(const Sequence& sequence, int64_t block);  // valid until the next call
  PrefixKey KeyOf(Sequence& sequence, int64_t block, PrefixRef parent);        // "
  void FindHits(Sequence& sequence);                                           // of one that waits, into its chain
  void SetHits(Sequence& sequence) const;                                      // of those found: how many are of use
  void TakeHits(Sequence& sequence);                                           // on admission
  void Lead(Sequence& sequence);            // once it has its hits, if it computes what others may have
  bool WaitsForLeader(Sequence& sequence);  // its group is then that of the leader
  void StandAside(Sequence& sequence);      // in its group
  Siblings::iterator RejoinQueue(Siblings::iterator aside);  // gives the next one
  void RejoinGroup(uint64_t group);
  void ReleaseFollowers(Sequence& leader, int64_t blocks);  // who wait for so many or fewer
  void MendChain(Sequence& sequence);                       // of a running one, as far as its entries have gone
  void RememberFilled(Sequence& sequence, int64_t rows);    // the blocks of so many, whose tokens are known

  // Recurrent states (snapshots.cc).
  bool keeps_snapshots() const { return options_.state_slots > 0 && options_.prefix_caching; }
  void PlanSnapshots(Sequence& sequence);                             // on admission
  int64_t NextSnapshot(const Sequence& sequence, int64_t row) const;  // rows before the next one behind it; INT64_MAX
  void KeepSnapshot(Sequence& sequence);                              // if it is to keep one of the rows so far
  void CountWaiting(Sequence& sequence, int32_t count);               // its prompt is, or is not any more, waiting

  // Life cycle (scheduler.cc).
  absl::StatusOr<Sequence*> Unfinished(SequenceId id, absl::string_view verb);
  // Blocks that `rows` rows fill, in every group.
  int64_t BlocksFor(int64_t rows) const { return (rows + options_.block_tokens - 1) / options_.block_tokens; }
  static int64_t MostRows(const SequenceSpec& spec);  // that are ever computed
  // The lowest row that can still be handed out: a decoding one may fall back behind its guesses.
  static int64_t FirstRowToCome(const Sequence& sequence) {
    return sequence.state() == SequenceState::kDecoding ? sequence.confirmed : sequence.handed_out;
  }
  int64_t BlocksLacking(const Sequence& sequence, size_t group, int64_t rows) const {
    return std::max<int64_t>(BlocksFor(rows) - static_cast<int64_t>(sequence.block_tables[group].size()), 0);
  }
  // Most that a sequence has of them at once until `rows` rows are computed.
  int64_t MostBlocks(size_t group, int64_t rows) const;
  int64_t FirstPlace(size_t group, int64_t row) const;  // in a table: of the first block that the row sees
  // Which one of so many rows, with `taken` places of the group's table of which `released` are empty, still takes
  // until then, beyond those that it gives back.
  int64_t BlocksToTake(size_t group, int64_t rows, int64_t taken, int64_t released) const;
  int64_t RowsToAdmit(const Sequence& sequence) const;                   // whose blocks admission asks for
  int64_t BlocksPromised(const Sequence& sequence, size_t group) const;  // to a running one, not taken yet
  void UpdatePromise(Sequence& sequence);  // after its state, its tokens or its blocks changed
  std::list<Sequence*>& ListOf(Sequence::List list);
  void MoveToList(Sequence& sequence, Sequence::List list);  // to its end
  void LeaveRunning(Sequence& sequence);                     // gives its blocks back
  void PreemptRunning(Sequence& sequence);
  void Finish(Sequence& sequence);
  void EndDraining(Sequence& sequence);                        // one that is preempted, once nothing is in flight
  Sequence* LiveSequenceOf(const SliceInFlight& slice) const;  // nullptr: it has ended since
  static bool IsStop(const SequenceSpec& spec, TokenId token);
  // token, scores: what the slice asked for, else nullptr. Keeps I1.
  SequenceEvent Advance(const SliceInFlight& slice, const SampledToken* token, const TargetLogprobs* scores);

  // Checks (scheduler_checks.cc).
  absl::Status CheckSpec(const SequenceSpec& spec) const;
  absl::Status CheckResult(const StepResult& result) const;
  absl::Status CheckQueues() const;
  absl::Status CheckBlocks(size_t group) const;
  absl::Status CheckSlots() const;
  // What is wrong with the outcome of a sampled slice: a guess holds or is void. Empty: nothing.
  std::string WrongOutcome(const SliceInFlight& slice, const SampledToken& token) const;
  absl::Status CheckSequence(const Sequence& sequence) const;
  // What is wrong with its slices in flight, and with the tables and slots of a running one. Empty: nothing.
  std::string WrongSlices(const Sequence& sequence, bool runs) const;
  std::string WrongProgress(const Sequence& sequence) const;

  const SchedulerOptions options_;
  const int64_t chunk_rows_;   // of a chunk, and no more than a micro-batch has
  const bool windowed_;        // any group has a window
  const int32_t spare_slots_;  // of states: that guesses may have (I5)
  BlockManager blocks_;
  GrammarIds grammars_;
  std::deque<InFlight> in_flight_;  // oldest first
  int32_t decode_groups_;
  int32_t groups_in_flight_ = 0;  // of the micro-batches in flight: those with decode rows
  GuessFeed* guess_feed_ = nullptr;
  int32_t guess_places_ = 0;
  int32_t guess_slots_ = 0;  // of all sequences
  SchedulerCounters counters_;

  // The unfinished ones. Each is in exactly one of: in turn in queue_ (kWaiting, kPreempted), siblings_ (kWaiting) and
  // running_.
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  WaitingQueue queue_;
  std::map<SequenceRank, Sequence*> running_;
  std::map<SequenceRank, Sequence*> prompts_;  // the running ones with prompt rows to hand out

  // Sequences that stand aside, by what they wait for and order of arrival: a group of equal prompts for its leader's
  // prompt to be handed out, kLacksGrammarRoom for a grammar to lose its last follower.
  Siblings siblings_;
  absl::flat_hash_map<uint64_t, int32_t> leaders_;  // of each group: how many
  // With states: of each full block of a prompt that waits, by its hash, how many wait.
  absl::flat_hash_map<uint64_t, int32_t> waiting_blocks_;

  // Each unfinished sequence is in exactly one of these; Sequence::place says where.
  std::list<Sequence*> ready_;   // decoding, next row's token known; who waits longest is first
  std::list<Sequence*> ahead_;   // decoding, next row a guess; whose last row is oldest is first
  std::list<Sequence*> others_;  // in no order

  int64_t waiting_rows_ = 0;              // the tokens of all in turn in queue_
  int64_t prompt_rows_ = 0;               // the rows that those in prompts_ have to hand out
  int64_t decoding_ = 0;                  // of the running ones
  int64_t about_to_decode_ = 0;           // slices in flight with a first token
  std::vector<int64_t> promised_blocks_;  // [groups] the sums of Sequence::promised
  std::vector<int32_t> more_blocks_;      // [groups] TakeBlocks', kept for its memory
  std::vector<Sequence*> taken_;          // AddDecodeRows': kept for its memory
  std::vector<TokenId> block_tokens_;     // BlockOf's
  std::vector<BlockId> group_block_;      // RememberFilled's
  std::vector<int64_t> unseen_;           // [groups] TakeHits'

  std::vector<SequenceId> frees_;  // for the next micro-batch
  uint64_t next_order_ = 0;
  uint64_t next_number_ = 0;  // drawn here alone, for every micro-batch there is
  const std::unique_ptr<SchedulingPolicy> policy_;
  ChunkPlanner chunks_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_SCHEDULER_H_
