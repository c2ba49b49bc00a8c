#include "common/json/json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
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
    ASSERT_EQ(std::bit_cast<uint32_t>(Json::parse(text).get<float>()), std::bit_cast<uint32_t>(value)) << text;
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

std::string ParseFailure(const std::string& text) {
  const absl::StatusOr<Json> json = ParseJson(text);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 80);
  return std::string(json.status().message());
}

TEST(JsonInput, GivesTheValueWithItsKeysInOrder) {
  const Json json = ParseJson(" {\"z\": [1, 2.5, null], \"a\": {\"z\": \"\xC3\xA9\"}}\n").value();
  EXPECT_EQ(CompactJson(json), "{\"z\":[1,2.5,null],\"a\":{\"z\":\"\xC3\xA9\"}}");
}

TEST(JsonInput, SaysWhereATextIsNoJson) {
  EXPECT_EQ(
      ParseFailure("[1,\n 2"),
      "expected JSON, found: parse error at line 2, column 3: syntax error while parsing array - unexpected end of "
      "input; expected ']'");
  EXPECT_NE(ParseFailure("").find("unexpected end of input"), std::string::npos);
  EXPECT_NE(ParseFailure("{} {}").find("expected end of input"), std::string::npos);
  EXPECT_NE(ParseFailure("\"\xff\"").find("ill-formed UTF-8"), std::string::npos);
  EXPECT_EQ(ParseFailure("-1e999"), "expected a number between -1.8e308 and 1.8e308, found -1e999");
  EXPECT_EQ(ParseFailure("{\"a\":[{\"b\":1},1e999]}"),
            "expected a number between -1.8e308 and 1.8e308 for \"a\", found 1e999");
}

TEST(JsonInput, EndsAtItsEndAndNotAtANul) {
  for (const char* behind : {"", "}", "{\"a\":2}", " "}) {
    EXPECT_EQ(ParseFailure(absl::StrCat("{\"a\":1}", std::string(1, '\0'), behind)),
              "expected JSON, found: a NUL behind the value, at byte 8");
  }
  ParseFailure(std::string(3, '\0'));
  ParseFailure(absl::StrCat("\"a", std::string(1, '\0'), "\""));
  EXPECT_TRUE(ParseJson("\"a\\u0000b\"").ok());
}

TEST(JsonInput, RefusesNumbersAndCharactersThatJsonDoesNotHave) {
  for (const char* text :
       {"NaN", "-NaN", "Infinity", "-Infinity", "0x1", "01", "+1", ".5", "1.", "-", "1e999", "-1e999"}) {
    ParseFailure(text);
  }
  for (const char* text : {"\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\xED\xA0\x80\"", "\"\xC0\xAF\"",
                           "\"\xF4\x90\x80\x80\"", "\"\xE2\x82\"", "\"\x1F\""}) {
    ParseFailure(text);
  }
}

TEST(JsonInput, ShowsLittleOfALongText) {
  for (const std::string character : {"x", "\xE2\x82\xAC"}) {
    std::string text = "\"";
    for (int i = 0; i < 1000; ++i) text += character;
    const std::string message = ParseFailure(text);
    EXPECT_LT(message.size(), 200 * character.size() + 200);
    EXPECT_TRUE(CompactJson(message).find("\xEF\xBF\xBD") == std::string::npos) << message;
  }
}

TEST(JsonInput, RefusesAKeyThatStandsTwiceInOneObject) {
  EXPECT_EQ(ParseFailure(R"({"a": {"b": 1}, "b": 2, "b": 3})"),
            "expected every key once in an object, found \"b\" twice");
  EXPECT_EQ(CompactJson(ParseJson(R"({"b": 2, "a": 1, "b": 3})", RepeatedKeys::kLastCounts).value()),
            R"({"b":3,"a":1})");
}

std::string WithKeys(size_t keys) {
  std::string text = "{";
  for (size_t i = 0; i < keys; ++i) absl::StrAppend(&text, i == 0 ? "\"" : ",\"", i, "\":0");
  return text + "}";
}

TEST(JsonInput, RefusesMoreKeysThanObjectsAreMadeFor) {
  EXPECT_TRUE(ParseJson(WithKeys(kMostKeysOfObject)).ok());
  EXPECT_EQ(ParseFailure(WithKeys(kMostKeysOfObject + 1)), "expected at most 1024 keys in an object, found more");
  std::string list = "[{}";
  for (size_t keys = 0; keys + 200 <= kMostKeysOfJson; keys += 200) absl::StrAppend(&list, ",", WithKeys(200));
  EXPECT_TRUE(ParseJson(list + "]").ok());
  EXPECT_EQ(ParseFailure(list + ",{\"a\":1}]"), "expected at most 200000 keys in all objects together, found more");
}

// A step for each pair of them would take minutes.
TEST(JsonInput, TakesALongListInItsStride) {
  std::string list = "[0";
  for (int i = 0; i < 500'000; ++i) list += ",{},[]";
  EXPECT_EQ(ParseJson(list + "]").value().size(), 1'000'001u);
}

TEST(JsonInput, RefusesWhatIsDeeperThanAnybodyNeeds) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(kMostJsonDepth)).ok());
  const std::string message = "expected at most 64 lists and objects in each other, found more";
  EXPECT_EQ(ParseFailure(nested(kMostJsonDepth + 1)), message);
  EXPECT_EQ(ParseFailure(std::string(10'000'000, '[')), message);
}

}  // namespace
}  // namespace stagecoach
