#include "coordinator/launch/placement.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {

int Placement::stages() const {
  int sum = 0;
  for (const PlacedStages& placed : hosts) sum += placed.draft ? 0 : placed.stages;
  return sum;
}

const PlacedStages* Placement::draft() const { return !hosts.empty() && hosts.back().draft ? &hosts.back() : nullptr; }

bool Placement::AllHere() const {
  return std::all_of(hosts.begin(), hosts.end(), [](const PlacedStages& placed) { return placed.here; });
}

std::string Placement::Describe() const {
  return absl::StrJoin(hosts, ", ", [](std::string* out, const PlacedStages& placed) {
    absl::StrAppend(out, placed.draft ? "the draft" : absl::StrCat(placed.stages), " on ", placed.host);
  });
}

int64_t SlotsOf(const std::vector<LaunchHost>& hosts) {
  int64_t slots = 0;
  for (const LaunchHost& host : hosts) slots += host.slots.spare || host.slots.draft ? 0 : host.slots.slots;
  return slots;
}

Placement PlaceStages(const std::vector<LaunchHost>& hosts, int stages, const std::set<std::string>& left_out) {
  Placement placement;
  int left = stages;
  for (const bool spare : {false, true}) {
    for (const LaunchHost& host : hosts) {
      if (left == 0) break;
      if (host.slots.draft || host.slots.spare != spare || left_out.contains(host.name())) continue;
      const int placed = std::min(left, host.slots.slots);
      left -= placed;
      // A host that is named twice with another between keeps both of its places.
      const bool again = !placement.hosts.empty() && placement.hosts.back().host == host.name() &&
                         placement.hosts.back().model == host.slots.model;
      if (again) {
        placement.hosts.back().stages += placed;
      } else {
        placement.hosts.push_back({host.name(), placed, host.here, host.slots.model});
      }
    }
  }
  return placement;
}

void PlaceDraft(const std::vector<LaunchHost>& hosts, const std::set<std::string>& left_out, Placement* placement) {
  for (const LaunchHost& host : hosts) {
    if (!host.slots.draft || left_out.contains(host.name())) continue;
    placement->hosts.push_back({host.name(), 1, host.here, host.slots.model, /*draft=*/true});
  }
}

}  // namespace stagecoach
