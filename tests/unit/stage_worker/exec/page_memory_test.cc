#include "stage_worker/exec/page_memory.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// What the kernel says about the mapping that holds an address (/proc/self/smaps); empty without one.
std::map<std::string, std::string> MappingOf(const uint8_t* address) {
  std::ifstream smaps("/proc/self/smaps");
  std::map<std::string, std::string> fields;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<unsigned long>(address);
      inside = begin <= at && at < end;
    } else if (inside && line.find(':') != std::string::npos) {
      fields[line.substr(0, line.find(':'))] = line.substr(line.find(':') + 1);
    }
  }
  return fields;
}

uint64_t KiloBytesOf(const std::map<std::string, std::string>& mapping, const std::string& field) {
  uint64_t value = 0;
  std::istringstream(mapping.at(field)) >> value;
  return value;
}

// Whether the kernel was asked for huge pages there: the flag "hg" of the mapping.
bool WantsHugePages(const uint8_t* address) {
  return (MappingOf(address)["VmFlags"] + " ").find(" hg ") != std::string::npos;
}

TEST(PageMemory, AsksForHugePagesFromItsFirstByteToItsLast) {
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) GTEST_SKIP() << "a kernel without huge pages";
  const size_t bytes = 9 * kMiB + 4096;
  PageMemory memory = PageMemory::Allocate(bytes, "a test").value();
  if (MappingOf(memory.data()).count("VmFlags") == 0)
    GTEST_SKIP() << "a kernel that does not tell the flags of mappings";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kHugePage, 0u);
  EXPECT_TRUE(WantsHugePages(memory.data()));
  EXPECT_TRUE(WantsHugePages(memory.data() + bytes - 1));
  PageMemory small = PageMemory::Allocate(kMiB, "a test").value();
  EXPECT_FALSE(WantsHugePages(small.data())) << "less than a huge page";
}

TEST(PageMemory, IsZeroAndTakesRoomOnlyWhereItWasTouched) {
  // So much that it is no neighbour of another mapping that is resident.
  PageMemory memory = PageMemory::Allocate(64 * kMiB, "a test").value();
  const auto before = MappingOf(memory.data() + 32 * kMiB);
  if (before.count("Rss") == 0) GTEST_SKIP() << "a kernel without smaps";
  EXPECT_LE(KiloBytesOf(before, "Rss"), 4096u);
  EXPECT_EQ(memory.data()[32 * kMiB], 0);
  memory.data()[32 * kMiB] = 1;
  const uint64_t one_page = KiloBytesOf(MappingOf(memory.data() + 32 * kMiB), "Rss");
  EXPECT_GT(one_page, KiloBytesOf(before, "Rss"));
  EXPECT_LE(one_page, KiloBytesOf(before, "Rss") + 2 * kHugePage / 1024);
}

TEST(PageMemory, MovesWithItsContentsAndSaysWhatItCouldNotAllocate) {
  PageMemory memory = PageMemory::Allocate(5000, "a test").value();
  memory.data()[4999] = 7;
  const uint8_t* const data = memory.data();
  PageMemory other = std::move(memory);
  EXPECT_EQ(other.data(), data);
  EXPECT_EQ(other.data()[4999], 7);
  EXPECT_EQ(other.size(), 5000u);
  for (size_t bytes : {SIZE_MAX, size_t{1} << 62}) {
    const absl::Status status = PageMemory::Allocate(bytes, "the cache").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("bytes for the cache"), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace stagecoach
