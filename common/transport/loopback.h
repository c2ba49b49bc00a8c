#ifndef STAGECOACH_COMMON_TRANSPORT_LOOPBACK_H_
#define STAGECOACH_COMMON_TRANSPORT_LOOPBACK_H_

// The ranks of a job as threads of one process, for tests: an Endpoint over memory, with faults on demand. Poll waits
// briefly if nothing has arrived, so that many ranks can share few cores.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/transport/endpoint.h"

namespace stagecoach {

// What happens to a frame on its way.
struct Fault {
  enum class Kind { kNone, kDrop, kDelay, kCorrupt, kTruncate } kind = Kind::kNone;
  int64_t delay_us = 0;  // kDelay: this and all later frames of the same channel and pair wait for it, order is kept
  size_t offset = 0;     // kCorrupt: the byte that is inverted; kTruncate: the length that is left
};
// Called on the sender's thread for every frame; `index` counts the frames of this channel from `source` to
// `destination`.
using FaultHook = std::function<Fault(Channel channel, int source, int destination, uint64_t index)>;

class LoopbackWorld {
 public:
  explicit LoopbackWorld(int size, FaultHook hook = nullptr);
  ~LoopbackWorld();
  // The endpoint of a rank, for one thread, once a rank. The world outlives its use. After its destruction frames to
  // its rank are dropped and their sends complete.
  std::unique_ptr<Endpoint> Connect(int rank);
  // What MPI_Abort is to a real job: from now on Poll and Send of every rank return kAborted. Thread-safe.
  void Abort() { aborted_ = true; }

 private:
  struct Mailbox;
  class LoopbackEndpoint;
  std::vector<std::shared_ptr<Mailbox>> mailboxes_;
  FaultHook hook_;
  std::atomic<bool> aborted_{false};
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_LOOPBACK_H_
