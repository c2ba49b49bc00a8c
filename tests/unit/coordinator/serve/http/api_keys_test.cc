#include "coordinator/serve/http/api_keys.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<ApiKeys> ReadKeys(const std::string& text) {
  const ::stagecoach::testing::TempDir directory;
  ::stagecoach::testing::WriteFileOrDie(directory.File("keys"), text);
  return ApiKeys::Read(directory.File("keys"));
}

TEST(ApiKeys, ReadsNamesKeysClassesAndWeights) {
  const auto keys = ReadKeys("# people\n\nalice:sk-1\n  bob:sk-2:interactive\r\nnightly:sk-3:batch:0.5\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->all().size(), 3);
  EXPECT_EQ(keys->Find("sk-1")->name, "alice");
  EXPECT_EQ(keys->Find("sk-1")->key_class, PriorityClass::kDefault);
  EXPECT_EQ(keys->Find("sk-2")->key_class, PriorityClass::kInteractive);
  EXPECT_EQ(keys->Find("sk-3")->key_class, PriorityClass::kBatch);
  EXPECT_EQ(keys->Find("sk-3")->weight, 0.5);
  for (const char* wrong : {"", "sk-", "sk-11", "sk-4", "SK-1"}) EXPECT_EQ(keys->Find(wrong), nullptr) << wrong;
}

TEST(ApiKeys, SaysWhichLineIsWrongAndNeverAKey) {
  const std::pair<std::string, std::string> cases[] = {
      {"a:hid-den\nb\n", "line 2: expected name:key[:class[:weight]]"},
      {"a:hid-den:default:1:2\n", "line 1: expected name:key[:class[:weight]]"},
      {"a b:hid-den\n", "line 1: the name has to be"},
      {":hid-den\n", "line 1: the name has to be"},
      {"a:\n", "the key of 'a' has to be"},
      {"a:hid- den\n", "the key of 'a' has to be"},
      {"a:hid-den:fast\n", "the class has to be"},
      {"a:hid-den:batch:0\n", "the weight of 'a'"},
      {"a:hid-den:batch:nan\n", "the weight of 'a'"},
      {"a:hid-den:batch:many\n", "the weight of 'a'"},
      {"a:hid-den\na:other\n", "line 2: there is a second 'a'"},
      {"a:hid-den\nb:hid-den\n", "line 2: 'a' and 'b' have the same key"},
      {"# none\n", "has no key"},
      {"a:" + std::string(2000, 'h') + "\n", "keys'"},
  };
  for (const auto& [text, what] : cases) {
    const auto keys = ReadKeys(text);
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(keys.status().message()), HasSubstr(what));
    EXPECT_THAT(std::string(keys.status().message()), Not(HasSubstr("hid-")));
  }
  EXPECT_EQ(ApiKeys::Read("/nowhere/at/all").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagecoach
