// Headers of published models, in files as long as theirs but without weights: what inspect says of them.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/gguf/model_shapes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/header_only_model.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;

class PublishedModel : public ::testing::TestWithParam<ModelShape> {
 protected:
  // What inspect says of the model's file.
  Json Inspected(const std::string& type) {
    WriteHeaderOnlyModel(path_, GetParam(), type);
    const ProgramResult result = Coordinator({"inspect", "-m", path_, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result;
    return Json::parse(result.out);
  }

  const TempDir directory_;
  const std::string path_ = directory_.File("model.gguf");
};

TEST_P(PublishedModel, RunsHereByItsHeader) {
  const Json json = Inspected(UsualTypeOf(GetParam()));
  EXPECT_EQ(json["architecture"], GetParam().form.architecture);
  EXPECT_EQ(json["supported"], true) << json["unsupported_because"];
  EXPECT_EQ(json["tokenizer"]["supported"], true) << json["tokenizer"]["unsupported_because"];
  EXPECT_EQ(json["tokenizer"]["tokens"], GetParam().vocab);
  EXPECT_FALSE(json["tokenizer"]["end_of_generation"].empty());
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);
  EXPECT_EQ(json["layers"], GetParam().layers);
  EXPECT_EQ(json["vocabulary"], GetParam().vocab);
  EXPECT_GT(json["file_bytes"], json["tensor_bytes"]);
  const ProgramResult text = Coordinator({"inspect", "-m", path_});
  EXPECT_THAT(text.out, HasSubstr("\nruns here        yes\n")) << text;
}

std::string NameOf(const ::testing::TestParamInfo<ModelShape>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, PublishedModel, ::testing::ValuesIn(ModelShapes().subspan(1)), NameOf);  // 0: tiny

// KV of a token in 16 bits, all layers.
TEST(PublishedModels, KeepAsMuchOfATokenAsTheirHeadsSay) {
  const struct {
    const char* shape;
    int64_t bytes;
  } cases[] = {{"qwen3-30b-a3b", 96 << 10},   {"qwen3-235b-a22b", 188 << 10}, {"qwen3-coder-480b-a35b", 248 << 10},
               {"gpt-oss-120b", 72 << 10},    {"glm-4.5", 368 << 10},         {"glm-4.5-air", 184 << 10},
               {"deepseek-v3", 61 * 576 * 2}, {"kimi-k2", 61 * 576 * 2},      {"minimax-m2", 248 << 10}};
  for (const auto& [shape, bytes] : cases) {
    const ProgramResult result = Coordinator({"inspect", "-m", absl::StrCat("dummy://", shape, "/q8_0"), "--json"});
    ASSERT_EQ(result.exit_code, 0) << result;
    EXPECT_EQ(Json::parse(result.out)["kv_bytes_per_token_f16"], bytes) << shape;
  }
}

}  // namespace
}  // namespace stagecoach::testing
