#ifndef STAGECOACH_COORDINATOR_REQUEST_GRAMMAR_IDS_H_
#define STAGECOACH_COORDINATOR_REQUEST_GRAMMAR_IDS_H_

// The grammars that sequences follow, and which of them the last stage has. Pure and not thread-safe, like the
// scheduler that owns it. Programs are any bytes here.
//
//   Equal     programs are one grammar with one id.
//   Defined   by the micro-batch that opens the first sequence with it. At most kMaxDefinitionBytes go into one, and
//             open sequences follow at most kMaxFollowedBytes: the scheduler sees to it.
//   Idle      no open sequence has it. The kMaxIdleGrammars that became so last stay on the stage, if those that are
//             followed leave as much of kMaxFollowedBytes, since the next request often has the same one; the others
//             are dropped by the next micro-batch. They cause none.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

class GrammarIds {
 public:
  struct Grammar {
    std::string program;
    GrammarId id = kNoGrammar;            // the last stage has it under this; kNoGrammar: it has not
    int64_t sequences = 0;                // unfinished ones with it
    int64_t open = 0;                     // of them, those that the stages know
    std::list<Grammar*>::iterator place;  // in idle_, if it has an id and none is open

    int64_t bytes() const { return static_cast<int64_t>(program.size()); }
  };

  // An unfinished sequence with this program has come, or is gone.
  Grammar* Add(std::string program);
  void Remove(Grammar* grammar);

  // The micro-batch opens a sequence with it, and defines it first where it has to; or it frees one.
  GrammarId Open(Grammar* grammar, MicroBatch* batch);
  void Close(Grammar* grammar);
  // Has the micro-batch drop idle ones beyond those that may stay. After all of its opens.
  void DropIdle(MicroBatch* batch);

  size_t size() const { return grammars_.size(); }
  int64_t followed_bytes() const { return followed_bytes_; }  // of those that open sequences have
  int64_t idle_bytes() const { return idle_bytes_; }          // of those that none has and the stage still has

  // kInternal names the first violation. The caller's numbers: unfinished sequences with a grammar, and the open ones.
  absl::Status CheckIntegrity(int64_t sequences, int64_t open) const;

 private:
  void ForgetUnused(Grammar* grammar);

  absl::flat_hash_map<absl::string_view, std::unique_ptr<Grammar>> grammars_;  // by program
  std::list<Grammar*> idle_;                                                   // idle for the longest time first
  int64_t followed_bytes_ = 0, idle_bytes_ = 0;
  GrammarId last_id_ = kNoGrammar;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REQUEST_GRAMMAR_IDS_H_
