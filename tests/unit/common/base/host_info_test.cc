#include "common/base/host_info.h"

#include <sched.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace stagecoach
