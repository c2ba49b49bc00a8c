#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

// Published chat templates and what jinja2 makes of them.

namespace stagecoach {
namespace {

// The templates of the cases, parsed once each.
class TemplateFiles {
 public:
  const JinjaTemplate& Get(const std::string& name) {
    const auto known = templates_.find(name);
    if (known != templates_.end()) return known->second;
    const std::string path = testing::SharedPath("data/templates/" + name + ".jinja");
    absl::StatusOr<JinjaTemplate> parsed = JinjaTemplate::Parse(testing::ReadFileOrDie(path));
    EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.status();
    return templates_.emplace(name, *std::move(parsed)).first->second;
  }

 private:
  std::map<std::string, JinjaTemplate> templates_;
};

void ExpectCase(const Json& wanted, const absl::StatusOr<MarkedText>& rendered) {
  if (wanted.contains("expected")) {
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text(), wanted["expected"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered.ok()) << rendered->text();
  const bool raises = wanted["error_kind"] == "raise_exception";
  EXPECT_EQ(JinjaRaised(rendered.status()), raises) << rendered.status();
  if (raises) {
    EXPECT_EQ(rendered.status().message(), wanted["error"].get<std::string>());
  }
}

TEST(PublishedTemplates, RenderEveryCaseByteForByte) {
  SHARED_FILE_OR_SKIP(path, "data/templates/cases.jsonl");
  TemplateFiles templates;
  std::ifstream lines(path);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const Json wanted = Json::parse(line);
    SCOPED_TRACE(wanted["template"].get<std::string>() + ": " + wanted["case"].get<std::string>());
    const JinjaTemplate& chat = templates.Get(wanted["template"]);
    ExpectCase(wanted, chat.Render(wanted["inputs"], {"bos_token", "eos_token"}, testing::RenderingTime()));
    ++count;
  }
  EXPECT_GE(count, 187);
}

}  // namespace
}  // namespace stagecoach
