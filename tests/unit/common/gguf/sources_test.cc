// Models whose bytes come from elsewhere than a file of this host.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/gguf/file_io.h"
#include "common/gguf/gguf_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::TinyModelOptions;
using ::stagecoach::testing::WriteTinyModel;
using ::testing::HasSubstr;

// The bytes of a shard of an open file, with a note of how far they were read, and one of them changed on request.
class OtherHost : public ByteSource {
 public:
  OtherHost(const GgufFile& file, int shard, uint64_t* read_end, int64_t damaged = -1)
      : file_(file), shard_(shard), read_end_(read_end), damaged_(damaged) {}
  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    const absl::Status status = file_.ReadShard(shard_, offset, out);
    const int64_t at = damaged_ - static_cast<int64_t>(offset);
    if (at >= 0 && at < static_cast<int64_t>(out.size())) out[static_cast<size_t>(at)] ^= 1;
    *read_end_ = std::max<uint64_t>(*read_end_, offset + out.size());
    return status;
  }

 private:
  const GgufFile& file_;
  const int shard_;
  uint64_t* const read_end_;
  const int64_t damaged_;
};

class Sources : public ::testing::Test {
 protected:
  std::unique_ptr<GgufFile> Local(const TinyModelOptions& options) {
    return GgufFile::Open(WriteTinyModel(directory_.File("m.gguf"), options)).value();
  }
  std::vector<GgufSource> SourcesOf(const GgufFile& file, int64_t damaged = -1) {
    std::vector<GgufSource> sources;
    read_ends_.assign(file.shard_paths().size(), 0);
    for (size_t i = 0; i < file.shard_paths().size(); ++i) {
      sources.push_back(
          {file.shard_paths()[i], file.fingerprints()[i],
           std::make_unique<OtherHost>(file, static_cast<int>(i), &read_ends_[i], i == 0 ? damaged : -1)});
    }
    return sources;
  }

  TempDir directory_;
  std::vector<uint64_t> read_ends_;  // by shard
};

TEST_F(Sources, AModelFromElsewhereIsTheOneThatAFileGives) {
  for (const int shards : {1, 3}) {
    const auto local = Local({.layers = 6, .shards = shards});
    const auto remote = GgufFile::OpenSources(SourcesOf(*local));
    ASSERT_TRUE(remote.ok()) << remote.status();
    EXPECT_EQ(read_ends_, local->opened_bytes());
    EXPECT_EQ((*remote)->fingerprints(), local->fingerprints());
    EXPECT_EQ((*remote)->path(), local->path());
    ASSERT_EQ((*remote)->tensors().size(), local->tensors().size());
    for (size_t i = 0; i < local->tensors().size(); ++i) {
      const GgufTensor &here = (*remote)->tensors()[i], &there = local->tensors()[i];
      EXPECT_EQ(here.name, there.name);
      EXPECT_EQ(here.shard, there.shard);
      std::vector<uint8_t> got(here.bytes), expected(there.bytes);
      ASSERT_TRUE((*remote)->Read(here, 0, absl::MakeSpan(got)).ok());
      ASSERT_TRUE(local->Read(there, 0, absl::MakeSpan(expected)).ok());
      EXPECT_EQ(got, expected) << here.name;
    }
  }
}

TEST_F(Sources, AHeaderThatChangedOnItsWayIsFoundByItsHash) {
  const auto local = Local({});
  // Somewhere in the metadata: the format may or may not forbid what it becomes.
  const auto remote = GgufFile::OpenSources(SourcesOf(*local, /*damaged=*/200));
  ASSERT_FALSE(remote.ok());
  const bool malformed = absl::IsInvalidArgument(remote.status());
  EXPECT_TRUE(malformed || absl::IsDataLoss(remote.status())) << remote.status();
  std::vector<GgufSource> sources = SourcesOf(*local);
  sources[0].fingerprint.header_hash ^= 1;
  const auto other = GgufFile::OpenSources(std::move(sources));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(other.status().message(), HasSubstr("the header that was received has the hash"));
}

TEST_F(Sources, ShardsOfAnotherNumberAreRefused) {
  const auto local = Local({.layers = 6, .shards = 3});
  std::vector<GgufSource> sources = SourcesOf(*local);
  sources.pop_back();
  const auto remote = GgufFile::OpenSources(std::move(sources));
  EXPECT_EQ(remote.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(remote.status().message(), HasSubstr("'split.count' is 3, expected 2"));
}

TEST_F(Sources, ADirectoryThatPointsBehindTheAnnouncedSizeIsRefused) {
  const auto local = Local({});
  std::vector<GgufSource> sources = SourcesOf(*local);
  sources[0].fingerprint.size_bytes -= 64;  // the last tensor ends behind it
  const auto remote = GgufFile::OpenSources(std::move(sources));
  EXPECT_EQ(remote.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(remote.status().message(), HasSubstr("bytes"));
}

}  // namespace
}  // namespace stagecoach
