#ifndef STAGECOACH_COORDINATOR_SIM_FAIR_SHARING_H_
#define STAGECOACH_COORDINATOR_SIM_FAIR_SHARING_H_

// Flows that share wires do so max-min fairly: no flow could have more without taking from one that has no more. Flow f
// has
//   rate(f) = min(what its own link gives, the least over its wires w of fair(w))
//   fair(w) = (bandwidth of w - the rates of its flows that are held lower elsewhere) / (number of its other flows)
// found by progressive filling (Bertsekas and Gallager, Data Networks, 2nd ed. 1992, section 6.5.2). Fluid flows stand
// for TCP connections of like round-trip times within some percent (Velho et al., ACM TOMACS 23(4), 2013). Times are in
// nanoseconds: a flow ends at the nearest one. Deterministic. Not thread-safe.
//
// Flows of one kind (equal link bandwidth, equal wires) have equal rates, so flows are not updated one by one: a kind
// counts the bytes given to each of its flows, and a flow ends when that count has grown by its own bytes. An event
// costs O(kinds x wires of one, a few times, + log flows).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {

class FairSharing {
 public:
  // Each returns the number of what it adds, from 0. Call before the first flow. Bandwidths > 0.
  int AddWire(double bytes_per_s);
  int AddKind(double link_bytes_per_s, std::vector<int> wires);  // one that is there already, where it is the same

  // Times never decrease. `flow` is the caller's id.
  void Begin(int kind, uint64_t flow, double bytes, int64_t now_ns);
  // When the next flow ends if none begins before; kNeverNs: there is none.
  int64_t NextEndNs() const;
  // The flows that have ended; call at NextEndNs. In order of kind, then of ending, then of beginning.
  std::vector<uint64_t> TakeEnded(int64_t now_ns);

 private:
  struct Flow {
    double end_bytes = 0;  // when its kind has given each so many, it is over
    uint64_t order = 0;    // of beginning
    uint64_t flow = 0;
    bool operator>(const Flow& other) const {
      return end_bytes != other.end_bytes ? end_bytes > other.end_bytes : order > other.order;
    }
  };
  struct Kind {
    double link_bytes_per_s = 0;
    std::vector<int> wires;
    std::vector<Flow> flows;  // a heap, the one that ends first on top
    double bytes_per_s = 0;   // of each
    double given_bytes = 0;   // to each, up to since_ns, since there was no flow
    int64_t since_ns = 0;

    int64_t FirstEndNs() const;  // of its flows; it has some
    void AdvanceTo(int64_t now_ns);
  };
  struct Wire {
    double bytes_per_s = 0;
    double left_bytes_per_s = 0;  // of Share: not given yet
    size_t growing = 0;           // of Share: flows whose rate is not found yet
    double Fair() const { return left_bytes_per_s / static_cast<double>(growing); }
  };

  void Share(int64_t now_ns);
  double TightestShare() const;
  bool IsFull(const Kind& kind, double share) const;

  std::vector<Wire> wires_;
  std::vector<Kind> kinds_;
  std::vector<Kind*> growing_;  // of Share
  uint64_t next_order_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_FAIR_SHARING_H_
