#include "coordinator/cli/chat/chat_commands.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
