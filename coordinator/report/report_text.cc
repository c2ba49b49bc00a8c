#include "coordinator/report/report_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stagecoach {

std::string FigureText(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  // Nobody measures what lies beyond.
  if (magnitude >= 1e15 || (magnitude != 0 && magnitude < 1e-9)) return absl::StrFormat("%.3g", value);
  if (magnitude < 999.5) {
    const int before = magnitude == 0 ? 0 : static_cast<int>(std::floor(std::log10(magnitude * (1 + 1e-12))));
    std::string text = absl::StrFormat("%.*f", std::max(0, 2 - before), value);
    if (text.find('.') == std::string::npos) return text;
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  }
  std::string text = absl::StrFormat("%.0f", magnitude);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return value < 0 ? "-" + text : text;
}

std::string PercentText(double share) {
  if (!std::isfinite(share)) return "-";
  const double percent = 100 * share;
  const int digits = std::abs(percent) < 9.95 && percent != 0 ? 1 : 0;
  return absl::StrFormat("%.*f %%", digits, percent);
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds == 0) return "0 s";
  if (seconds < 1e-3) return FigureText(seconds * 1e6) + " \xC2\xB5s";
  if (seconds < 1) return FigureText(seconds * 1e3) + " ms";
  return seconds < 120 ? FigureText(seconds) + " s" : FigureText(seconds / 60) + " min";
}

std::string TimesText(double factor) { return FigureText(factor) + "\xC3\x97"; }

std::string ChangeText(double factor) {
  if (!std::isfinite(factor)) return "-";
  const std::string text = PercentText(std::abs(factor - 1));
  if (text == PercentText(0) || text == "0.0 %")
    return "\xC2\xB1"
           "0 %";
  return absl::StrCat(factor > 1 ? "+" : "\xE2\x88\x92", text);
}

std::string RateText(double value) {
  if (!std::isfinite(value)) return "-";
  for (const DecimalPrefix& unit : kDecimalPrefixes) {
    if (value >= unit.unit) return absl::StrCat(FigureText(value / unit.unit), " ", unit.sign);
  }
  return FigureText(value) + " ";
}

std::string BytesText(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib >= 1024 ? FigureText(mib / 1024) + " GiB" : FigureText(mib) + " MiB";
}

}  // namespace stagecoach
