#ifndef STAGECOACH_COORDINATOR_REPORT_REPORT_TEXT_H_
#define STAGECOACH_COORDINATOR_REPORT_REPORT_TEXT_H_

// Numbers as text for readers. Pure; values that are not finite become "-".

#include <cstdint>
#include <string>

namespace stagecoach {

struct DecimalPrefix {
  double unit;
  const char* sign;
};
inline constexpr DecimalPrefix kDecimalPrefixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};

// Three significant digits, or all before the point, in groups of three: "0.0123", "12.3", "1,230", "1,234,567".
std::string FigureText(double value);
// "12 %"; a digit behind the point below 10 %.
std::string PercentText(double share);
// Of seconds: "12.3 us", "4.5 ms", "12.3 s", "3.2 min".
std::string DurationText(double seconds);
// Of one value over another: "1.62×".
std::string TimesText(double factor);
// Of a change: "+62 %", "−3.1 %", "±0 %".
std::string ChangeText(double factor);
// With a decimal prefix and a space: "1.2 G", "300 ", for a unit behind it.
std::string RateText(double value);
// "604 MiB".
std::string BytesText(uint64_t bytes);
}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REPORT_REPORT_TEXT_H_
