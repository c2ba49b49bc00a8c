#include "common/base/host_limits.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(HostLimits, AHostWithoutLimitsHasNoShortage) {
  EXPECT_THAT(ShortagesFor({.ranks = 65, .compute_threads = 4096}, HostLimits()), IsEmpty());
}

TEST(HostLimits, EachShortageSaysWhatThereIsWhatIsNeededAndWhatToDo) {
  const RanksOnHost ranks = {.ranks = 3, .compute_threads = 2};
  using Change = std::function<void(HostLimits*)>;
  const std::vector<std::pair<Change, std::string>> shortages = {
      {[](HostLimits* l) {
         l->shared_memory = {1 << 20, 64 << 20};
       },
       "/dev/shm has 1 MiB free of 64 MiB, and 3 ranks exchange messages by 15 MiB there; remove what fills it, or "
       "give "
       "the container more (docker run --shm-size=1g)"},
      {[](HostLimits* l) { l->temporary.free_bytes = 9 << 20; },
       "the directory for temporary files, '/t', has 9 MiB free, and a launch needs 10 MiB; make room there, or set "
       "TMPDIR to a directory with more"},
      {[](HostLimits* l) { l->temporary.takes_files = false; }, "no file can be made in the directory for temporary"},
      {[](HostLimits* l) { l->open_files = 16; },
       "a process may have 16 files open (ulimit -n), and the launcher of 3 ranks needs 52; raise the limit"},
      {[](HostLimits* l) { l->file_bytes = 4 << 20; },
       "a file may have 4096 KiB (ulimit -f), and MPI makes files of 5 MiB; lift the limit: ulimit -f unlimited"},
      {[](HostLimits* l) { l->address_bytes = 300 << 20; }, "may have 300 MiB of address space (ulimit -v)"},
      {[](HostLimits* l) { l->tasks_left = 20; },
       "this user may start 20 more processes and threads (ulimit -u, or the container's limit of pids), and 3 ranks "
       "with 2 compute threads need 25; raise the limit, or end other processes"}};
  for (const auto& [change, text] : shortages) {
    HostLimits limits;
    limits.temporary_directory = "/t";
    change(&limits);
    EXPECT_THAT(ShortagesFor(ranks, limits), ElementsAre(HasSubstr(text)));
  }
}

TEST(HostLimits, RanksWithoutSharedMemoryMeetInTheTemporaryDirectory) {
  HostLimits limits;
  limits.temporary_directory = "/tmp";
  limits.temporary.free_bytes = 24ull << 20;
  EXPECT_THAT(ShortagesFor({.ranks = 3}, limits), IsEmpty());
  limits.has_shared_memory = false;
  limits.shared_memory.free_bytes = 0;
  const std::vector<std::string> shortages = ShortagesFor({.ranks = 3, .own_directory = false}, limits);
  EXPECT_THAT(shortages, ElementsAre(HasSubstr("'/tmp', has 24 MiB free, and a launch needs 25 MiB; make room there")));
  EXPECT_THAT(shortages, ElementsAre(Not(HasSubstr("TMPDIR")))) << "of several hosts it is none's to choose";
}

// Limits are of a process, so that a child has them.
TEST(HostLimits, AreReadOfThisProcess) {
  const testing::TempDir directory;
  const HostLimits here = ReadHostLimits(directory.path());
  EXPECT_EQ(here.temporary_directory, directory.path());
  EXPECT_TRUE(here.temporary.takes_files);
  EXPECT_LE(here.temporary.free_bytes, here.temporary.total_bytes);
  const pid_t child = fork();
  if (child == 0) {
    for (const auto resource : {RLIMIT_NOFILE, RLIMIT_FSIZE}) {
      const rlimit limit = {4096, 4096};
      if (setrlimit(resource, &limit) != 0) _exit(1);
    }
    const HostLimits limits = ReadHostLimits("/proc");
    if (limits.open_files != 4096 || limits.file_bytes != 4096) _exit(2);
    if (geteuid() != 0) _exit(0);
    // Another user than root has as many processes as its limit says.
    const rlimit limit = {7, 7};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(64321) != 0) _exit(3);
    const auto left = ReadHostLimits("/proc").tasks_left;
    _exit(left == 6 || (testing::kSanitized && left == 5) ? 0 : 4);  // a sanitizer may have a thread of its own
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace stagecoach
