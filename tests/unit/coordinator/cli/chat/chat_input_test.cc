#include "coordinator/cli/chat/chat_input.h"

#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What lines, and then the end of the input, complete; commands with "command: " before them, errors with "error: ".
std::vector<std::string> Read(const std::string& lines) {
  MessageReader reader;
  std::vector<std::string> all;
  const auto add = [&all](const absl::StatusOr<std::optional<ChatInput>>& input) {
    if (!input.ok()) all.push_back(absl::StrCat("error: ", input.status().message()));
    if (input.ok() && input->has_value()) all.push_back(((*input)->command ? "command: " : "") + (*input)->text);
  };
  for (absl::string_view line : absl::StrSplit(lines, '\n')) add(reader.Take(line));
  add(reader.TakeRest());
  return all;
}

TEST(MessageReader, TakesALineAsAMessageAndNothingOfBlankOnes) {
  EXPECT_THAT(Read("Hello\n\n  \t\n you"), ElementsAre("Hello", " you"));
}

TEST(MessageReader, GoesOnInTheNextLineAfterABackslash) {
  EXPECT_THAT(Read("one\\\ntwo\\\nthree\nfour"), ElementsAre("one\ntwo\nthree", "four"));
  EXPECT_THAT(Read("one\\\n\\\n\ntwo"), ElementsAre("one\n\n", "two"));
}

TEST(MessageReader, KeepsAnEvenNumberOfBackslashesAtTheEnd) {
  EXPECT_THAT(Read("C:\\\\\nnext"), ElementsAre("C:\\\\", "next"));
  EXPECT_THAT(Read("C:\\\\\\\nnext"), ElementsAre("C:\\\\\nnext"));
}

TEST(MessageReader, TakesWhatStandsBetweenFencesAsItIs) {
  EXPECT_THAT(Read("\"\"\"\nif x:\n\n  y \\\n/exit\n\"\"\"\nnext"), ElementsAre("if x:\n\n  y \\\n/exit", "next"));
  EXPECT_THAT(Read("\"\"\"first\nlast\"\"\""), ElementsAre("first\nlast"));
  EXPECT_THAT(Read("\"\"\"all in one\"\"\""), ElementsAre("all in one"));
  EXPECT_THAT(Read("say \"\"\" aloud"), ElementsAre("say \"\"\" aloud"));
}

TEST(MessageReader, GivesWhatWasBegunAtTheEnd) {
  EXPECT_THAT(Read("\"\"\"\none\ntwo"), ElementsAre("one\ntwo"));
  EXPECT_THAT(Read("one\\"), ElementsAre("one"));
  EXPECT_THAT(Read("\"\"\""), IsEmpty());
}

TEST(MessageReader, TellsCommandsFromMessages) {
  EXPECT_THAT(Read("/stats\n /stats\n\"\"\"/stats\"\"\"\n/system a\\\nb"),
              ElementsAre("command: /stats", " /stats", "/stats", "command: /system a\nb"));
}

TEST(MessageReader, ForgetsWhatIsDropped) {
  MessageReader reader;
  ASSERT_TRUE(reader.Take("\"\"\"one").ok());
  EXPECT_TRUE(reader.inside());
  reader.Drop();
  EXPECT_FALSE(reader.inside());
  EXPECT_EQ((*reader.Take("two"))->text, "two");
}

TEST(MessageReader, RefusesWhatIsNoUtf8AndGoesOn) {
  EXPECT_THAT(Read("a\xFFz\nb"), ElementsAre(HasSubstr("no UTF-8 text from its byte 1 on"), "b"));
  EXPECT_THAT(Read("\xEF\xBF\xBD is U+FFFD"), ElementsAre("\xEF\xBF\xBD is U+FFFD"));
  EXPECT_THAT(Read("cut \xE2\x82"), ElementsAre(HasSubstr("byte 4 on")));
}

TEST(MessageReader, RefusesWhatIsTooLongUpToItsEndAndGoesOn) {
  const std::string half(kMostMessageBytes / 2, 'x');
  EXPECT_THAT(Read(absl::StrCat("\"\"\"", half, "\n", half, "\nmore\n\"\"\"\nnext")),
              ElementsAre(HasSubstr("more than 8 MiB"), "next"));
  EXPECT_THAT(Read(absl::StrCat(half, half)), ElementsAre(half + half));
}

using ::testing::AllOf;

TEST(ChatCommands, ReadsANameAndItsArgument) {
  const absl::StatusOr<ChatCommandCall> call = ParseChatCommand("/system  Be brief.\nAlways. ");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->command, ChatCommand::kSystem);
  EXPECT_EQ(call->argument, "Be brief.\nAlways.");
  EXPECT_EQ(ParseChatCommand("/undo")->command, ChatCommand::kUndo);
  EXPECT_EQ(ParseChatCommand("/undo ")->command, ChatCommand::kUndo);
}

TEST(ChatCommands, SaysWhatIsWrongWithACall) {
  EXPECT_THAT(ParseChatCommand("/usr/bin is full").status().message(),
              AllOf(HasSubstr("'/usr/bin'"), HasSubstr("/help"), HasSubstr("a blank before it")));
  EXPECT_THAT(ParseChatCommand("/").status().message(), HasSubstr("no command '/'"));
  EXPECT_THAT(ParseChatCommand("/Undo").status().message(), HasSubstr("no command '/Undo'"));
  EXPECT_THAT(ParseChatCommand("/undo 2").status().message(), HasSubstr("takes no argument, found '2'"));
  EXPECT_THAT(ParseChatCommand("/save").status().message(), HasSubstr("/save FILE"));
}

TEST(ChatCommands, ListsEachCommandInTheHelp) {
  const std::string help = ChatCommandHelp();
  for (const char* name :
       {"help", "exit", "clear", "system", "undo", "regenerate", "think", "set", "save", "load", "stats"}) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat("/", name, " ")));
  }
}

}  // namespace
}  // namespace stagecoach
