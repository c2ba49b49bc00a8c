#include "coordinator/cli/chat/chat_settings.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
    EXPECT_TRUE(Set(name, "1", &settings).ok());
    EXPECT_TRUE(Set(name, "default", &settings, SettingRanges::kEngine, given).ok());
  }
  EXPECT_EQ(settings.sampling.temperature, 0.5f);
  EXPECT_EQ(settings.sampling.top_p, std::nullopt);
  EXPECT_EQ(settings.sampling.top_k, std::nullopt);
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
    const absl::Status status = Set(name, value, &settings);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(name, ": "))) << value;
  }
  EXPECT_THAT(Set("heat", "1", &settings).message(),
              AllOf(HasSubstr("'heat'"), HasSubstr("temp, top-k, top-p"), HasSubstr("seed, predict")));
  EXPECT_EQ(settings.sampling.temperature, std::nullopt);
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

}  // namespace
}  // namespace stagecoach
