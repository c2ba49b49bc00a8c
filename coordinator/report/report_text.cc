#include "coordinator/report/report_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stagecoach {

std::string FigureText(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  if (magnitude >= 999.5 && magnitude < 1e6) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.3g", value);
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
