// The verbs that need neither MPI nor a launcher.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/gguf/gguf_writer.h"
#include "common/gguf/model_shapes.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/header_only_model.h"

namespace stagecoach::testing {
namespace {

TEST(Help, IsOnStandardOutputAndEndsWell) {
  for (const Words& arguments : {Words{"help"}, Words{"--help"}, Words{"help", "batch"}, Words{"batch", "--help"}}) {
    const ProgramResult result = Coordinator(arguments);
    EXPECT_THAT(result, Prints(HasSubstr("Usage:")));
    EXPECT_THAT(result.err, IsEmpty());
  }
  EXPECT_THAT(Coordinator({"--version"}).out, HasSubstr("stagecoach 0."));
}

TEST(Inspect, DescribesTheDemoModel) {
  const std::string result = CoordinatorOut({"inspect", "-m", DemoModelPath()});
  EXPECT_THAT(result, AllOf(HasSubstr("architecture     qwen3"), HasSubstr("6821120 in 90 tensors"),
                            HasSubstr("layers           8"), HasSubstr("context          1024"),
                            HasSubstr("vocabulary       4096"), HasSubstr("Q8_0"), HasSubstr("8.50 bits per weight"),
                            HasSubstr("chat template    yes"), HasSubstr("runs here        yes")));
}

TEST(Inspect, GivesTheSameAsJsonWithEveryTensor) {
  const Json json = CoordinatorJson(WordsOf("inspect -m MODEL --json --tensors"));
  EXPECT_EQ(json["architecture"], "qwen3");
  EXPECT_EQ(json["parameters"], 6821120);
  EXPECT_EQ(json["layers"], 8);
  EXPECT_EQ(json["shards"], 1);
  EXPECT_EQ(json["supported"], true);
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);
  EXPECT_EQ(json["tokenizer"]["end_of_generation"], (std::vector<int>{4093, 4095}));
  ASSERT_EQ(json["tensor_list"].size(), 90u);
  uint64_t bytes = 0;
  for (const Json& tensor : json["tensor_list"]) bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(json["tensor_bytes"], bytes);
}

TEST(Inspect, DescribesAModelWithoutWeights) {
  const std::string result = CoordinatorOut({"inspect", "-m", "dummy://qwen3-8b/q4_k_m"});
  EXPECT_THAT(result, AllOf(HasSubstr("file             dummy://qwen3-8b/q4_k_m"), HasSubstr("layers           36"),
                            HasSubstr("Q4_K"), HasSubstr("Q6_K"), HasSubstr("has no tokenizer in it"),
                            HasSubstr("runs here        yes")));
}

TEST(Inspect, DescribesWhatItCannotRun) {
  const TempDir directory;
  GgufWriter writer;
  writer.Set("general.architecture", "mamba");
  writer.Set("mamba.block_count", uint32_t{3});
  writer.Set("tokenizer.chat_template", "{{ messages }}");
  writer.Set("tokenizer.chat_template.tool_use", "{% if tools %}");
  writer.SetTensor("token_embd.weight", {32, 2}, TensorType::kF32, std::vector<float>(64, 1.0f));
  ASSERT_TRUE(writer.Write(directory.File("m.gguf")).ok());
  const Json json = CoordinatorJson({"inspect", "-m", directory.File("m.gguf"), "--json"});
  EXPECT_EQ(json["layers"], 3);
  EXPECT_EQ(json["supported"], false);
  EXPECT_THAT(json["unsupported_because"].get<std::string>(), HasSubstr("mamba"));
  EXPECT_EQ(json["tokenizer"]["supported"], false);
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);
  EXPECT_THAT(json["tokenizer"]["chat_template_unusable_because"].get<std::string>(),
              StartsWith("for tools: line 1: "));
}

TEST(Inspect, ShowsAFilesTextsOnLinesOfTheirOwnAndNoOrdersToTerminals) {
  const TempDir directory;
  GgufWriter writer;
  writer.Set("general.architecture", "mamba\n\x1b[2J");
  writer.Set("general.name", "M\nruns here        yes\x1b]0;owned\x07");
  writer.Set("tokenizer.chat_template", "{{ messages }}\n{{ messages | frob }}");
  writer.SetTensor("token_embd.weight", {32, 2}, TensorType::kF32, std::vector<float>(64, 1.0f));
  ASSERT_TRUE(writer.Write(directory.File("m.gguf")).ok());
  const std::string result = CoordinatorOut({"inspect", "-m", directory.File("m.gguf")});
  EXPECT_THAT(
      result,
      AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07")), Not(HasSubstr("\nruns here        yes")),
            HasSubstr("chat template    yes, but it cannot be used: line 2: unknown filter 'frob'; there are abs, "),
            HasSubstr("name             M␊runs here        yes␛]0;owned␇\n"), HasSubstr("\nruns here        no: ")));
}

// ---- headers of published models, in files as long as theirs but without weights ----

class PublishedModel : public ::testing::TestWithParam<ModelShape> {
 protected:
  // What inspect says of the model's file.
  Json Inspected(const std::string& type) {
    WriteHeaderOnlyModel(path_, GetParam(), type);
    return CoordinatorJson({"inspect", "-m", path_, "--json"});
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
  if (GetParam().pre_tokenizer == absl::string_view("qwen35")) {
    EXPECT_EQ(json["tokenizer"]["end_of_generation"], Json({248044, 248046}));
  }
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
    const Json json = CoordinatorJson({"inspect", "-m", absl::StrCat("dummy://", shape, "/q8_0"), "--json"});
    EXPECT_EQ(json["kv_bytes_per_token_f16"], bytes) << shape;
  }
}

TEST(PublishedModels, KeepAStateOfASequenceWhereTheyHaveRecurrentLayers) {
  const std::string model = "dummy://qwen3.5-35b-a3b/q4_k_m";
  const Json json = CoordinatorJson({"inspect", "-m", model, "--json"});
  EXPECT_EQ(json["states"]["layers"], 30);
  EXPECT_EQ(json["states"]["bytes_per_sequence"], 30 * 4 * (3 * 8192 + 32 * 128 * 128));
  EXPECT_EQ(json["kv_bytes_per_token_f16"], 20 << 10);
  EXPECT_EQ(json["heads"], 16);
  EXPECT_EQ(json["blocks_left_out"], 1);
  EXPECT_THAT(CoordinatorOut({"inspect", "-m", model}),
              HasSubstr("\nstates           62.8 MiB a sequence of any length, of 30 layers, which have no KV\n"));
  EXPECT_EQ(CoordinatorJson({"inspect", "-m", "dummy://qwen3-8b/q8_0", "--json"})["states"], nullptr);
}

// ---- tokens ----

TEST(Tokenize, GivesTheIdsOfTheReference) {
  const std::string result = CoordinatorOut({"tokenize", "-m", DemoModelPath(), "-p", "In the beginning God created"});
  EXPECT_EQ(result, "3784 258 2149 390 2841\n");
}

TEST(Tokenize, ReadsControlTokensUnlessToldNotTo) {
  EXPECT_EQ(Coordinator({"tokenize", "-m", DemoModelPath(), "-p", "<|im_end|>"}).out, "4095\n");
  EXPECT_NE(Coordinator({"tokenize", "-m", DemoModelPath(), "-p", "<|im_end|>", "--no-special"}).out, "4095\n");
}

TEST(Tokenize, GivesPiecesAsJsonWithInvalidUtf8Replaced) {
  const Json json = CoordinatorJson(WordsOf("tokenize -m MODEL --output json"), "the\xff");
  EXPECT_EQ(json["pieces"].back(), "\xEF\xBF\xBD");
  EXPECT_EQ(json["tokens"].size(), json["pieces"].size());
}

TEST(Detokenize, GivesBackEveryByteThatWasTokenized) {
  std::string text = "In the beginning\n  God\tcreated\r\n\n\"h\xC3\xA9\" \xE2\x82\xAC \xF0\x9F\x98\x80 <|im_end|> ";
  for (int byte = 1; byte < 256; ++byte) text += static_cast<char>(byte);
  const std::string tokens = CoordinatorOut({"tokenize", "-m", DemoModelPath()}, text);
  EXPECT_EQ(CoordinatorOut({"detokenize", "-m", DemoModelPath()}, tokens), text);
  const Words ids = absl::StrSplit(tokens, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  EXPECT_EQ(Coordinator(Joined(WordsOf("detokenize -m MODEL"), ids)).out, text);
}

TEST(Detokenize, ShowsControlTokensUnlessToldNotTo) {
  EXPECT_EQ(Coordinator({"detokenize", "-m", DemoModelPath(), "258", "4095"}).out, " the<|im_end|>");
  EXPECT_EQ(Coordinator({"detokenize", "-m", DemoModelPath(), "--no-special", "258,4095"}).out, " the");
}

TEST(TextVerbs, NeedNoLauncher) {
  // Nothing that could start a job is to be found.
  const std::vector<std::pair<std::string, std::string>> bare = {{"PATH", "/nowhere"}};
  for (const char* line :
       {"inspect -m MODEL", "tokenize -m MODEL -p x", "detokenize -m MODEL 5", "apply-template -m MODEL -p x"}) {
    EXPECT_EQ(RunProgram(CoordinatorProgram(), WordsOf(line), "", 60, bare).exit_code, 0) << line;
  }
  EXPECT_THAT(RunProgram(CoordinatorProgram(), Generate({"-p", "x"}), "", 60, bare),
              EndsWithCode(4, HasSubstr("mpirun")));
}

TEST(DryRun, PrintsTheLaunchLineAndStartsNothing) {
  const std::string result = CoordinatorOut(Generate({"--dry-run", "--pp", "2", "--mpirun-args", "--mca foo 'a b'"}));
  EXPECT_THAT(result, AllOf(HasSubstr("mpirun "), HasSubstr(CoordinatorProgram()), HasSubstr(StageWorkerProgram()),
                            HasSubstr("--mca foo 'a b'"), HasSubstr("-n 2 ")));
  EXPECT_EQ(std::count(result.begin(), result.end(), '\n'), 1);
}

}  // namespace
}  // namespace stagecoach::testing
