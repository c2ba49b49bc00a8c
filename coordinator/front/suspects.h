#ifndef STAGECOACH_COORDINATOR_FRONT_SUSPECTS_H_
#define STAGECOACH_COORDINATOR_FRONT_SUSPECTS_H_

// Finds the request that kills a stage each time it is computed, so that it ends with an error and the others go on.
//
// Only a stage that died by its own doing accuses requests. A request that was with two such jobs, one after the other,
// and brought nothing in either is a suspect. Suspects are halved: one half is on trial, and only it is given to jobs;
// when it brings tokens it is cleared and the next half follows, when it kills a stage again it is halved again. A
// request is guilty when it killed a stage while it was alone. Where nothing at all brings a token any more it is
// no request that does it: after three verdicts without one in between there are no more, and the losses end the run.
// Pure, and not thread-safe.

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/base/ids.h"

namespace stagecoach {

class Suspects {
 public:
  // A job that had been given the requests `given` (those unfinished, in the order of submission) is lost. `accusing`:
  // a stage died by its own signal or abort. Returns the request that is found guilty; the caller ends it.
  std::optional<RequestId> Lost(bool accusing, const std::vector<RequestId>& given);

  // The request brought a token or a score, or ended. True when requests that were held back may run from now on.
  bool Progressed(RequestId request);
  bool Ended(RequestId request);

  // Whether a job may be given this request now.
  bool MayRun(RequestId request) const { return trial_.empty() || trial_.contains(request); }

 private:
  bool Clear(RequestId request);
  void NextTrial();

  std::set<RequestId> progressed_;     // in the present job
  std::map<RequestId, int> silences_;  // accusing losses in a row through which the request brought nothing
  std::vector<RequestId> suspects_;    // in the order of submission; those on trial are among them
  std::set<RequestId> trial_;          // empty: nobody is held back
  int verdicts_ = 0;                   // since anybody brought a token
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_SUSPECTS_H_
