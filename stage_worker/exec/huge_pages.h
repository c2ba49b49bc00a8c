#ifndef STAGECOACH_STAGE_WORKER_EXEC_HUGE_PAGES_H_
#define STAGECOACH_STAGE_WORKER_EXEC_HUGE_PAGES_H_

// Which huge pages the kernel really gave. PageMemory only asks for them; fragmented memory, a container or the
// system's setting may refuse. Thread-safe.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Of memory for which huge pages were asked. Both are 0 where the kernel does not tell.
struct HugeShare {
  uint64_t resident_bytes = 0;
  uint64_t huge_bytes = 0;  // of these, in huge pages
};

// Sums the mappings with the flag "hg" of a text in the form of /proc/PID/smaps.
HugeShare HugeShareIn(absl::string_view smaps);

// Of this process. Reads page tables: some ten milliseconds for 8 GiB in small pages.
HugeShare OwnHugeShare();

// Moves memory that has been written into huge pages at once, where it is not: a copy, and only on Linux 6.1 and later,
// whatever the system's setting. [begin, begin + bytes) of a PageMemory; nothing that was never touched, for which
// memory would be taken. Best effort: what fails stays as it is.
void CollapseIntoHugePages(uint8_t* begin, size_t bytes);

// Allocates and touches `bytes` as weights are, and says what of it is in huge pages. kResourceExhausted: no memory.
absl::StatusOr<HugeShare> TryHugePages(size_t bytes);

// Whether this process was denied huge pages, as by prctl(PR_SET_THP_DISABLE) of what started it.
bool HugePagesDenied();

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_EXEC_HUGE_PAGES_H_
