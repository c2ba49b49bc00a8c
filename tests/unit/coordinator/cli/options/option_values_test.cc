#include "coordinator/cli/options/option_values.h"

#include <limits>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Parses `arguments` with the options that `add` makes; the message of the error, or an empty string.
template <typename Add>
std::string ParseError(Add add, std::vector<std::string> arguments) {
  CLI::App app;
  add(&app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its end
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(OptionValues, ReadIntegersInTheirRangeOnly) {
  EXPECT_EQ(*ParseInteger("7", {1, 8}), 7);
  EXPECT_EQ(*ParseInteger("-1", {-1, 8}), -1);
  EXPECT_EQ(*ParseInteger("010", {1, 10}), 10) << "a leading zero does not mean octal";
  EXPECT_EQ(ParseInteger("9", {1, 8}).status().message(), "9 is out of range, expected 1 to 8");
  EXPECT_EQ(ParseInteger("x", {1, 8}).status().message(), "'x' is not an integer, expected 1 to 8");
  for (const char* bad : {"", " ", "1.5", "1e3", "0x10", "99999999999999999999", "--1"}) {
    EXPECT_FALSE(ParseInteger(bad, {0, std::numeric_limits<int64_t>::max()}).ok()) << bad;
  }
}

TEST(OptionValues, ReadNumbersInTheirRangeOnly) {
  EXPECT_FLOAT_EQ(*ParseNumber("0.7", {0, 1}), 0.7f);
  EXPECT_FLOAT_EQ(*ParseNumber("1", {0, 1}), 1);
  EXPECT_FALSE(ParseNumber("0", {0, 1, true}).ok());
  EXPECT_FALSE(ParseNumber("1e-60", {0, 1, true}).ok()) << "0 as a float";
  EXPECT_THAT(std::string(ParseNumber("-1", {0, 100}).status().message()), HasSubstr("expected 0 to 100"));
  for (const char* bad : {"nan", "inf", "-inf", "", "1,5", "abc"}) EXPECT_FALSE(ParseNumber(bad, {0, 100}).ok()) << bad;
}

TEST(OptionValues, ReadDurationsWithTheirUnits) {
  EXPECT_DOUBLE_EQ(*ParseDuration("80ms", {0.001, 10}), 0.08);
  EXPECT_DOUBLE_EQ(*ParseDuration("0.2s", {0.001, 10}), 0.2);
  EXPECT_DOUBLE_EQ(*ParseDuration("1m30s", {0, 100}), 90);
  EXPECT_EQ(ParseDuration("80", {0, 1}).status().message(), "'80' is not a duration, expected such as 80ms or 0.2s");
  EXPECT_EQ(ParseDuration("2s", {0, 1}).status().message(), "2s is out of range, expected 0 to 1 seconds");
  for (const char* bad : {"", "s", "-1s", "inf", "-inf", "1.5", "1 s", "1x"}) {
    EXPECT_FALSE(ParseDuration(bad, {0.001, 3600}).ok()) << bad;
  }
}

TEST(OptionValues, ReadSizesWithTheirUnits) {
  EXPECT_EQ(*ParseBytes("123"), 123u);
  EXPECT_EQ(*ParseBytes("4K"), 4096u);
  EXPECT_EQ(*ParseBytes("512m"), 512u << 20);
  EXPECT_EQ(*ParseBytes("2GiB"), uint64_t{2} << 30);
  EXPECT_EQ(*ParseBytes("1T"), uint64_t{1} << 40);
  for (const char* bad : {"", "0", "M", "-1", "1.5G", "1X", "99999999999T", "1 G"})
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
}

TEST(OptionValues, ReadListsOfIntegers) {
  EXPECT_THAT(*ParseIntegerList("10,9,9", {1, 100}), ElementsAre(10, 9, 9));
  for (const char* bad : {"", "1,", ",1", "1,,2", "1,0", "1;2"})
    EXPECT_FALSE(ParseIntegerList(bad, {1, 100}).ok()) << bad;
}

TEST(OptionValues, NameTheOptionTheValueAndTheRange) {
  double temperature = 0;
  const auto add = [&](CLI::App* app) { AddNumber(app, "--temp", &temperature, {0, 100}, "", ""); };
  EXPECT_EQ(ParseError(add, {"--temp", "-1"}), "--temp: -1 is out of range, expected 0 to 100");
  EXPECT_EQ(ParseError(add, {"--temp", "hot"}), "--temp: 'hot' is not a number, expected 0 to 100");
  EXPECT_EQ(temperature, 0);
  EXPECT_EQ(ParseError(add, {"--temp=2.5"}), "");
  EXPECT_EQ(temperature, 2.5);
}

TEST(OptionValues, OfAScalarGivenTwiceTheLastCounts) {
  int64_t value = 0;
  const auto add = [&](CLI::App* app) { AddInteger(app, "-n,--predict", &value, {1, 100}, "", ""); };
  EXPECT_EQ(ParseError(add, {"-n", "3", "--predict", "4"}), "");
  EXPECT_EQ(value, 4);
}

TEST(OptionValues, ListsThatAreGivenReplaceTheDefaultTogether) {
  std::vector<std::string> values = {"default"};
  const auto parse = [](absl::string_view text) -> absl::StatusOr<std::string> {
    if (text == "bad") return absl::InvalidArgumentError("is bad");
    return std::string(text);
  };
  const auto add = [&](CLI::App* app) { AddList<std::string>(app, "--prompt", &values, "N,...", "", parse); };
  EXPECT_EQ(ParseError(add, {}), "");
  EXPECT_THAT(values, ElementsAre("default"));
  EXPECT_EQ(ParseError(add, {"--prompt", "a, b", "--prompt", "c"}), "");
  EXPECT_THAT(values, ElementsAre("a", "b", "c"));
  EXPECT_EQ(ParseError(add, {"--prompt", "a,bad"}), "--prompt: is bad");
}

TEST(OptionValues, TakeTextsAsTheyStand) {
  std::vector<std::string> texts;
  const auto add = [&](CLI::App* app) { AddTexts(app, "-p", &texts, "TEXT", ""); };
  EXPECT_EQ(ParseError(add, {"-p", "[a,b]", "-p", "{}", "-p", "", "-p", "--n", "-p", "a,b c"}), "");
  EXPECT_THAT(texts, ElementsAre("[a,b]", "{}", "", "--n", "a,b c"));
  EXPECT_NE(ParseError(add, {"-p", "a", "b"}), "") << "one value an option";
}

TEST(OptionValues, OfferTheChoicesWhenNoneFits) {
  std::string choice = "f16";
  const auto add = [&](CLI::App* app) { AddChoice(app, "--kv-type", &choice, {"f32", "f16"}, ""); };
  EXPECT_EQ(ParseError(add, {"--kv-type", "f64"}), "--kv-type: 'f64' is not one of f32, f16");
  EXPECT_EQ(ParseError(add, {"--kv-type", "f32"}), "");
  EXPECT_EQ(choice, "f32");
}

TEST(OptionValues, TakeAnySeedOf64Bits) {
  std::optional<uint64_t> seed;
  const auto add = [&](CLI::App* app) { AddSeed(app, "--seed", &seed, "", ""); };
  EXPECT_EQ(ParseError(add, {"--seed", "18446744073709551615"}), "");
  EXPECT_EQ(*seed, std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(ParseError(add, {"--seed", "-1"}), HasSubstr("'-1' is not a seed"));
}

}  // namespace
}  // namespace stagecoach
