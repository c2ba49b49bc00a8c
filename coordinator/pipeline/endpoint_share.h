#ifndef STAGECOACH_COORDINATOR_PIPELINE_ENDPOINT_SHARE_H_
#define STAGECOACH_COORDINATOR_PIPELINE_ENDPOINT_SHARE_H_

// One endpoint for several pipelines, whose stages are different ranks: each polls a part that has the frames of its
// own ranks only.

#include <deque>
#include <memory>
#include <vector>

#include "common/transport/endpoint.h"

namespace stagecoach {

// Used by the endpoint's thread.
class EndpointShare {
 public:
  // `endpoint` outlives the share, and is used only through its parts.
  explicit EndpointShare(Endpoint* endpoint);
  ~EndpointShare();

  // Frames from ranks that this part opened a receive for come to its Poll, in the endpoint's order; whichever part is
  // polled makes progress for all. Whether sends are pending, and counters, are the endpoint's. Lives as long as the
  // share.
  Endpoint* AddPart();

 private:
  class Part;
  Part* OwnerOf(int source) const;

  Endpoint* const endpoint_;
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PIPELINE_ENDPOINT_SHARE_H_
