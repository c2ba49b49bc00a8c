#include "stage_worker/stream/weight_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMostOfAChunk = kMaxWeightChunkBytes;
constexpr WeightRange kTensor = {1, uint64_t{5} << 40, 2 * kMostOfAChunk + 100};

std::vector<FileFingerprint> Fingerprints(int64_t modified_ns = 3, uint64_t sample_hash = 0xdef) {
  return {
      {.size_bytes = 10, .modified_ns = 1, .header_hash = 7},
      {.size_bytes = uint64_t{6} << 40, .modified_ns = modified_ns, .header_hash = 0xabc, .sample_hash = sample_hash}};
}

std::vector<uint8_t> ChunkBytes(size_t chunk) {
  std::vector<uint8_t> bytes(chunk == 2 ? 100 : kMostOfAChunk);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251 + chunk);
  return bytes;
}

class WeightCacheTest : public ::testing::Test {
 protected:
  std::string Directory() const { return directory_.File("deep/cache"); }
  std::unique_ptr<WeightCache> Cache(int64_t modified_ns = 3) const {
    return std::make_unique<WeightCache>(Directory(), Fingerprints(modified_ns));
  }
  void Fill(WeightCache* cache, size_t chunks = 3) const {
    const std::shared_ptr<CachingTensor> caching = cache->Add(kTensor);
    ASSERT_NE(caching, nullptr);
    for (const size_t chunk : {2, 0, 1}) {
      const std::vector<uint8_t> bytes = ChunkBytes(chunk);
      if (chunk < chunks) caching->Write(chunk, bytes, Crc32c(bytes));
    }
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(Directory())) files.push_back(entry.path().string());
    return files;
  }
  static bool Holds(const CachedTensor& tensor, size_t chunk) {
    std::vector<uint8_t> bytes(ChunkBytes(chunk).size());
    return tensor.Read(chunk, absl::MakeSpan(bytes)) && bytes == ChunkBytes(chunk);
  }
  void Damage(uint64_t offset) const {
    std::string contents = testing::ReadFileOrDie(Files().front());
    contents[offset] ^= 1;
    testing::WriteFileOrDie(Files().front(), contents);
  }

  testing::TempDir directory_;
};

TEST_F(WeightCacheTest, GivesBackWhatItWasGivenAlsoToTheNextProcess) {
  EXPECT_EQ(Cache()->Find(kTensor), nullptr);
  Fill(Cache().get());
  const auto tensor = Cache()->Find(kTensor);
  ASSERT_NE(tensor, nullptr);
  for (const size_t chunk : {0, 1, 2}) EXPECT_TRUE(Holds(*tensor, chunk)) << chunk;
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(WeightCacheTest, WhatWasRemovedIsNotFound) {
  const auto cache = Cache();
  Fill(cache.get());
  cache->Remove(kTensor);
  cache->Remove(kTensor);
  EXPECT_EQ(cache->Find(kTensor), nullptr);
  EXPECT_TRUE(Files().empty());
  EXPECT_TRUE(cache->writes());
}

TEST_F(WeightCacheTest, AnotherModelAtTheSamePathFindsNothing) {
  Fill(Cache().get());
  EXPECT_EQ(Cache(/*modified_ns=*/4)->Find(kTensor), nullptr);
  // Not even when the name says so: the trailer is what counts.
  Fill(Cache(4).get());
  ASSERT_EQ(Files().size(), 2u);
  const bool first_is_3 = Files()[0].find("-3-1-") != std::string::npos;
  std::filesystem::copy_file(Files()[first_is_3 ? 0 : 1], Files()[first_is_3 ? 1 : 0],
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Cache(4)->Find(kTensor), nullptr);
  EXPECT_NE(Cache(3)->Find(kTensor), nullptr);
}

// An image or an archive gives all its files one time, and what was trained further has the same header.
TEST_F(WeightCacheTest, AnotherModelOfTheSameTimeFindsNothing) {
  Fill(Cache().get());
  WeightCache other(Directory(), Fingerprints(/*modified_ns=*/3, /*sample_hash=*/0xdee));
  EXPECT_EQ(other.Find(kTensor), nullptr);
  EXPECT_NE(Cache()->Find(kTensor), nullptr);
}

TEST_F(WeightCacheTest, AnUnfinishedTensorLeavesNothing) {
  const auto cache = Cache();
  Fill(cache.get(), /*chunks=*/2);
  EXPECT_EQ(Files().size(), 0u);
  EXPECT_EQ(cache->Find(kTensor), nullptr);
  EXPECT_TRUE(cache->writes());
}

TEST_F(WeightCacheTest, WhatAKilledStageLeftIsRemovedAndWhatIsBeingWrittenStays) {
  const auto cache = Cache();
  testing::WriteFileOrDie(Directory() + "/x.weights.unfinished-1-0", "left over");
  const auto caching = cache->Add(kTensor);
  const std::vector<uint8_t> bytes = ChunkBytes(0);
  caching->Write(0, bytes, Crc32c(bytes));
  EXPECT_EQ(Files().size(), 2u);
  const auto next = Cache();
  EXPECT_EQ(Files().size(), 1u);
  for (const size_t chunk : {1, 2}) caching->Write(chunk, ChunkBytes(chunk), Crc32c(ChunkBytes(chunk)));
  EXPECT_NE(next->Find(kTensor), nullptr);
}

TEST_F(WeightCacheTest, AStageThatBeginsWhileAnotherWritesTakesNothingOfItForLeftOver) {
  const auto cache = Cache();
  std::atomic<bool> done{false};
  std::thread others([&] {
    while (!done) Cache();
  });
  const WeightRange small = {1, 4096, 100};
  const std::vector<uint8_t> bytes = ChunkBytes(2);
  for (int i = 0; i < 500 && cache->writes(); ++i) cache->Add(small)->Write(0, bytes, Crc32c(bytes));
  done = true;
  others.join();
  EXPECT_TRUE(cache->writes());
  EXPECT_NE(cache->Find(small), nullptr);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(WeightCacheTest, ADamagedChunkIsFoundAndItsFileRemoved) {
  Fill(Cache().get());
  Damage(kMostOfAChunk + 5);
  const auto tensor = Cache()->Find(kTensor);
  ASSERT_NE(tensor, nullptr);
  EXPECT_TRUE(Holds(*tensor, 0));
  EXPECT_FALSE(Holds(*tensor, 1));
  EXPECT_EQ(Files().size(), 0u);
  EXPECT_FALSE(Holds(*tensor, 2));
}

TEST_F(WeightCacheTest, ACutFileAndADamagedTrailerAreFound) {
  for (const uint64_t cut : {uint64_t{0}, kMostOfAChunk, kTensor.bytes, kTensor.bytes + 40}) {
    Fill(Cache().get());
    std::filesystem::resize_file(Files().front(), cut);
    EXPECT_EQ(Cache()->Find(kTensor), nullptr) << cut;
    EXPECT_EQ(Files().size(), 0u);
  }
  for (uint64_t offset = kTensor.bytes; offset < kTensor.bytes + 3 * 4 + 9 * 8; offset += 11) {
    Fill(Cache().get());
    Damage(offset);
    EXPECT_EQ(Cache()->Find(kTensor), nullptr) << offset;
  }
}

TEST_F(WeightCacheTest, ADirectoryThatCannotBeWrittenTurnsWritingOff) {
  testing::WriteFileOrDie(directory_.File("file"), "no directory");
  WeightCache cache(directory_.File("file/below"), Fingerprints());
  EXPECT_FALSE(cache.writes());
  EXPECT_EQ(cache.Add(kTensor), nullptr);
  EXPECT_EQ(cache.Find(kTensor), nullptr);
}

TEST_F(WeightCacheTest, ADirectoryThatGoesAwayTurnsWritingOff) {
  const auto cache = Cache();
  const auto caching = cache->Add(kTensor);
  std::filesystem::remove_all(Directory());
  caching->Write(0, ChunkBytes(0), Crc32c(ChunkBytes(0)));
  EXPECT_FALSE(cache->writes());
}

}  // namespace
}  // namespace stagecoach
