#include "stage_worker/sample/sampling_tails.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/text/token_bytes.h"

namespace stagecoach {
namespace {

template <typename... What>
absl::Status BadGrammar(GrammarId id, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("grammar ", id, " ", what...));
}

}  // namespace

void MaskCounters::AddNsSince(int64_t begin_ns) {
  ns.fetch_add(static_cast<uint64_t>(MonotonicNs() - begin_ns), std::memory_order_relaxed);
}

bool SamplingTail::Append(TokenId token) {
  history_.AppendOutput(token);
  if (!matcher_.has_value()) return true;
  masked_ = false;
  if (most_cut_ > 0) {
    before_.push_back(*matcher_);
    if (before_.size() > static_cast<size_t>(most_cut_)) before_.erase(before_.begin());
  }
  return matcher_->Append(token);
}

void SamplingTail::Follow(int64_t start, absl::Span<const TokenId> tokens, bool ends) {
  CHECK_LE(start, history_.size());
  const int64_t end = start + static_cast<int64_t>(tokens.size());
  int64_t position = std::max(start, opened_);
  const auto token_at = [&](int64_t at) { return tokens[static_cast<size_t>(at - start)]; };
  const auto same = [&](int64_t at) { return history_.tokens()[static_cast<size_t>(at)] == token_at(at); };
  while (position < std::min(end, history_.size()) && same(position)) ++position;
  if (ends || position < end) CutTo(std::max(position, opened_));
  for (; position < end; ++position) Append(token_at(position));
}

void SamplingTail::CutTo(int64_t size) {
  const auto taken = static_cast<size_t>(history_.size() - size);
  if (taken == 0) return;
  history_.CutTo(size);
  if (!matcher_.has_value()) return;
  CHECK_LE(taken, before_.size());
  const auto first = before_.end() - static_cast<std::ptrdiff_t>(taken);
  matcher_ = std::move(*first);
  before_.erase(first, before_.end());
  masked_ = false;
}

const AllowedTokens* SamplingTail::allowed() const {
  if (!matcher_.has_value()) return nullptr;
  CHECK(masked_);
  return &allowed_;
}

void SamplingTail::MakeMask(GrammarMasks* masks, MaskCounters* counters) {
  const int64_t begin_ns = MonotonicNs();
  const GrammarMasks::Found found = masks->Allowed(*matcher_, &allowed_.bits);
  allowed_.any = found.any;
  allowed_.complete = matcher_->accepting();
  masked_ = true;
  counters->AddNsSince(begin_ns);
  counters->hits.fetch_add(found.kept ? 1 : 0, std::memory_order_relaxed);
}

absl::Status SamplingTails::Validate(const MicroBatch& batch) {
  pending_ = {};
  for (const SequenceId sequence : batch.free) {
    const auto tail = tails_.find(sequence);
    if (tail != tails_.end() && tail->second.grammar() != kNoGrammar) ++pending_.freed[tail->second.grammar()];
  }
  RETURN_IF_ERROR(ValidateDrops(batch));
  RETURN_IF_ERROR(ValidateDefinitions(batch));
  for (const OpenSequence& open : batch.open) RETURN_IF_ERROR(ValidateOpen(batch, open));
  return absl::OkStatus();
}

absl::Status SamplingTails::ValidateDrops(const MicroBatch& batch) {
  for (const GrammarId id : batch.drop_grammars) {
    const auto grammar = grammars_.find(id);
    if (grammar == grammars_.end()) return BadGrammar(id, "is dropped, but is not there");
    const auto freed = pending_.freed.find(id);
    const int64_t followers = grammar->second.followers - (freed == pending_.freed.end() ? 0 : freed->second);
    if (followers > 0)
      return BadGrammar(id, "is dropped, but is that of ", followers, " open sequences, expected none");
  }
  return absl::OkStatus();
}

absl::Status SamplingTails::ValidateDefinitions(const MicroBatch& batch) {
  for (const GrammarDefinition& definition : batch.define_grammars) {
    const GrammarId id = definition.id;
    if (grammars_.contains(id)) return BadGrammar(id, "is defined, but is there already; expected a new id");
    const size_t there = grammars_.size() - batch.drop_grammars.size() + pending_.defined.size();
    if (there >= most_grammars_) {
      return BadGrammar(id, "is one more than the ", most_grammars_, " that may be there at once");
    }
    if (absl::Status status = ReadVocabulary(); !status.ok()) {
      return BadGrammar(id, "cannot be followed: ", status.message());
    }
    absl::StatusOr<GrammarProgram> program = GrammarProgram::Decode(definition.program);
    if (!program.ok()) return BadGrammar(id, "does not decode: ", program.status().message());
    if (absl::Status status = CheckGrammarTokens(*program, *vocabulary_); !status.ok()) {
      return BadGrammar(id, "cannot be followed: ", status.message());
    }
    pending_.defined.emplace_back(id, *std::move(program));
  }
  return absl::OkStatus();
}

absl::Status SamplingTails::ValidateOpen(const MicroBatch& batch, const OpenSequence& open) {
  std::optional<GrammarMatcher>& matcher = pending_.matchers.emplace_back();
  const GrammarId id = open.grammar;
  if (id == kNoGrammar) return absl::OkStatus();
  const auto defined = std::find_if(pending_.defined.begin(), pending_.defined.end(),
                                    [id](const auto& definition) { return definition.first == id; });
  const bool dropped =
      std::find(batch.drop_grammars.begin(), batch.drop_grammars.end(), id) != batch.drop_grammars.end();
  const auto known = dropped ? grammars_.end() : grammars_.find(id);
  if (defined == pending_.defined.end() && known == grammars_.end()) {
    return BadGrammar(id, "is to be that of sequence ", open.sequence, ", but is not there");
  }
  const int64_t begin_ns = MonotonicNs();
  matcher.emplace(defined != pending_.defined.end() ? defined->second : known->second.program, vocabulary_);
  for (size_t i = 0; i < open.output.size(); ++i) {
    if (matcher->Append(open.output[i])) continue;
    return BadGrammar(id, "does not allow the output of sequence ", open.sequence, ": token ", open.output[i],
                      " at place ", i, " of it");
  }
  counters_->AddNsSince(begin_ns);
  return absl::OkStatus();
}

absl::Status SamplingTails::ReadVocabulary() {
  if (vocabulary_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(vocabulary_, source_());
  masks_ = std::make_unique<GrammarMasks>(vocabulary_);
  return absl::OkStatus();
}

void SamplingTails::Commit(const MicroBatch& batch) {
  for (const auto& [id, followers] : pending_.freed) grammars_.at(id).followers -= followers;
  for (const SequenceId sequence : batch.free) tails_.erase(sequence);
  for (const GrammarId id : batch.drop_grammars) grammars_.erase(id);
  for (auto& [id, program] : pending_.defined) grammars_.emplace(id, Grammar{std::move(program)});
  for (size_t i = 0; i < batch.open.size(); ++i) {
    const OpenSequence& open = batch.open[i];
    if (open.grammar != kNoGrammar) ++grammars_.at(open.grammar).followers;
    tails_.emplace(open.sequence, SamplingTail(open, std::move(pending_.matchers[i]), most_cut_));
  }
}

bool SamplingTails::MakeAnyMask() {
  if (grammars_.empty()) return false;
  const auto found =
      std::find_if(tails_.begin(), tails_.end(), [](const auto& tail) { return tail.second.lacks_mask(); });
  if (found == tails_.end()) return false;
  found->second.MakeMask(masks_.get(), counters_);
  return true;
}

}  // namespace stagecoach
