#include "common/job/emulated_link.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kLinkForm = "expected such as latency=2ms,bandwidth=1Gbit";

struct LinkUnit {
  absl::string_view name;
  double factor;  // to seconds, or to bytes a second
};
constexpr LinkUnit kLatencyUnits[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
constexpr LinkUnit kBandwidthUnits[] = {{"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"kbit", 1e3 / 8}};

template <size_t kUnits>
absl::StatusOr<double> ParseQuantity(absl::string_view text, const LinkUnit (&units)[kUnits]) {
  size_t digits = 0;
  while (digits < text.size() && (absl::ascii_isdigit(text[digits]) || text[digits] == '.')) ++digits;
  double number = 0;
  if (absl::SimpleAtod(text.substr(0, digits), &number)) {
    for (const LinkUnit& known : units) {
      if (absl::EqualsIgnoreCase(text.substr(digits), known.name)) return number * known.factor;
    }
  }
  std::string names;
  for (const LinkUnit& known : units) absl::StrAppend(&names, names.empty() ? "" : ", ", known.name);
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a number with one of the units ", names));
}

// In the largest unit that leaves a number of 1 or more, with the digits that give the same value back.
template <size_t kUnits>
std::string QuantityText(double value, const LinkUnit (&units)[kUnits]) {
  const LinkUnit* best = &units[kUnits - 1];
  for (const LinkUnit& unit : units) {
    if (value / unit.factor >= 1 - 1e-9) {
      best = &unit;
      break;
    }
  }
  std::string text;
  double read = 0;
  for (int digits = 6; digits <= 17 && read * best->factor != value; ++digits) {
    text = absl::StrFormat("%.*g", digits, value / best->factor);
    if (!absl::SimpleAtod(text, &read)) break;
  }
  return absl::StrCat(text, best->name);
}

}  // namespace

absl::Status CheckEmulatedLink(const EmulatedLink& link) {
  if (absl::Status status = CheckNumber(link.latency_s, kLinkLatencyS); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("`emulated_link`: a latency of ", status.message(), " s"));
  }
  if (link.bytes_per_s != 0) {
    if (absl::Status status = CheckNumber(link.bytes_per_s, kLinkBytesPerS); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("`emulated_link`: a bandwidth of ", status.message(), " bytes a second"));
    }
  }
  if (link == EmulatedLink()) return absl::InvalidArgumentError("`emulated_link`: a link that delays nothing");
  return absl::OkStatus();
}

absl::StatusOr<EmulatedLink> ParseEmulatedLink(absl::string_view text) {
  EmulatedLink link;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (sides.first == "latency") {
      ASSIGN_OR_RETURN(link.latency_s, ParseQuantity(sides.second, kLatencyUnits));
    } else if (sides.first == "bandwidth") {
      ASSIGN_OR_RETURN(link.bytes_per_s, ParseQuantity(sides.second, kBandwidthUnits));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is neither latency=... nor bandwidth=...; ", kLinkForm));
    }
  }
  RETURN_IF_ERROR(CheckEmulatedLink(link));
  return link;
}

std::string EmulatedLinkText(const EmulatedLink& link) {
  std::string text;
  if (link.latency_s > 0) absl::StrAppend(&text, "latency=", QuantityText(link.latency_s, kLatencyUnits));
  if (link.bytes_per_s > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ",", "bandwidth=", QuantityText(link.bytes_per_s, kBandwidthUnits));
  }
  return text;
}

}  // namespace stagecoach
