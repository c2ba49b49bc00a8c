#include "coordinator/cli/chat_settings.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ChatSettings, SetsWhatTheOptionsSet) {
  const ChatSettings given;
  ChatSettings settings;
  EXPECT_TRUE(SetChatSetting("temp", "0.7", SettingRanges::kEngine, given, &settings).ok());
  EXPECT_TRUE(SetChatSetting("top_k", "40", SettingRanges::kEngine, given, &settings).ok());
  EXPECT_TRUE(SetChatSetting("repeat-last-n", "-1", SettingRanges::kEngine, given, &settings).ok());
  EXPECT_TRUE(SetChatSetting("seed", "18446744073709551615", SettingRanges::kEngine, given, &settings).ok());
  EXPECT_TRUE(SetChatSetting("predict", "12", SettingRanges::kEngine, given, &settings).ok());
  EXPECT_EQ(settings.sampling.temperature, 0.7f);
  EXPECT_EQ(settings.sampling.top_k, 40);
  EXPECT_EQ(settings.sampling.repeat_last_n, -1);
  EXPECT_EQ(settings.sampling.seed, 18446744073709551615u);
  EXPECT_EQ(settings.max_new_tokens, 12);
  const std::string text = ChatSettingsText(settings, GivenSampling(settings.sampling));
  EXPECT_THAT(text,
              AllOf(HasSubstr("temp               0.7\n"), HasSubstr("top-k              40\n"),
                    HasSubstr("seed               18446744073709551615\n"), HasSubstr("predict            12\n")));
}

TEST(ChatSettings, TakesBackWhatWasSetToWhatTheUserGaveAtFirst) {
  ChatSettings given;
  given.sampling.temperature = 0.5f;
  ChatSettings settings = given;
  for (const char* name : {"temp", "top-p", "top-k", "seed", "predict"}) {
    EXPECT_TRUE(SetChatSetting(name, "1", SettingRanges::kEngine, given, &settings).ok());
    EXPECT_TRUE(SetChatSetting(name, "default", SettingRanges::kEngine, given, &settings).ok());
  }
  EXPECT_EQ(settings.sampling.temperature, 0.5f);
  EXPECT_EQ(settings.sampling.top_p, std::nullopt);
  EXPECT_EQ(settings.sampling.top_k, std::nullopt);
  EXPECT_EQ(settings.sampling.seed, std::nullopt);
  EXPECT_EQ(settings.max_new_tokens, std::nullopt);
}

TEST(ChatSettings, RefusesWhatTheOptionsRefuse) {
  const ChatSettings given;
  ChatSettings settings;
  for (const auto& [name, value] : {std::pair("temp", "-1"),
                                    {"temp", "hot"},
                                    {"top-p", "0"},
                                    {"top-k", "1.5"},
                                    {"seed", "-1"},
                                    {"predict", "0"},
                                    {"min-p", ""}}) {
    const absl::Status status = SetChatSetting(name, value, SettingRanges::kEngine, given, &settings);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(name, ": "))) << value;
  }
  EXPECT_THAT(SetChatSetting("heat", "1", SettingRanges::kEngine, given, &settings).message(),
              AllOf(HasSubstr("'heat'"), HasSubstr("temp, top-p"), HasSubstr("seed, predict")));
  EXPECT_EQ(settings.sampling.temperature, std::nullopt);
}

TEST(ChatSettings, AreNarrowerForAnApi) {
  const ChatSettings given;
  ChatSettings settings;
  for (const char* name : {"temp", "presence-penalty", "frequency-penalty"}) {
    EXPECT_THAT(SetChatSetting(name, "5", SettingRanges::kApi, given, &settings).message(),
                AllOf(HasSubstr(absl::StrCat(name, ": 5 is out of range, expected ")), HasSubstr("to 2")));
    EXPECT_TRUE(SetChatSetting(name, "2", SettingRanges::kApi, given, &settings).ok());
    EXPECT_TRUE(SetChatSetting(name, "5", SettingRanges::kEngine, given, &settings).ok());
    EXPECT_THAT(CheckApiSettings(settings).message(), HasSubstr(absl::StrCat("--", name, ": 5 is out of range")));
    EXPECT_TRUE(SetChatSetting(name, "default", SettingRanges::kApi, given, &settings).ok());
  }
  EXPECT_TRUE(CheckApiSettings(settings).ok());
}

}  // namespace
}  // namespace stagecoach
