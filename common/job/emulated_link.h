#ifndef STAGECOACH_COMMON_JOB_EMULATED_LINK_H_
#define STAGECOACH_COMMON_JOB_EMULATED_LINK_H_

// A link that the hops of a job are delayed as if they went over (common/transport/emulated_endpoint.h). Whatever is
// measured over one says so.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/value_range.h"

namespace stagecoach {

struct EmulatedLink {
  double latency_s = 0;    // of every frame, one way
  double bytes_per_s = 0;  // 0: no limit
  friend bool operator==(const EmulatedLink&, const EmulatedLink&) = default;
};

inline constexpr NumberRange kLinkLatencyS = {0, 1};
inline constexpr NumberRange kLinkBytesPerS = {1000, 1e12};  // or 0

// OK, or kInvalidArgument: "`emulated_link`: ...", also for one that delays nothing.
absl::Status CheckEmulatedLink(const EmulatedLink& link);

// "latency=2ms,bandwidth=1Gbit", in any order, one of them at least. Units of latency: us, ms, s; of bandwidth, a
// second: kbit, Mbit, Gbit (powers of ten; small letters do as well). kInvalidArgument says what was expected, without
// naming the option.
absl::StatusOr<EmulatedLink> ParseEmulatedLink(absl::string_view text);

// In that form; empty for one that delays nothing.
std::string EmulatedLinkText(const EmulatedLink& link);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JOB_EMULATED_LINK_H_
