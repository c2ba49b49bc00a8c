#include "stage_worker/exec/huge_pages.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "stage_worker/exec/page_memory.h"

namespace stagecoach {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack; older kernels answer EINVAL

// "Rss:      1234 kB" in bytes; 0 for what is no number.
uint64_t BytesOfField(absl::string_view value) {
  uint64_t kilobytes = 0;
  const absl::string_view number = absl::StripSuffix(absl::StripAsciiWhitespace(value), " kB");
  return absl::SimpleAtoi(number, &kilobytes) ? kilobytes * 1024 : 0;
}

}  // namespace

HugeShare HugeShareIn(absl::string_view smaps) {
  HugeShare all, mapping;
  for (absl::string_view line : absl::StrSplit(smaps, '\n')) {
    if (absl::ConsumePrefix(&line, "Rss:")) {
      mapping.resident_bytes = BytesOfField(line);
    } else if (absl::ConsumePrefix(&line, "AnonHugePages:")) {
      mapping.huge_bytes = BytesOfField(line);
    } else if (absl::ConsumePrefix(&line, "VmFlags:")) {  // the last line of a mapping
      const bool asked = absl::StrContains(absl::StrCat(line, " "), " hg ");
      all.resident_bytes += asked ? mapping.resident_bytes : 0;
      all.huge_bytes += asked ? mapping.huge_bytes : 0;
      mapping = {};
    }
  }
  return all;
}

HugeShare OwnHugeShare() {
  std::ostringstream text;
  text << std::ifstream("/proc/self/smaps").rdbuf();
  return HugeShareIn(text.str());
}

void CollapseIntoHugePages(uint8_t* begin, size_t bytes) { madvise(begin, bytes, kCollapse); }

absl::StatusOr<HugeShare> TryHugePages(size_t bytes) {
  const HugeShare before = OwnHugeShare();
  ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(bytes, "a trial of huge pages"));
  std::memset(memory.data(), 1, bytes);
  CollapseIntoHugePages(memory.data(), bytes);
  const HugeShare with = OwnHugeShare();
  const auto more = [](uint64_t now, uint64_t then) { return now > then ? now - then : 0; };
  return HugeShare{more(with.resident_bytes, before.resident_bytes), more(with.huge_bytes, before.huge_bytes)};
}

bool HugePagesDenied() { return prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1; }

}  // namespace stagecoach
