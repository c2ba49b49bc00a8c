#include <string>
#include <vector>

#include "common/gguf/gguf_raw_metadata.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A file of metadata alone, of every kind of value.
std::string MetadataOfEveryKind() {
  GgufWriter writer;
  writer.Set("u8", uint8_t{1});
  writer.Set("i64", int64_t{-2});
  writer.Set("f32", 3.0f);
  writer.Set("bool", true);
  writer.Set("string", "four");
  writer.Set("strings", std::vector<std::string>{"five", ""});
  writer.Set("numbers", std::vector<uint16_t>{6, 7});
  return writer.Serialize();
}

class RawMetadata : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<GgufRawEntry>> Read(const std::string& contents) {
    testing::WriteFileOrDie(path_, contents);
    return ReadGgufRawMetadata(path_);
  }

  testing::TempDir directory_;
  const std::string path_ = directory_.File("file.gguf");
};

TEST_F(RawMetadata, KeepsKeysTypesAndBytes) {
  const auto entries = Read(MetadataOfEveryKind());
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_THAT(*entries, SizeIs(7));
  EXPECT_EQ((*entries)[0].key, "u8");
  EXPECT_EQ((*entries)[0].type, GgufValueType::kU8);
  EXPECT_EQ((*entries)[0].bytes, "\1");
  EXPECT_EQ((*entries)[4].bytes, std::string("\4\0\0\0\0\0\0\0four", 12));
  EXPECT_EQ((*entries)[5].type, GgufValueType::kArray);
  EXPECT_THAT((*entries)[5].bytes, SizeIs(4 + 8 + 8 + 4 + 8));
  EXPECT_THAT((*entries)[6].bytes, SizeIs(4 + 8 + 4));
}

TEST_F(RawMetadata, RefusesEveryFileThatEndsTooEarly) {
  const std::string whole = MetadataOfEveryKind();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(Read(whole.substr(0, bytes)).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST_F(RawMetadata, TakesNoMemoryForLengthsThatTheFileDoesNotHave) {
  const std::string whole = MetadataOfEveryKind();
  for (const char* key : {"string", "strings", "numbers"}) {
    std::string contents = whole;
    const size_t value = contents.find(key) + std::string(key).size() + 4;
    const size_t length = std::string(key) == "string" ? value : value + 4;
    contents.replace(length, 8, 8, '\x7f');
    const auto entries = Read(contents);
    ASSERT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr(key));
  }
}

TEST_F(RawMetadata, RefusesUnknownTypesAndFilesThatAreNoGguf) {
  std::string contents = MetadataOfEveryKind();
  contents[contents.find("u8") + 2] = 13;
  EXPECT_THAT(std::string(Read(contents).status().message()), HasSubstr("key 'u8' has the value type 13"));
  contents = MetadataOfEveryKind();
  contents[contents.find("numbers") + 7 + 4] = 9;  // an array of arrays
  EXPECT_THAT(std::string(Read(contents).status().message()), HasSubstr("key 'numbers' is an array of type 9"));
  contents[0] = 'x';
  EXPECT_THAT(std::string(Read(contents).status().message()), HasSubstr("no GGUF file"));
  EXPECT_EQ(ReadGgufRawMetadata(directory_.File("absent")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RawMetadata, NumbersAreSetInPlaceOrAtTheEnd) {
  std::vector<GgufRawEntry> entries = *Read(MetadataOfEveryKind());
  SetGgufRawU32("f32", 258, &entries);
  SetGgufRawU32("new", 1, &entries);
  ASSERT_THAT(entries, SizeIs(8));
  EXPECT_EQ(entries[2].key, "f32");
  EXPECT_EQ(entries[2].type, GgufValueType::kU32);
  EXPECT_EQ(entries[2].bytes, std::string("\2\1\0\0", 4));
  EXPECT_EQ(entries[7].key, "new");
}

}  // namespace
}  // namespace stagecoach
