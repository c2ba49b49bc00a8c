#include "common/host/host_info.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A directory that looks like the root of a host.
class FakeHost : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& contents) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << contents;
  }

  testing::TempDir directory_;
  const std::string root_ = directory_.path();
};

TEST_F(FakeHost, TakesTheTightestQuotaOfTheGroupAndItsAncestors) {
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  Write("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:1 - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(CgroupCpuQuota(root_), 2.5);
}

TEST_F(FakeHost, CountsTheTasksThatItsGroupsStillAllow) {
  EXPECT_EQ(CgroupTasksLeft(root_), std::numeric_limits<uint64_t>::max());
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  Write("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:1 - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/outer/inner/pids.max", "max\n");
  Write("/sys/fs/cgroup/outer/pids.max", "100\n");
  EXPECT_EQ(CgroupTasksLeft(root_), 100u) << "how many there are is not known";
  Write("/sys/fs/cgroup/outer/pids.current", "90\n");
  EXPECT_EQ(CgroupTasksLeft(root_), 10u);
  Write("/sys/fs/cgroup/outer/pids.current", "120\n");
  EXPECT_EQ(CgroupTasksLeft(root_), 0u);
}

TEST_F(FakeHost, ReadsTheQuotaOfVersionOne) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/job\n1:name=systemd:/\n");
  Write("/proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(CgroupCpuQuota(root_), 1.5);
}

TEST_F(FakeHost, FindsTheGroupOfAContainerAtTheRootOfItsMount) {
  Write("/proc/self/cgroup", "7:memory:/docker/abc\n");
  Write("/proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(100 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(90 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/memory.stat", "cache 1\ntotal_inactive_file " + std::to_string(20 * kMiB) +
                                                 "\ntotal_active_file " + std::to_string(5 * kMiB) + "\n");
  EXPECT_EQ(CgroupAvailableMemoryBytes(root_), 35 * kMiB);
}

TEST_F(FakeHost, LeavesNoMemoryWhenTheGroupHoldsMoreThanItsLimit) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n");
  Write("/cg/a/memory.max", std::to_string(10 * kMiB));
  Write("/cg/a/memory.current", std::to_string(11 * kMiB));
  Write("/cg/memory.max", "max\n");
  EXPECT_EQ(CgroupAvailableMemoryBytes(root_), 0u);
}

TEST_F(FakeHost, SeesNoLimitWhereNothingCanBeRead) {
  EXPECT_TRUE(std::isinf(CgroupCpuQuota(root_)));
  EXPECT_EQ(CgroupAvailableMemoryBytes(root_), std::numeric_limits<uint64_t>::max());
}

TEST(HostInfo, RespectsTheAffinityOfTheCallingThread) {
  const std::vector<int> all = AllowedCpus();
  ASSERT_FALSE(all.empty());
  EXPECT_GE(AllowedCores(), 1);
  EXPECT_LE(AllowedCores(), static_cast<int>(all.size()));
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_THAT(AllowedCpus(), ::testing::ElementsAre(all.back()));
    EXPECT_EQ(AllowedCores(), 1);
  }).join();
}

TEST(HostInfo, ResidentMemoryGrowsWithTouchedPages) {
  const uint64_t before = ResidentBytes();
  const size_t bytes = 64 * kMiB;
  const std::unique_ptr<char[]> block(new char[bytes]);
  std::memset(block.get(), 1, bytes);
  EXPECT_GE(ResidentBytes(), before + bytes / 2);
  EXPECT_EQ(block[bytes - 1], 1);
}

TEST(HostInfo, KnowsItsNameAndSomeFreeMemory) {
  EXPECT_FALSE(HostName().empty());
  EXPECT_GT(AvailableMemoryBytes(), 0u);
}

TEST(HostLimits, AHostWithoutLimitsHasNoShortage) {
  EXPECT_THAT(ShortagesFor({.ranks = 65, .compute_threads = 4096}, HostLimits()), IsEmpty());
}

TEST(HostLimits, EachShortageSaysWhatThereIsWhatIsNeededAndWhatToDo) {
  const RanksOnHost ranks = {.ranks = 3, .compute_threads = 2};
  using Change = std::function<void(HostLimits*)>;
  const std::vector<std::pair<Change, std::string>> shortages = {
      {[](HostLimits* l) { l->shared_memory.free_bytes = 1 << 20, l->shared_memory.total_bytes = 64 << 20; },
       "/dev/shm has 1 MiB free of 64 MiB, and 3 ranks exchange messages by 15 MiB there; remove what fills it, or "
       "give the container more (docker run --shm-size=1g)"},
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
