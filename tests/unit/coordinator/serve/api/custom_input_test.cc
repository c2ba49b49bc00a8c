#include "coordinator/serve/api/conversation/custom_input.h"

#include "coordinator/serve/api/conversation/tools.h"
#include "tests/testing/matchers.h"

namespace stagecoach::testing {
namespace {

// In two pieces, each of which a client may show.
std::string InputIn(const std::string& arguments, size_t cut) {
  CustomInput input;
  std::string joined = input.Take(arguments.substr(0, cut));
  joined += input.Take(arguments.substr(cut));
  joined += input.Finish();
  return joined;
}

TEST(CustomInput, IsTheSameHoweverItsArgumentsAreCut) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input": "plain"})", "plain"},
      {R"( { "input" :"a\n\"b\"\\\tc\/" } )", "a\n\"b\"\\\tc/"},
      {"{\"input\":\"\\u00e9\\ud83d\\ude00\xC3\xA9\"}", "\xC3\xA9\xF0\x9F\x98\x80\xC3\xA9"},
      {R"({"input":""})", ""},
      {"{\"input\":\"a\nraw line\"}", "a\nraw line"},
      {R"({"input":"a","more":"b"})", "a"},
      {R"({"why":"b","input":"a"})", "a"},
      {R"({"patch":"a"})", R"({"patch":"a"})"},
      {R"({"input":["a"]})", R"({"input":["a"]})"},
      {"", ""},
      // Cut off by the limit, or wrong: nothing is swallowed.
      {R"({"input":"a\nb)", "a\nb"},
      {R"({"input":"a\u00)", R"(a\u00)"},
      {R"({"input":"a\)", "a\\"},
      {R"({"inp)", R"({"inp)"},
      {R"({"input":"\ud83d\n"})", "\\ud83d\n"},
      {R"({"input":"\q\uzzzz"})", R"(\q\uzzzz)"},
      {"*** no JSON", "*** no JSON"},
  };
  for (const auto& [arguments, expected] : cases) {
    for (size_t cut = 0; cut <= arguments.size(); ++cut) {
      EXPECT_EQ(InputIn(arguments, cut), expected) << arguments << " cut at " << cut;
    }
    CustomInput input;
    std::string joined;
    for (const char byte : arguments) joined += input.Take(std::string(1, byte));
    EXPECT_EQ(joined + input.Finish(), expected) << arguments;
  }
}

TEST(CustomInput, IsToldAsItComes) {
  CustomInput input;
  EXPECT_EQ(input.Take(R"({"inp)"), "");
  EXPECT_EQ(input.Take(R"(ut": "*** Begin\)"), "*** Begin");
  EXPECT_EQ(input.Take("n"), "\n");
  EXPECT_EQ(input.Take(R"(+ a"})"), "+ a");
  EXPECT_EQ(input.Finish(), "");
}

TEST(CustomInput, ComesBackFromItsArguments) {
  const std::string text = "a \"quoted\" \\ line\n\tand \x01 \xF0\x9F\x98\x80";
  EXPECT_EQ(InputIn(ArgumentsOfInput(text), 0), text);
}

}  // namespace
}  // namespace stagecoach::testing
