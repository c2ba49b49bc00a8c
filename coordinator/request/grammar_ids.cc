#include "coordinator/request/grammar_ids.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {

GrammarIds::Grammar* GrammarIds::Add(std::string program) {
  auto found = grammars_.find(program);
  if (found == grammars_.end()) {
    auto grammar = std::make_unique<Grammar>();
    grammar->program = std::move(program);
    const absl::string_view key = grammar->program;
    found = grammars_.emplace(key, std::move(grammar)).first;
  }
  ++found->second->sequences;
  return found->second.get();
}

void GrammarIds::Remove(Grammar* grammar) {
  --grammar->sequences;
  ForgetUnused(grammar);
}

GrammarId GrammarIds::Open(Grammar* grammar, MicroBatch* batch) {
  if (grammar->id == kNoGrammar) {
    grammar->id = ++last_id_;
    batch->define_grammars.push_back({grammar->id, grammar->program});
  } else if (grammar->open == 0) {
    idle_.erase(grammar->place);
    idle_bytes_ -= grammar->bytes();
  }
  if (grammar->open++ == 0) followed_bytes_ += grammar->bytes();
  return grammar->id;
}

void GrammarIds::Close(Grammar* grammar) {
  CHECK_GT(grammar->open, 0);
  if (--grammar->open > 0) return;
  grammar->place = idle_.insert(idle_.end(), grammar);
  followed_bytes_ -= grammar->bytes();
  idle_bytes_ += grammar->bytes();
}

void GrammarIds::DropIdle(MicroBatch* batch) {
  const auto too_many = [this] {
    return idle_.size() > static_cast<size_t>(kMaxIdleGrammars) || followed_bytes_ + idle_bytes_ > kMaxFollowedBytes;
  };
  while (!idle_.empty() && too_many()) {
    Grammar* const grammar = idle_.front();
    idle_.pop_front();
    idle_bytes_ -= grammar->bytes();
    batch->drop_grammars.push_back(std::exchange(grammar->id, kNoGrammar));
    ForgetUnused(grammar);
  }
}

void GrammarIds::ForgetUnused(Grammar* grammar) {
  if (grammar->sequences > 0 || grammar->id != kNoGrammar) return;
  grammars_.erase(grammars_.find(grammar->program));
}

absl::Status GrammarIds::CheckIntegrity(int64_t sequences, int64_t open) const {
  std::set<GrammarId> ids;
  size_t idle = 0;
  int64_t followed = 0, idle_bytes = 0;
  for (const auto& [program, grammar] : grammars_) {
    sequences -= grammar->sequences;
    open -= grammar->open;
    const bool defined = grammar->id != kNoGrammar;
    const bool is_idle = defined && grammar->open == 0;
    idle += is_idle ? 1 : 0;
    followed += grammar->open > 0 ? grammar->bytes() : 0;
    idle_bytes += is_idle ? grammar->bytes() : 0;
    if (program != grammar->program || grammar->open < 0 || grammar->open > grammar->sequences ||
        (grammar->open > 0 && !defined) || (grammar->sequences == 0 && !defined) || grammar->id > last_id_ ||
        (defined && !ids.insert(grammar->id).second) || (is_idle && *grammar->place != grammar.get())) {
      return absl::InternalError(absl::StrCat("grammar ", grammar->id, " has ", grammar->sequences, " sequences, ",
                                              grammar->open, " of them open"));
    }
  }
  if (followed != followed_bytes_ || followed > kMaxFollowedBytes) {
    return absl::InternalError(absl::StrCat("open sequences follow ", followed, " bytes of grammars, counted are ",
                                            followed_bytes_, ", expected at most ", kMaxFollowedBytes));
  }
  if (idle_bytes != idle_bytes_) {
    return absl::InternalError(absl::StrCat(idle_bytes, " bytes of grammars are idle, counted are ", idle_bytes_));
  }
  if (sequences == 0 && open == 0 && idle == idle_.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("of sequences with grammars, ", sequences, " are not counted and ", open,
                                          " open ones; ", idle, " grammars are idle, listed are ", idle_.size()));
}

}  // namespace stagecoach
