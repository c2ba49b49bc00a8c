#include "coordinator/front/server_message.h"

#include <string>

#include "common/base/shown_text.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(ServerMessage, IsThatOfAnErrorAndElseWhatCame) {
  EXPECT_EQ(ServerMessage(R"({"error":{"message":"no \u00e9","type":"t","code":null}})"), "no \xC3\xA9");
  for (const char* other : {"<html>", "[]", "{}", R"({"error":"x"})", R"({"error":{}})", R"({"error":{"message":1}})",
                            R"({"error":{"message":""}})"}) {
    EXPECT_EQ(ServerMessage(other), other);
  }
  EXPECT_EQ(ServerMessage(""), "without a word");
  EXPECT_EQ(ServerMessage(std::string(1000, 'x')), CutText(std::string(1000, 'x')));
}

}  // namespace
}  // namespace stagecoach
