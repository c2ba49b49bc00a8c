#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;
using ::testing::HasSubstr;

GgufWriter FiveTensors() {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  for (int i = 0; i < 5; ++i) {
    writer.SetTensor(absl::StrCat("t", i), {4}, TensorType::kF32, std::vector<float>(4, static_cast<float>(i)));
  }
  return writer;
}

// A shard with one tensor and the given split keys.
void WriteShard(const std::string& path, const std::string& tensor, uint16_t number, uint16_t count, int32_t tensors) {
  GgufWriter writer;
  writer.Set("split.no", number);
  writer.Set("split.count", count);
  writer.Set("split.tensors.count", tensors);
  writer.SetTensor(tensor, {4}, TensorType::kF32, std::vector<float>(4, 1));
  ASSERT_TRUE(writer.Write(path).ok());
}

std::string OpenError(const std::string& path, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto file = GgufFile::Open(path);
  EXPECT_EQ(file.status().code(), code) << file.status();
  return std::string(file.status().message());
}

class Shards : public ::testing::Test {
 protected:
  std::string Path(int number, int count) const {
    return dir_.File(absl::StrCat("m-0000", number, "-of-0000", count, ".gguf"));
  }
  TempDir dir_;
};

TEST_F(Shards, AnyOfThemOpensTheWholeModel) {
  const auto paths = FiveTensors().WriteShards(dir_.File("m"), 3);
  ASSERT_TRUE(paths.ok());
  EXPECT_EQ(paths->at(2), Path(3, 3));
  for (const std::string& path : *paths) {
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->path(), paths->front());
    EXPECT_EQ((*file)->shard_paths(), *paths);
    EXPECT_EQ((*file)->fingerprints().size(), 3u);
    EXPECT_EQ(*(*file)->metadata().GetString("general.architecture"), "qwen3");
    ASSERT_EQ((*file)->tensors().size(), 5u);
    for (int i = 0; i < 5; ++i) {
      const GgufTensor& tensor = (*file)->tensors()[i];
      EXPECT_EQ(tensor.name, absl::StrCat("t", i));
      float value = -1;
      ASSERT_TRUE((*file)->Read(tensor, 4, {reinterpret_cast<uint8_t*>(&value), 4}).ok());
      EXPECT_EQ(value, static_cast<float>(i));
    }
    EXPECT_EQ((*file)->tensors()[0].shard, 0);
    EXPECT_EQ((*file)->tensors()[4].shard, 2);
  }
}

TEST_F(Shards, ASingleShardMayHaveAnyName) {
  WriteShard(dir_.File("renamed.gguf"), "a", 0, 1, 1);
  EXPECT_TRUE(GgufFile::Open(dir_.File("renamed.gguf")).ok());
}

TEST_F(Shards, AMissingOneIsNamed) {
  ASSERT_TRUE(FiveTensors().WriteShards(dir_.File("m"), 3).ok());
  std::filesystem::remove(Path(2, 3));
  const std::string message = OpenError(Path(1, 3), absl::StatusCode::kNotFound);
  EXPECT_THAT(message, HasSubstr("shard 2 of 3"));
  EXPECT_THAT(message, HasSubstr(Path(2, 3)));
}

TEST_F(Shards, ARenamedOneIsRefusedWithTheNameItNeeds) {
  ASSERT_TRUE(FiveTensors().WriteShards(dir_.File("m"), 2).ok());
  std::filesystem::copy(Path(2, 2), dir_.File("other.gguf"));
  const std::string message = OpenError(dir_.File("other.gguf"));
  EXPECT_THAT(message, HasSubstr(dir_.File("other.gguf")));
  EXPECT_THAT(message, HasSubstr("shard 2 of 2"));
  EXPECT_THAT(message, HasSubstr("-00002-of-00002.gguf"));
}

TEST_F(Shards, AWrongNumberIsRefused) {
  WriteShard(Path(1, 2), "a", 0, 2, 2);
  WriteShard(Path(2, 2), "b", 0, 2, 2);
  const std::string message = OpenError(Path(1, 2));
  EXPECT_THAT(message, HasSubstr(Path(2, 2)));
  EXPECT_THAT(message, HasSubstr("key 'split.no' is 0, expected 1"));
}

TEST_F(Shards, AWrongCountIsRefused) {
  WriteShard(Path(1, 2), "a", 0, 2, 2);
  WriteShard(Path(2, 2), "b", 1, 3, 2);
  EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr("key 'split.count' is 3, expected 2"));
}

TEST_F(Shards, AWrongTensorTotalIsRefused) {
  WriteShard(Path(1, 2), "a", 0, 2, 3);
  WriteShard(Path(2, 2), "b", 1, 2, 3);
  EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr("key 'split.tensors.count' is 3, expected 2"));
}

TEST_F(Shards, ATensorInTwoOfThemIsRefused) {
  WriteShard(Path(1, 2), "a", 0, 2, 2);
  WriteShard(Path(2, 2), "a", 1, 2, 2);
  const std::string message = OpenError(Path(2, 2));
  EXPECT_THAT(message, HasSubstr(Path(1, 2)));
  EXPECT_THAT(message, HasSubstr(Path(2, 2)));
  EXPECT_THAT(message, HasSubstr("tensor 'a' appears twice"));
}

TEST_F(Shards, ANumberBeyondTheCountIsRefused) {
  WriteShard(Path(1, 2), "a", 2, 2, 2);
  EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr("key 'split.no' is 2, expected 0 to 1"));
}

TEST_F(Shards, AnAbsurdCountIsRefusedBeforeAnythingIsOpened) {
  WriteShard(Path(1, 2), "a", 0, 65535, 2);
  EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr("key 'split.count' is 65535, expected 1 to 1024"));
}

TEST_F(Shards, MissingSplitKeysAreRefused) {
  GgufWriter writer;
  writer.Set("split.count", uint16_t{2});
  ASSERT_TRUE(writer.Write(Path(1, 2)).ok());
  EXPECT_THAT(OpenError(Path(1, 2)), HasSubstr("key 'split.no' is missing"));
}

TEST_F(Shards, AMalformedSiblingIsNamed) {
  ASSERT_TRUE(FiveTensors().WriteShards(dir_.File("m"), 2).ok());
  testing::WriteFileOrDie(Path(2, 2), "short");
  const std::string message = OpenError(Path(1, 2));
  EXPECT_THAT(message, HasSubstr(Path(2, 2)));
  EXPECT_THAT(message, HasSubstr("is a text: 'short'"));
}

}  // namespace
}  // namespace stagecoach
