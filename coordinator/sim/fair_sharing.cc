#include "coordinator/sim/fair_sharing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace stagecoach {

int64_t FairSharing::Kind::FirstEndNs() const {
  const double left_bytes = flows.front().end_bytes - given_bytes;
  return left_bytes > 0 ? since_ns + NsOf(left_bytes / bytes_per_s) : since_ns;
}

void FairSharing::Kind::AdvanceTo(int64_t now_ns) {
  given_bytes += bytes_per_s * SecondsOf(now_ns - since_ns);
  since_ns = now_ns;
}

int FairSharing::AddWire(double bytes_per_s) {
  wires_.push_back({.bytes_per_s = bytes_per_s});
  return static_cast<int>(wires_.size()) - 1;
}

int FairSharing::AddKind(double link_bytes_per_s, std::vector<int> wires) {
  const auto same = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return kind.link_bytes_per_s == link_bytes_per_s && kind.wires == wires;
  });
  if (same != kinds_.end()) return static_cast<int>(same - kinds_.begin());
  Kind& kind = kinds_.emplace_back();
  kind.link_bytes_per_s = link_bytes_per_s;
  kind.wires = std::move(wires);
  return static_cast<int>(kinds_.size()) - 1;
}

void FairSharing::Begin(int number, uint64_t flow, double bytes, int64_t now_ns) {
  Kind& kind = kinds_[static_cast<size_t>(number)];
  if (kind.flows.empty()) {  // the count begins anew, so that it stays small and keeps its precision
    kind.given_bytes = 0;
    kind.since_ns = now_ns;
  } else {
    kind.AdvanceTo(now_ns);
  }
  kind.flows.push_back({kind.given_bytes + bytes, next_order_++, flow});
  std::push_heap(kind.flows.begin(), kind.flows.end(), std::greater<>());
  Share(now_ns);
}

int64_t FairSharing::NextEndNs() const {
  int64_t next_ns = kNeverNs;
  for (const Kind& kind : kinds_) {
    if (!kind.flows.empty()) next_ns = std::min(next_ns, kind.FirstEndNs());
  }
  return next_ns;
}

std::vector<uint64_t> FairSharing::TakeEnded(int64_t now_ns) {
  std::vector<uint64_t> ended;
  for (Kind& kind : kinds_) {
    while (!kind.flows.empty() && kind.FirstEndNs() <= now_ns) {
      std::pop_heap(kind.flows.begin(), kind.flows.end(), std::greater<>());
      ended.push_back(kind.flows.back().flow);
      kind.flows.pop_back();
    }
  }
  if (!ended.empty()) Share(now_ns);
  return ended;
}

// The set of flows has changed: computes their rates anew.
void FairSharing::Share(int64_t now_ns) {
  for (Wire& wire : wires_) {
    wire.left_bytes_per_s = wire.bytes_per_s;
    wire.growing = 0;
  }
  growing_.clear();
  for (Kind& kind : kinds_) {
    if (kind.flows.empty()) continue;
    growing_.push_back(&kind);
    for (const int wire : kind.wires) wires_[static_cast<size_t>(wire)].growing += kind.flows.size();
  }
  while (!growing_.empty()) {
    const double share = TightestShare();
    // Flows whose own link gives at most this share get all of their link, which leaves more for the others. If there
    // are none, a wire is full.
    const bool held_by_links = std::any_of(growing_.begin(), growing_.end(),
                                           [&](const Kind* kind) { return kind->link_bytes_per_s <= share; });
    const auto found = std::partition(growing_.begin(), growing_.end(), [&](const Kind* kind) {
      return held_by_links ? kind->link_bytes_per_s > share : !IsFull(*kind, share);
    });
    for (auto it = found; it != growing_.end(); ++it) {
      Kind& kind = **it;
      const double bytes_per_s = held_by_links ? kind.link_bytes_per_s : share;
      if (bytes_per_s != kind.bytes_per_s) {
        kind.AdvanceTo(now_ns);
        kind.bytes_per_s = bytes_per_s;
      }
      for (const int number : kind.wires) {
        Wire& wire = wires_[static_cast<size_t>(number)];
        wire.growing -= kind.flows.size();
        wire.left_bytes_per_s -= bytes_per_s * static_cast<double>(kind.flows.size());
        wire.left_bytes_per_s = std::max(0.0, wire.left_bytes_per_s);
      }
    }
    growing_.erase(found, growing_.end());
  }
}

// What the wire that is full first gives each flow that still grows.
double FairSharing::TightestShare() const {
  double share = std::numeric_limits<double>::infinity();
  for (const Wire& wire : wires_) {
    if (wire.growing > 0) share = std::min(share, wire.Fair());
  }
  return share;
}

bool FairSharing::IsFull(const Kind& kind, double share) const {
  return std::any_of(kind.wires.begin(), kind.wires.end(),
                     [&](int wire) { return wires_[static_cast<size_t>(wire)].Fair() <= share; });
}

}  // namespace stagecoach
