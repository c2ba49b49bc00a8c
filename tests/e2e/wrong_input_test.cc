// Wrong command lines, files and lines of a batch: each ends with its message and its exit code, and says what to do.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct WrongCommand {
  const char* name;
  Words arguments;  // MODEL stands for the demo model
  int exit_code;
  const char* message;
};

std::ostream& operator<<(std::ostream& stream, const WrongCommand& wrong) { return stream << wrong.name; }

class WrongCommandLine : public ::testing::TestWithParam<WrongCommand> {};

TEST_P(WrongCommandLine, EndsWithAMessageAndItsExitCode) {
  Words arguments = GetParam().arguments;
  for (std::string& word : arguments) word = absl::StrReplaceAll(word, {{"MODEL", DemoModelPath()}});
  const ProgramResult result = Coordinator(arguments);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result;
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  EXPECT_THAT(result.err, HasSubstr("coordinator: "));
  EXPECT_THAT(result.out, IsEmpty());
}

Words WithOption(const Words& option) {
  Words words = {"generate", "-m", "MODEL", "-p", "x"};
  words.insert(words.end(), option.begin(), option.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    Usage, WrongCommandLine,
    ::testing::Values(
        WrongCommand{"NoVerb", {}, 2, "no verb given; the verbs are generate, chat, batch, serve"},
        WrongCommand{"UnknownVerb", {"run"}, 2, "'run' is no verb"},
        WrongCommand{"UnknownOption", WithOption({"--frobnicate"}), 2, "--frobnicate"},
        WrongCommand{"UnknownTopLevelOption", {"--frobnicate"}, 2, "--frobnicate"},
        WrongCommand{"HelpOnNothing", {"help", "run"}, 2, "'run' is no verb"},
        WrongCommand{"NoModel", {"generate", "-p", "x"}, 2, "--model is required"},
        WrongCommand{"StrayWord", WithOption({"stray"}), 2, "stray"},
        WrongCommand{"OptionWithoutValue", WithOption({"-n"}), 2, "--predict: 1 required"},
        WrongCommand{"QuietAndVerbose", WithOption({"-q", "-v"}), 2, "excludes"},
        WrongCommand{"NothingToPredict", WithOption({"-n", "0"}), 2, "--predict: 0 is out of range, expected 1 to"},
        WrongCommand{"PredictIsNoNumber", WithOption({"-n", "many"}), 2, "'many' is not an integer"},
        WrongCommand{"NegativeTemperature", WithOption({"--temp", "-1"}), 2,
                     "--temp: -1 is out of range, expected 0 to 100"},
        WrongCommand{"TemperatureIsNotANumber", WithOption({"--temp", "nan"}), 2, "--temp: nan is out of range"},
        WrongCommand{"TopPZero", WithOption({"--top-p", "0"}), 2,
                     "--top-p: 0 is out of range, expected more than 0 and up to 1"},
        WrongCommand{"TopPAboveOne", WithOption({"--top-p", "1.1"}), 2, "--top-p: 1.1 is out of range"},
        WrongCommand{"MinPAboveOne", WithOption({"--min-p", "2"}), 2, "--min-p: 2 is out of range, expected 0 to 1"},
        WrongCommand{"TopKNegative", WithOption({"--top-k", "-2"}), 2, "--top-k: -2 is out of range"},
        WrongCommand{"RepeatPenaltyZero", WithOption({"--repeat-penalty", "0"}), 2,
                     "--repeat-penalty: 0 is out of range"},
        WrongCommand{"RepeatLastN", WithOption({"--repeat-last-n", "-2"}), 2, "--repeat-last-n: -2 is out of range"},
        WrongCommand{"SeedNegative", WithOption({"--seed", "-5"}), 2, "'-5' is not a seed"},
        WrongCommand{"LogprobsTooMany", WithOption({"--output", "json", "--logprobs", "129"}), 2, "expected 0 to 128"},
        WrongCommand{"LogprobsInText", WithOption({"--logprobs", "1"}), 2, "--logprobs needs --output json"},
        WrongCommand{"UnknownOutput", WithOption({"--output", "xml"}), 2, "'xml' is not one of text, json"},
        WrongCommand{"UnknownProgress", WithOption({"--progress", "often"}), 2,
                     "'often' is not one of auto, always, never"},
        WrongCommand{"UnknownPolicy", WithOption({"--policy", "fair"}), 2, "'fair' is not one of prefill-first"},
        WrongCommand{"UnknownKvType", WithOption({"--kv-type", "q4_0"}), 2,
                     "'q4_0' is not one of f32, f16, bf16, q8_0"},
        WrongCommand{"UnknownWireType", WithOption({"--wire-dtype", "f16"}), 2, "'f16' is not one of f32, bf16"},
        WrongCommand{"BlockSizeOdd", WithOption({"--block-size", "17"}), 2,
                     "--block-size is 17, expected a multiple of 16"},
        WrongCommand{"BlockSizeZero", WithOption({"--block-size", "0"}), 2, "--block-size: 0 is out of range"},
        WrongCommand{"KvMemoryIsNoSize", WithOption({"--kv-cache-memory", "lots"}), 2, "'lots' is not a size"},
        WrongCommand{"NoSequences", WithOption({"--max-num-seqs", "0"}), 2, "--max-num-seqs: 0 is out of range"},
        WrongCommand{"NoChunk", WithOption({"--prefill-chunk", "0"}), 2, "--prefill-chunk: 0 is out of range"},
        WrongCommand{"NoThreads", WithOption({"-t", "0"}), 2, "--threads: 0 is out of range"},
        WrongCommand{"NoStages", WithOption({"--pp", "0"}), 2, "0 is out of range"},
        WrongCommand{"MoreStagesThanLayers", WithOption({"--pp", "9"}), 2, "9 stages, but the model has 8 layers"},
        WrongCommand{"LayersTwice",
                     {"plan", "--load-format", "dummy", "--shape", "tiny:layers=5", "--type", "q8_0", "--layers", "3"},
                     2,
                     "--layers: --shape tiny:layers=5 says how many layers already"},
        WrongCommand{"SplitDoesNotAddUp", WithOption({"--layer-split", "4,5"}), 2,
                     "4,5 adds up to 9, the model has 8 layers"},
        WrongCommand{"SplitWithAnEmptyStage", WithOption({"--layer-split", "8,0"}), 2, "0 is out of range"},
        WrongCommand{"SplitIsNoList", WithOption({"--layer-split", "4;4"}), 2, "'4;4' is not an integer"},
        WrongCommand{"SplitAgainstStages", WithOption({"--layer-split", "4,4", "--pp", "3"}), 2,
                     "has 2 parts, --pp asks for 3"},
        WrongCommand{"ContextBeyondTheModel", WithOption({"-c", "1025"}), 2, "the model's context is 1024"},
        WrongCommand{"EmptyPrompt", {"generate", "-m", "MODEL", "-p", ""}, 2, "the prompt is empty"},
        WrongCommand{
            "OneOfTwoPromptsIsEmpty", {"generate", "-m", "MODEL", "-p", "x", "-p", ""}, 2, "prompt 2 of 2 is empty"},
        WrongCommand{"EmptyStandardInput", {"generate", "-m", "MODEL"}, 2, "the prompt is empty"},
        WrongCommand{
            "UnknownTokenId", {"detokenize", "-m", "MODEL", "4096"}, 2, "4096 is out of range, expected 0 to 4095"},
        WrongCommand{"TokenIdIsNoNumber", {"detokenize", "-m", "MODEL", "x"}, 2, "'x' is not an integer"},
        WrongCommand{"BatchWithoutInput", {"batch", "-m", "MODEL", "-o", "x"}, 2, "--input is required"},
        WrongCommand{"BatchWithoutOutput", {"batch", "-m", "MODEL", "-i", "-"}, 2, "--output is required"},
        WrongCommand{
            "BatchToStandardOutput", {"batch", "-m", "MODEL", "-i", "-", "-o", "-"}, 2, "cannot be resumed from"},
        WrongCommand{"PerplexityWithoutText", {"perplexity", "-m", "MODEL"}, 2, "there is no text"},
        WrongCommand{"PerplexityOfTooSmallWindows",
                     {"perplexity", "-m", "MODEL", "-f", "x", "-c", "3"},
                     2,
                     "expected 4 or more"},
        WrongCommand{"EmptyModelPath", {"inspect", "-m", ""}, 2, "--model: is empty, expected FILE"},
        WrongCommand{"EmptyHostFile", WithOption({"--hostfile", ""}), 2, "--hostfile: is empty, expected FILE"},
        WrongCommand{"EmptyHostList", WithOption({"--host="}), 2, "--host"},
        WrongCommand{"ALinkThatDelaysNothing", WithOption({"--emulate-link", "bandwidth=0Gbit"}), 2,
                     "--emulate-link: a link that delays nothing"},
        WrongCommand{"EmptyDirectoryOfAReport", {"sweep", "report", ""}, 2, "the directory's name is empty"},
        WrongCommand{"ASweepOfEverything",
                     {"sweep", "-m", "MODEL", "-o", "x", "--pp", "1,2,3,4,5,6,7,8", "--prompt", "1,2,3,4,5,6,7,8,9",
                      "--output", "1,2,3,4,5,6,7,8,9", "--concurrency", "1,2,3,4,5,6,7,8", "-r", "1000"},
                     2,
                     "the lists make 5.184e+06 points"},
        WrongCommand{"UnknownLayoutOfId42", {"inspect", "-m", "MODEL", "--q2-layout", "g32"}, 2, "--q2-layout"},
        WrongCommand{"EngineWithoutSocket", {"engine"}, 2, "--connect is required"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Files, WrongCommandLine,
    ::testing::Values(
        WrongCommand{"NoSuchModel", {"generate", "-m", "/nowhere/m.gguf", "-p", "x"}, 3, "/nowhere/m.gguf"},
        WrongCommand{"ModelIsADirectory", {"inspect", "-m", "/"}, 3, "'/'"},
        WrongCommand{"UnknownShape", {"inspect", "-m", "dummy://qwen3-7b/q8_0"}, 3, "shapes are tiny, "},
        WrongCommand{"UnknownTypeOfAShape", {"inspect", "-m", "dummy://tiny/q9"}, 3, "types are f32, "},
        WrongCommand{"NoTokenizerToGenerate",
                     {"generate", "-m", "dummy://tiny/q8_0", "-p", "x"},
                     3,
                     "'dummy://tiny/q8_0' has no tokenizer in it"},
        WrongCommand{"NoTokenizerForABatch",
                     {"batch", "-m", "dummy://tiny/q8_0", "-i", "-", "-o", "x"},
                     3,
                     "'dummy://tiny/q8_0' has no tokenizer in it"},
        WrongCommand{"NoSuchPromptFile", {"generate", "-m", "MODEL", "-f", "/nowhere/p.txt"}, 3, "/nowhere/p.txt"},
        WrongCommand{"EndlessPromptFile", WithOption({"-f", "/dev/zero"}), 3, "'/dev/zero' has more than 1024 MiB"},
        WrongCommand{"PromptFileIsADirectory", {"tokenize", "-m", "MODEL", "-f", "/"}, 3, "'/' is a directory"},
        WrongCommand{"NoSuchText", {"perplexity", "-m", "MODEL", "-f", "/nowhere/t.txt"}, 3, "/nowhere/t.txt"},
        WrongCommand{
            "NoSuchBatch", {"batch", "-m", "MODEL", "-i", "/nowhere/in", "-o", "/nowhere/out"}, 3, "/nowhere/in"},
        WrongCommand{
            "BatchIsADirectory", {"batch", "-m", "MODEL", "-i", "/", "-o", "/nowhere/out"}, 3, "it is a directory"},
        WrongCommand{
            "OutputCannotBeWritten", {"batch", "-m", "MODEL", "-i", "-", "-o", "/nowhere/out"}, 3, "/nowhere/out"},
        WrongCommand{"OutputIsADevice", {"batch", "-m", "MODEL", "-i", "-", "-o", "/dev/null"}, 3, "no regular file"},
        WrongCommand{"StepLogCannotBeWritten", WithOption({"--step-log", "/nowhere/s"}), 3,
                     "--step-log: cannot write '/nowhere/s'"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Launch, WrongCommandLine,
    ::testing::Values(WrongCommand{"NoSuchStageWorker", WithOption({"--stage-worker", "/nowhere/w"}), 4, "/nowhere/w"},
                      WrongCommand{"NoSuchHostFile", WithOption({"--hostfile", "/nowhere/h"}), 4, "/nowhere/h"},
                      WrongCommand{"AHostFileThatIsADirectory", WithOption({"--hostfile", "/"}), 4, "no regular file"},
                      WrongCommand{"AHostListThatEndsWithAComma", WithOption({"--host", "node1:2,"}), 2, "--host: ''"},
                      WrongCommand{"OpenQuoteInMpirunArgs", WithOption({"--mpirun-args", "--mca 'x"}), 2, "quote"},
                      WrongCommand{"NoSuchSocket", {"engine", "--connect", "/nowhere/s"}, 4, "/nowhere/s"}),
    [](const auto& info) { return std::string(info.param.name); });

// Model files that are not right, made from the demo model and from nothing.
class WrongModelFile : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& contents, const char* message) {
    const std::string path = directory_.File("wrong.gguf");
    WriteFileOrDie(path, contents);
    for (const Words& arguments : {Words{"generate", "-m", path, "-p", "x"}, Words{"inspect", "-m", path}}) {
      const ProgramResult result = Coordinator(arguments);
      EXPECT_EQ(result.exit_code, 3) << result;
      EXPECT_THAT(result.err, HasSubstr(message));
      EXPECT_THAT(result.err, HasSubstr(path));
      EXPECT_THAT(result.out, IsEmpty());
    }
  }

  // `inspect` describes these; only running them is refused.
  void ExpectCannotRun(const GgufWriter& writer, const char* message) {
    const std::string path = directory_.File("wrong.gguf");
    ASSERT_TRUE(writer.Write(path).ok());
    const ProgramResult run = Coordinator({"generate", "-m", path, "-p", "x"});
    EXPECT_EQ(run.exit_code, 3) << run;
    EXPECT_THAT(run.err, HasSubstr(message));
    const ProgramResult inspect = Coordinator({"inspect", "-m", path});
    EXPECT_EQ(inspect.exit_code, 0) << inspect;
    EXPECT_THAT(inspect.out, HasSubstr("runs here        no: "));
    EXPECT_THAT(inspect.out, HasSubstr(message));
  }

  const std::string demo_ = ReadFileOrDie(DemoModelPath());
  TempDir directory_;
};

TEST_F(WrongModelFile, EmptyFile) { ExpectRefused("", "0 bytes"); }
TEST_F(WrongModelFile, TextFile) { ExpectRefused("Entry not found", "is a text: 'Entry not found'"); }
TEST_F(WrongModelFile, HeaderCutOff) { ExpectRefused(demo_.substr(0, 20), "20 bytes"); }
TEST_F(WrongModelFile, MetadataCutOff) { ExpectRefused(demo_.substr(0, 1000), "wrong.gguf"); }
TEST_F(WrongModelFile, TensorDataCutOff) { ExpectRefused(demo_.substr(0, demo_.size() - 1), "wrong.gguf"); }

TEST_F(WrongModelFile, UnknownVersion) {
  std::string contents = demo_;
  contents[4] = 99;
  ExpectRefused(contents, "version");
}

TEST_F(WrongModelFile, ImpossibleCounts) {
  std::string contents = demo_;
  for (int i = 8; i < 16; ++i) contents[i] = '\x7f';
  ExpectRefused(contents, "tensor");
}

TEST_F(WrongModelFile, UnknownArchitecture) {
  GgufWriter writer;
  writer.Set("general.architecture", "mamba");
  ExpectCannotRun(writer, "llama, minimax-m2");
}

TEST_F(WrongModelFile, NoArchitecture) {
  GgufWriter writer;
  writer.Set("general.name", "nothing");
  ExpectCannotRun(writer, "general.architecture");
}

TEST_F(WrongModelFile, WeightsFoldedWithAHadamardTransform) {
  for (const char* architecture : {"qwen3", "qwen35"}) {
    GgufWriter writer = TinyModel({});
    writer.Set("general.architecture", architecture);
    writer.Set("prism.hadamard.version", uint32_t{1});
    ExpectCannotRun(writer, "key 'prism.hadamard.version' says that weights are folded with a Hadamard transform");
  }
}

TEST_F(WrongModelFile, TensorTypeWithoutKernels) {
  GgufWriter writer = TinyModel({});
  constexpr uint32_t kNvfp4 = 40;  // 36 bytes for 64 weights
  writer.SetTensor("blk.0.ffn_up.weight", {64, 96}, kNvfp4, std::string(96 * 36, '\0'));
  ExpectCannotRun(writer, "supported types are F32, F16, BF16, Q8_0");
}

TEST_F(WrongModelFile, VocabularyWithoutWeights) {
  SHARED_FILE_OR_SKIP(model, "data/tokenizers/qwen.gguf");
  const ProgramResult result = Coordinator({"generate", "-m", model, "-p", "x"});
  EXPECT_EQ(result.exit_code, 3) << result;
  const ProgramResult tokens = Coordinator({"tokenize", "-m", model, "-p", "x"});
  EXPECT_EQ(tokens.exit_code, 0) << tokens;
}

TEST(WrongFile, TextTooShortForAWindow) {
  const TempDir directory;
  WriteFileOrDie(directory.File("short.txt"), "In the beginning");
  const ProgramResult result = Coordinator({"perplexity", "-m", DemoModelPath(), "-f", directory.File("short.txt")});
  EXPECT_EQ(result.exit_code, 3) << result;
  EXPECT_THAT(result.err, HasSubstr("a window needs 512"));
}

TEST(WrongFile, InputAndOutputOfABatchAreTheSame) {
  const TempDir directory;
  const std::string path = directory.File("both.jsonl");
  WriteFileOrDie(path, BatchInputLine("a", {{"prompt", "x"}}));
  const ProgramResult result = Coordinator(Batch(path, path));
  EXPECT_EQ(result.exit_code, 2) << result;
  EXPECT_EQ(ReadFileOrDie(path), BatchInputLine("a", {{"prompt", "x"}}));
}

TEST(WrongFile, OutputOfABatchIsSomethingElse) {
  const TempDir directory;
  WriteFileOrDie(directory.File("notes.txt"), "dear diary");
  const ProgramResult result = Coordinator(Batch("-", directory.File("notes.txt")));
  EXPECT_EQ(result.exit_code, 3) << result;
  EXPECT_THAT(result.err, HasSubstr("no line of a batch's output"));
  EXPECT_EQ(ReadFileOrDie(directory.File("notes.txt")), "dear diary");
}

struct WrongLine {
  const char* text;  // a line of the batch
  const char* code;
  const char* message;
};

constexpr WrongLine kWrongLines[] = {
    {"not json", "invalid_json", "parse error"},
    {"{\"custom_id\":\"cut", "invalid_json", "parse error"},
    {"[1,2]", "invalid_json", "expected an object, found array"},
    {"\"text\"", "invalid_json", "expected an object, found string"},
    {"{\"custom_id\":\"\xff\xfe\"}", "invalid_json", "UTF-8"},
    {R"({"body":{"prompt":"x"}})", "missing_custom_id", "no 'custom_id'"},
    {R"({"custom_id":null,"body":{"prompt":"x"}})", "missing_custom_id", "no 'custom_id'"},
    {R"({"custom_id":"w7"})", "invalid_request", "'body': is missing"},
    {R"({"custom_id":"w8","body":[]})", "invalid_request", "'body': is missing or no object"},
    {R"({"custom_id":"w9","body":{}})", "invalid_request", "'prompt': is missing"},
    {R"({"custom_id":"w10","body":{"prompt":""}})", "invalid_request", "'prompt': is empty"},
    {R"({"custom_id":"w11","body":{"prompt":[]}})", "invalid_request", "'prompt': is empty"},
    {R"({"custom_id":"w12","body":{"prompt":["a","b"]}})", "invalid_request",
     "expected one string or one list of token ids"},
    {R"({"custom_id":"w13","body":{"prompt":[5000]}})", "invalid_request", "5000 is out of range, expected 0 to 4095"},
    {R"({"custom_id":"w14","url":"/v1/embeddings","body":{"prompt":"x"}})", "invalid_request", "'url'"},
    {R"({"custom_id":"w15","method":"GET","body":{"prompt":"x"}})", "invalid_request", "'method'"},
    {R"({"custom_id":"w16","body":{"prompt":"x","n":2}})", "invalid_request", "'n': 2 answers"},
    {R"({"custom_id":"w17","body":{"prompt":"x","echo":true}})", "invalid_request", "'echo'"},
    {R"({"custom_id":"w18","body":{"prompt":"x","stream":true}})", "invalid_request", "'stream'"},
    {R"({"custom_id":"w19","body":{"prompt":"x","max_tokens":0}})", "invalid_request",
     "'max_tokens': 0 is out of range"},
    {R"({"custom_id":"w20","body":{"prompt":"x","max_tokens":"5"}})", "invalid_request",
     "expected an integer, found string"},
    {R"({"custom_id":"w21","body":{"prompt":"x","temperature":-0.5}})", "invalid_request", "-0.5 is out of range"},
    {R"({"custom_id":"w22","body":{"prompt":"x","top_p":2}})", "invalid_request", "'top_p': 2 is out of range"},
    {R"({"custom_id":"w23","body":{"prompt":"x","logprobs":500}})", "invalid_request", "expected 0 to 128"},
    {R"({"custom_id":"w24","body":{"prompt":"x","logit_bias":{"9999":1}}})", "invalid_request",
     "'9999' is no token id"},
    {R"({"custom_id":"w25","body":{"prompt":"x","stop":7}})", "invalid_request", "'stop': expected a string"},
    {R"({"custom_id":"w26","body":{"prompt":"x","maxtokens":7}})", "invalid_request", "'maxtokens': is no field"},
    {R"({"custom_id":"good","body":{"prompt":"x"}})", "duplicate_custom_id", "was used by an earlier line"},
};

TEST(WrongLine, GetsAnErrorLineOfItsOwnAndTheRestGoesOn) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  std::string input = BatchInputLine("good", {{"prompt", "In the beginning"}, {"max_tokens", 2}});
  for (const WrongLine& wrong : kWrongLines) absl::StrAppend(&input, wrong.text, "\n");
  input += BatchInputLine("last", {{"prompt", "And"}, {"max_tokens", 2}});
  // Rows too many for the model: only the engine can tell.
  std::vector<int> long_prompt(1024, 5);
  input += BatchInputLine("long", {{"prompt", long_prompt}});
  WriteFileOrDie(in, input);

  const ProgramResult result = Coordinator(Batch(in, out));
  EXPECT_EQ(result.exit_code, 0) << result;
  std::map<std::string, Json> lines = ReadBatchOutput(out);
  EXPECT_EQ(lines.size(), std::size(kWrongLines) + 3);
  for (const char* answered : {"good", "last"}) {
    EXPECT_TRUE(lines[answered]["error"].is_null());
    EXPECT_EQ(lines[answered]["response"]["body"]["usage"]["completion_tokens"], 2);
  }
  EXPECT_EQ(lines["long"]["error"]["code"], "rejected");
  std::map<int, Json> by_number;
  for (const auto& [key, line] : lines) {
    if (line["error"].is_object()) by_number[line["error"]["line"].get<int>()] = line;
  }
  int number = 1;
  for (const WrongLine& wrong : kWrongLines) {
    ++number;
    ASSERT_TRUE(by_number.contains(number)) << wrong.text;
    const Json& error = by_number[number]["error"];
    EXPECT_TRUE(by_number[number]["response"].is_null());
    EXPECT_EQ(error["code"], wrong.code) << wrong.text;
    EXPECT_THAT(error["message"].get<std::string>(), StartsWith(absl::StrCat("line ", number, ": ")));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(wrong.message));
  }
}

}  // namespace
}  // namespace stagecoach::testing
