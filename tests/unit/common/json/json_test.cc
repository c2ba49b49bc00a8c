#include "common/json/json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>

#include "common/json/json_value.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(FloatJson, GivesTheSameBitsBackForAnyFloat) {
  std::mt19937 random(7);
  int tested = 0;
  while (tested < 100000) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    ++tested;
    const std::string text = CompactJson(FloatJson(value));
    ASSERT_EQ(std::bit_cast<uint32_t>(std::strtof(text.c_str(), nullptr)), std::bit_cast<uint32_t>(value)) << text;
    const float parsed = Json::parse(text).get<float>();
    ASSERT_EQ(std::bit_cast<uint32_t>(parsed), std::bit_cast<uint32_t>(value)) << text;
  }
}

TEST(FloatJson, HasNoMoreDigitsThanAFloatNeeds) {
  EXPECT_EQ(CompactJson(FloatJson(0.1f)), "0.1");
  EXPECT_EQ(CompactJson(FloatJson(-2.5f)), "-2.5");
  EXPECT_EQ(CompactJson(FloatJson(-1.2345678f)), "-1.2345678");
}

TEST(FloatJson, IsNullForWhatJsonCannotHold) {
  EXPECT_EQ(CompactJson(FloatJson(-INFINITY)), "null");
  EXPECT_EQ(CompactJson(FloatJson(NAN)), "null");
}

TEST(JsonOutput, TurnsInvalidUtf8ToTheReplacementCharacter) {
  EXPECT_EQ(CompactJson({{"text",
                          "a\xff"
                          "b"}}),
            "{\"text\":\"a\xEF\xBF\xBD"
            "b\"}");
}

TEST(JsonOutput, KeepsTheOrderOfKeys) { EXPECT_EQ(CompactJson({{"z", 1}, {"a", 2}}), R"({"z":1,"a":2})"); }

TEST(JsonOutput, PrintsShortListsOnOneLine) {
  const Json json = {{"shape", {1, 2, 3}},
                     {"top", Json::array({Json::array({7, -0.5}), Json::array({9, nullptr})})},
                     {"empty", Json::array()},
                     {"none", Json::object()},
                     {"stages", Json::array({Json{{"rank", 1}, {"layers", {0, 12}}}})},
                     {"te\"xt", "a, [b]"}};
  EXPECT_EQ(PrettyJson(json), R"({
  "shape": [1, 2, 3],
  "top": [[7, -0.5], [9, null]],
  "empty": [],
  "none": {},
  "stages": [
    {
      "rank": 1,
      "layers": [0, 12]
    }
  ],
  "te\"xt": "a, [b]"
}
)");
}

TEST(JsonOutput, PrintsALongListWithALineForEachItem) {
  for (int length : {33, 34, 3000}) {  // ", 7" three times the length: 99 characters fit, 102 do not
    const Json list(length, 7);
    const std::string text = PrettyJson(list);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), length <= 33 ? 1 : length + 2) << length;
    EXPECT_EQ(Json::parse(text), list);
  }
}

}  // namespace
}  // namespace stagecoach
