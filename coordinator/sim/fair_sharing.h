#ifndef STAGECOACH_COORDINATOR_SIM_FAIR_SHARING_H_
#define STAGECOACH_COORDINATOR_SIM_FAIR_SHARING_H_

// Flows that cross wires together share them max-min fairly: no flow could have more without taking from one that has
// no more than it. A flow f has
//   rate(f) = min(what its own link gives, the least over its wires w of fair(w))
//   fair(w) = (bandwidth of w - the rates of its flows that are held lower elsewhere) / (number of its other flows)
// found by progressive filling (Bertsekas and Gallager, Data Networks, 2nd ed. 1992, section 6.5.2). Rates change only
// when a flow begins or ends. Fluid max-min flows stand for TCP connections of like round-trip times within some
// percent (Velho et al., On the validity of flow-level TCP network models for grid and cloud simulations, ACM TOMACS
// 23(4), 2013).
//
// Flows of one kind (the same link bandwidth, the same wires) always have one rate, so no single flow is kept up to
// date: its kind counts the bytes that each of its flows was given, and a flow ends when that count has grown by its
// own bytes. An event costs O(kinds x wires of one, a few times, + log flows).
//
// Times are in nanoseconds: a flow ends at the nearest one. Deterministic. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {

class FairSharing {
 public:
  // Each returns a number for what it adds, from 0; before the first flow. Bandwidths > 0.
  int AddWire(double bytes_per_s);
  int AddKind(double link_bytes_per_s, std::vector<int> wires);  // one that is there already, where it is the same

  // Times of calls never decrease. `flow` is the caller's name for it.
  void Begin(int kind, uint64_t flow, double bytes, int64_t now_ns);
  // When the next flow ends if none begins before; kNeverNs: there is none.
  int64_t NextEndNs() const;
  // Those that have ended by then: to be called at NextEndNs, when they do. Kind by kind, of one kind in the order in
  // which they end, of two at the same time the one that began first.
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
    void GiveUntil(int64_t now_ns);
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
