#include "stage_worker/exec/huge_pages.h"

#include "gtest/gtest.h"
#include "stage_worker/exec/page_memory.h"

namespace stagecoach {
namespace {

constexpr size_t kTrialMiB = size_t{1} << 20;

TEST(HugePages, AreCountedInTheMappingsForWhichTheyWereAsked) {
  // As Linux 6.1 prints it, shortened.
  constexpr char kSmaps[] =
      "55d0c0000000-55d0c0200000 r-xp 00000000 fe:00 1234   /usr/bin/stage_worker\n"
      "Size:               2048 kB\nRss:                1900 kB\nAnonHugePages:         0 kB\n"
      "VmFlags: rd ex mr mw me sd \n"
      "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \n"
      "Size:            1048576 kB\nRss:             1000000 kB\nPss:             1000000 kB\n"
      "AnonHugePages:    901120 kB\nShmemPmdMapped:        0 kB\nTHPeligible:    1\n"
      "VmFlags: rd wr mr mw me nr sd hg \n"
      "7f0050000000-7f0050400000 rw-p 00000000 00:00 0 \n"
      "Rss:                4096 kB\nAnonHugePages:      4096 kB\n"
      "VmFlags: rd wr mr mw me sd \n"
      "7f0060000000-7f0060400000 rw-p 00000000 00:00 0 \n"
      "Rss:                4096 kB\nAnonHugePages:      2048 kB\n"
      "VmFlags: rd wr hg mr\n";
  const HugeShare share = HugeShareIn(kSmaps);
  EXPECT_EQ(share.resident_bytes, (1000000 + 4096) * uint64_t{1024}) << "two of them were";
  EXPECT_EQ(share.huge_bytes, (901120 + 2048) * uint64_t{1024});
}

TEST(HugePages, AreNoneWhereTheKernelTellsNothing) {
  for (const char* text : {"", "nonsense", "Rss: many kB\nAnonHugePages: -3 kB\nVmFlags: hg\n", "Rss: 5 kB\n"}) {
    EXPECT_EQ(HugeShareIn(text).resident_bytes, 0u) << text;
    EXPECT_EQ(HugeShareIn(text).huge_bytes, 0u) << text;
  }
}

// Whatever the host's setting is.
TEST(HugePages, OfAnAllocationAreNoMoreThanWhatWasTouched) {
  const HugeShare before = OwnHugeShare();
  PageMemory memory = PageMemory::Allocate(16 * kTrialMiB, "a test").value();
  for (size_t i = 0; i < 8 * kTrialMiB; i += 4096) memory.data()[i] = static_cast<uint8_t>(i / 4096);
  CollapseIntoHugePages(memory.data(), 8 * kTrialMiB);
  const HugeShare after = OwnHugeShare();
  EXPECT_LE(after.huge_bytes, after.resident_bytes);
  if (after.resident_bytes == before.resident_bytes) GTEST_SKIP() << "a kernel that does not tell";
  EXPECT_GE(after.resident_bytes, before.resident_bytes + 8 * kTrialMiB);
  EXPECT_LE(after.resident_bytes, before.resident_bytes + 10 * kTrialMiB) << "the other half was not touched";
  for (size_t i = 0; i < 8 * kTrialMiB; i += 4096) ASSERT_EQ(memory.data()[i], static_cast<uint8_t>(i / 4096));
}

TEST(HugePages, AreTriedWithMemoryThatIsGivenBack) {
  const HugeShare before = OwnHugeShare();
  const absl::StatusOr<HugeShare> tried = TryHugePages(8 * kTrialMiB);
  ASSERT_TRUE(tried.ok()) << tried.status();
  EXPECT_LE(tried->huge_bytes, tried->resident_bytes);
  EXPECT_LE(tried->resident_bytes, 8 * kTrialMiB);
  EXPECT_EQ(OwnHugeShare().resident_bytes, before.resident_bytes);
  EXPECT_EQ(TryHugePages(size_t{1} << 62).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace stagecoach
