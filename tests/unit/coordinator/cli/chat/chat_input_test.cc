#include "coordinator/cli/chat/chat_input.h"

#include <vector>

#include "absl/strings/str_split.h"
#include "common/json/json_value.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/cli/chat/chat_settings.h"
#include "coordinator/cli/chat/dialogue.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

// What lines, and then the end of the input, complete; commands with "command: " before them, errors with "error: ".
std::vector<std::string> Read(const std::string& lines) {
  MessageReader reader;
  std::vector<std::string> all;
  const auto add = [&all](const absl::StatusOr<std::optional<ChatInput>>& input) {
    if (!input.ok()) all.push_back(absl::StrCat("error: ", input.status().message()));
    if (input.ok() && input->has_value()) all.push_back(((*input)->command ? "command: " : "") + (*input)->text);
  };
  for (absl::string_view line : absl::StrSplit(lines, '\n')) add(reader.Take(line));
  add(reader.TakeUnfinished());
  return all;
}

TEST(MessageReader, TakesALineAsAMessageAndNothingOfBlankOnes) {
  EXPECT_THAT(Read("Hello\n\n  \t\n you"), ElementsAre("Hello", " you"));
}

TEST(MessageReader, GoesOnInTheNextLineAfterAnOddNumberOfBackslashes) {
  EXPECT_THAT(Read("one\\\ntwo\\\nthree\nfour"), ElementsAre("one\ntwo\nthree", "four"));
  EXPECT_THAT(Read("one\\\n\\\n\ntwo"), ElementsAre("one\n\n", "two"));
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

TEST(ChatCommands, ReadsANameAndItsArgument) {
  const ChatCommandCall call = ParseChatCommand("/system  Be brief.\nAlways. ").value();
  EXPECT_EQ(call.command, ChatCommand::kSystem);
  EXPECT_EQ(call.argument, "Be brief.\nAlways.");
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

absl::Status Set(absl::string_view name, absl::string_view value, ChatSettings* settings,
                 SettingRanges ranges = SettingRanges::kEngine, const ChatSettings& given = {}) {
  return SetChatSetting(name, value, ranges, given, settings);
}

TEST(ChatSettings, SetsWhatTheOptionsSet) {
  ChatSettings settings;
  EXPECT_TRUE(Set("temp", "0.7", &settings).ok());
  EXPECT_TRUE(Set("top_k", "40", &settings).ok());
  EXPECT_TRUE(Set("repeat-last-n", "-1", &settings).ok());
  EXPECT_TRUE(Set("seed", "18446744073709551615", &settings).ok());
  EXPECT_TRUE(Set("predict", "12", &settings).ok());
  EXPECT_EQ(settings.sampling[&SamplingParams::temperature], 0.7f);
  EXPECT_EQ(settings.sampling[&SamplingParams::top_k], 40);
  EXPECT_EQ(settings.sampling[&SamplingParams::repeat_last_n], -1);
  EXPECT_EQ(settings.sampling.seed, 18446744073709551615u);
  EXPECT_EQ(settings.max_new_tokens, 12);
  const std::string text = ChatSettingsText(settings, GivenSampling(settings.sampling));
  EXPECT_THAT(text,
              AllOf(HasSubstr("temp               0.7\n"), HasSubstr("top-k              40\n"),
                    HasSubstr("seed               18446744073709551615\n"), HasSubstr("predict            12\n")));
}

TEST(ChatSettings, TakesBackWhatWasSetToWhatTheUserGaveAtFirst) {
  ChatSettings given;
  given.sampling[&SamplingParams::temperature] = 0.5f;
  ChatSettings settings = given;
  for (const char* name : {"temp", "top-p", "top-k", "seed", "predict"}) {
    EXPECT_TRUE(Set(name, "1", &settings).ok());
    EXPECT_TRUE(Set(name, "default", &settings, SettingRanges::kEngine, given).ok());
  }
  EXPECT_EQ(settings.sampling[&SamplingParams::temperature], 0.5f);
  EXPECT_EQ(settings.sampling[&SamplingParams::top_p], std::nullopt);
  EXPECT_EQ(settings.sampling[&SamplingParams::top_k], std::nullopt);
  EXPECT_EQ(settings.sampling.seed, std::nullopt);
  EXPECT_EQ(settings.max_new_tokens, std::nullopt);
}

TEST(ChatSettings, RefusesWhatTheOptionsRefuse) {
  ChatSettings settings;
  for (const auto& [name, value] : {std::pair("temp", "-1"),
                                    {"temp", "hot"},
                                    {"top-p", "0"},
                                    {"top-k", "1.5"},
                                    {"seed", "-1"},
                                    {"predict", "0"},
                                    {"min-p", ""}}) {
    EXPECT_THAT(Set(name, value, &settings).message(), HasSubstr(absl::StrCat(name, ": "))) << value;
  }
  EXPECT_THAT(Set("heat", "1", &settings).message(),
              AllOf(HasSubstr("'heat'"), HasSubstr("temp, top-k, top-p"), HasSubstr("seed, predict")));
  EXPECT_EQ(settings.sampling[&SamplingParams::temperature], std::nullopt);
}

TEST(ChatSettings, AreNarrowerForAnApi) {
  ChatSettings settings;
  for (const char* name : {"temp", "presence-penalty", "frequency-penalty"}) {
    EXPECT_THAT(Set(name, "5", &settings, SettingRanges::kApi).message(),
                AllOf(HasSubstr(absl::StrCat(name, ": 5 is out of range, expected ")), HasSubstr("to 2")));
    EXPECT_TRUE(Set(name, "2", &settings, SettingRanges::kApi).ok());
    EXPECT_TRUE(Set(name, "5", &settings).ok());
    EXPECT_THAT(CheckApiSettings(settings).message(), HasSubstr(absl::StrCat("--", name, ": 5 is out of range")));
    EXPECT_TRUE(Set(name, "default", &settings, SettingRanges::kApi).ok());
  }
  EXPECT_TRUE(CheckApiSettings(settings).ok());
}

std::string Compact(const Dialogue& dialogue) { return CompactJson(dialogue.messages()); }

TEST(Dialogue, KeepsTheSystemMessageFirst) {
  Dialogue dialogue;
  dialogue.AddUser("a");
  EXPECT_EQ(dialogue.system(), "");
  dialogue.SetSystem("Be brief.");
  dialogue.SetSystem("Be kind.");
  EXPECT_EQ(dialogue.system(), "Be kind.");
  EXPECT_EQ(Compact(dialogue), R"([{"role":"system","content":"Be kind."},{"role":"user","content":"a"}])");
  dialogue.Clear();
  EXPECT_EQ(Compact(dialogue), R"([{"role":"system","content":"Be kind."}])");
  dialogue.SetSystem("");
  EXPECT_EQ(dialogue.size(), 0u);
}

TEST(Dialogue, TakesBackTheLastMessageWithItsAnswerOrTheAnswerAlone) {
  Dialogue dialogue;
  dialogue.AddUser("a");
  dialogue.AddAnswer("b", "");
  dialogue.AddUser("c");
  dialogue.AddAnswer("d", "I think");
  EXPECT_THAT(Compact(dialogue), HasSubstr(R"({"role":"assistant","content":"d","reasoning_content":"I think"})"));
  dialogue.TakeBackAnswer();
  EXPECT_EQ(dialogue.size(), 3u);
  dialogue.TakeBackMessage();
  EXPECT_EQ(dialogue.size(), 2u);
  dialogue.TakeBackMessage();
  EXPECT_FALSE(dialogue.HasUser());
  dialogue.TakeBackMessage();
  dialogue.TakeBackAnswer();
  EXPECT_EQ(dialogue.size(), 0u);
}

TEST(Dialogue, ReadsWhatItWrote) {
  Dialogue dialogue, other;
  dialogue.SetSystem("Say \"ß\"");
  dialogue.AddUser("two\nlines");
  dialogue.AddAnswer("", "");
  ASSERT_TRUE(other.Load(dialogue.Text()).ok());
  EXPECT_EQ(other.messages(), dialogue.messages());
}

TEST(Dialogue, StaysAsItIsWhenWhatIsLoadedIsNoConversation) {
  Dialogue dialogue;
  dialogue.AddUser("a");
  const std::string before = Compact(dialogue);
  for (const char* text : {"", "[", "[]", "{}", R"(["a"])", R"([{"role":"user"}])", R"([{"content":"a"}])"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(dialogue.Load(text))) << text;
    EXPECT_EQ(Compact(dialogue), before);
  }
  EXPECT_THAT(dialogue.Load(R"([{"role":"user","content":1}])").message(), HasSubstr("messages[0].content"));
}

TEST(TerminalText, LeavesTextAloneAndLetsNothingInItCommandTheTerminal) {
  EXPECT_EQ(ForTerminal("a\tb\nGrüße, 世界 🙂"), "a\tb\nGrüße, 世界 🙂");
  EXPECT_EQ(ForTerminal("\x1b]0;owned\x07"), "\u241b]0;owned\u2407");
  EXPECT_EQ(ForTerminal("a\x1b[2Jb"), "a\u241b[2Jb");
  EXPECT_EQ(ForTerminal(absl::string_view("\0\x08\x7f", 3)), "\u2400\u2408\u2421");
  EXPECT_EQ(ForTerminal("\xC2\x9B"
                        "31m"),
            "\uFFFD31m");  // U+009B begins a sequence as ESC [ does
  EXPECT_EQ(ForTerminal("\xC2\xA0"), "\xC2\xA0");
  EXPECT_EQ(ForTerminal("one\r\ntwo\rthree"), "one\ntwothree");
  EXPECT_EQ(ForTerminal("a\x9B"
                        "31m"),
            "a\uFFFD31m");
  EXPECT_EQ(ForTerminal("a\xE2\x82"), "a\uFFFD");
}

TEST(TerminalText, SaysTheSameHoweverTheTextIsCut) {
  const std::string text =
      "Grüße \x1b[31m\xC2\x9B"
      "x 世\x9B 🙂\r\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    TerminalText filter;
    std::string shown = filter.Push(text.substr(0, cut));
    shown += filter.Push(text.substr(cut));
    shown += filter.Flush();
    EXPECT_EQ(shown, ForTerminal(text)) << cut;
  }
}

// A screen, and what it shows of what is given to it.
struct Shown {
  explicit Shown(ChatScreenOptions options)
      : screen(
            options, [this](absl::string_view text) { return absl::StrAppend(&out, text), absl::OkStatus(); },
            [this](absl::string_view text) { absl::StrAppend(&messages, text); }) {}
  void Think(absl::string_view text) { EXPECT_TRUE(screen.Show(AnswerPart::kReasoning, text).ok()); }
  void Answer(absl::string_view text) { EXPECT_TRUE(screen.Show(AnswerPart::kContent, text).ok()); }
  void End() { EXPECT_TRUE(screen.EndAnswer().ok()); }
  void Note(absl::string_view text) { EXPECT_TRUE(screen.Note(text).ok()); }
  void Say(absl::string_view text) { EXPECT_TRUE(screen.Say(text).ok()); }

  std::string out, messages;
  ChatScreen screen;
};

TEST(ChatScreen, GivesTheTextOfAnswersAloneToAPipe) {
  Shown shown({.terminal = false});
  shown.Think("hm");
  shown.Answer("a\x1b[2J\r");
  shown.Answer("b");
  shown.End();
  shown.End();  // of an answer without text
  shown.Note("2 tokens");
  shown.Say("one\ntwo\n");
  EXPECT_EQ(shown.out, "a\x1b[2J\rb\n");
  EXPECT_EQ(shown.messages, "2 tokens\none\ntwo\n");
}

TEST(ChatScreen, DimsWhatIsNoAnswerAtATerminal) {
  Shown shown({.terminal = true, .dims = true});
  shown.Think("hm");
  shown.Answer("yes\n");
  shown.End();
  shown.Note("2 tokens");
  EXPECT_EQ(shown.out, "\x1b[2mhm\x1b[0m\nyes\n\x1b[2m2 tokens\x1b[0m\n");
  EXPECT_EQ(shown.messages, "");
}

TEST(ChatScreen, EndsDimTextWithAnAnswerThatIsReasoningAlone) {
  Shown shown({.terminal = true, .dims = true});
  shown.Think("hm");
  shown.End();
  shown.Answer("yes");
  shown.End();
  EXPECT_EQ(shown.out, "\x1b[2mhm\x1b[0m\nyes\n");
}

TEST(ChatScreen, LetsNobodyCommandTheTerminal) {
  Shown shown({.terminal = true});
  shown.Answer("a\x1b");
  shown.Answer("[2J\xC2");
  shown.Answer("\x9B");
  shown.End();
  shown.Say("a\x1b[2J");
  shown.Note("b\x07");
  EXPECT_EQ(shown.out, "a\u241b[2J\uFFFD\na\u241b[2J\nb\u2407\n");
}

TEST(ChatScreen, LetsNobodyCommandATerminalThatIsTheOutputAlone) {
  Shown shown({.output_terminal = true});
  shown.Answer("a\x1b[2J\xC2");
  shown.End();
  shown.Say("b\x1b[2J");
  EXPECT_EQ(shown.out, "a\u241b[2J\uFFFD\n");
  EXPECT_EQ(shown.messages, "b\u241b[2J\n");
}

TEST(ChatScreen, SaysNothingUnaskedWhenItIsToBeQuiet) {
  Shown shown({.quiet = true});
  shown.Note("2 tokens");
  shown.Say("help");
  EXPECT_EQ(shown.messages, "help\n");
}

}  // namespace
}  // namespace stagecoach
