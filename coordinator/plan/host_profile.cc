#include "coordinator/plan/host_profile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;

// Takes the slower one of each.
void Worsen(const LinkFacts& link, std::optional<LinkFacts>* worst) {
  if (!worst->has_value()) {
    *worst = link;
    return;
  }
  (*worst)->latency_us = std::max((*worst)->latency_us, link.latency_us);
  (*worst)->bandwidth_gbit_s = std::min((*worst)->bandwidth_gbit_s, link.bandwidth_gbit_s);
  (*worst)->jitter_us = std::max((*worst)->jitter_us, link.jitter_us);
}

std::optional<LinkFacts> WorstOf(const HostProfile& profile, int from, int to) {
  std::optional<LinkFacts> worst;
  for (const LinkFacts& link : profile.links) {
    if (link.from == from && link.to == to) Worsen(link, &worst);
  }
  return worst;
}

}  // namespace

std::optional<LinkFacts> LinkBetween(const HostProfile& profile, int from, int to) {
  if (std::optional<LinkFacts> link = WorstOf(profile, from, to); link.has_value()) return link;
  if (std::optional<LinkFacts> back = WorstOf(profile, to, from); back.has_value()) {
    std::swap(back->from, back->to);
    std::swap(back->from_stage, back->to_stage);
    return back;
  }
  if (from == to) return LinkFacts{from, to, kLocalLatencyUs, kLocalBandwidthGbitS};
  std::optional<LinkFacts> link = profile.default_link;
  if (link.has_value()) {
    link->from = from;
    link->to = to;
  }
  return link;
}

const HostSpeed* SpeedOf(const HostFacts& host, int stages, int threads) {
  const HostSpeed* best = nullptr;
  // Of two, the one that fits better: not above what is asked for, and then as close to it as can be.
  const auto better = [](int candidate, int best, int asked) {
    if ((candidate <= asked) != (best <= asked)) return candidate <= asked;
    return candidate <= asked ? candidate > best : candidate < best;
  };
  for (const HostSpeed& speed : host.speeds) {
    if (best == nullptr || better(speed.stages, best->stages, stages) ||
        (speed.stages == best->stages && better(speed.threads, best->threads, threads))) {
      best = &speed;
    }
  }
  return best;
}

absl::StatusOr<HostProfile> ReadHostProfile(const std::string& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad() || (in.gcount() == 0 && errno != 0)) {
    return absl::NotFoundError(absl::StrCat("cannot read '", file, "': ", std::strerror(errno == 0 ? EIO : errno)));
  }
  text.erase(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::NotFoundError(
        absl::StrCat("'", file, "' has more than ", kMaxFileBytes, " bytes and is no host profile"));
  }
  return ParseHostProfile(file, text);
}

}  // namespace stagecoach
