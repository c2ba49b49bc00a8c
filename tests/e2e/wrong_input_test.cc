// Wrong command lines, files, models and lines of a batch: each ends with its message and its exit code, and says what
// to do.

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/tiny_model.h"

namespace stagecoach::testing {
namespace {

TEST(WrongCommandLine, EndsWithAMessageAndItsExitCode) {
  ExpectRefused({}, {
                        {"", 2, "no verb given; the verbs are generate, chat, batch, serve"},
                        {"run", 2, "'run' is no verb"},
                        {"--frobnicate", 2, "--frobnicate"},
                        {"help run", 2, "'run' is no verb"},
                        {"generate -p x", 2, "--model is required"},
                        {"plan --load-format dummy --shape tiny:layers=5 --type q8_0 --layers 3", 2,
                         "--layers: --shape tiny:layers=5 says how many layers already"},
                        {"generate -m MODEL -p ''", 2, "the prompt is empty"},
                        {"generate -m MODEL -p x -p ''", 2, "prompt 2 of 2 is empty"},
                        {"generate -m MODEL", 2, "the prompt is empty"},
                        {"detokenize -m MODEL 4096", 2, "4096 is out of range, expected 0 to 4095"},
                        {"detokenize -m MODEL x", 2, "'x' is not an integer"},
                        {"batch -m MODEL -o x", 2, "--input is required"},
                        {"batch -m MODEL -i -", 2, "--output is required"},
                        {"batch -m MODEL -i - -o -", 2, "cannot be resumed from"},
                        {"perplexity -m MODEL", 2, "there is no text"},
                        {"perplexity -m MODEL -f x -c 3", 2, "expected 4 or more"},
                        {"inspect -m ''", 2, "--model: is empty, expected FILE"},
                        {"sweep report ''", 2, "the directory's name is empty"},
                        {"sweep -m MODEL -o x --pp 1,2,3,4,5,6,7,8 --prompt 1,2,3,4,5,6,7,8,9 --output "
                         "1,2,3,4,5,6,7,8,9 --concurrency 1,2,3,4,5,6,7,8 -r 1000",
                         2, "the lists make 5.184e+06 points"},
                        {"inspect -m MODEL --q2-layout g32", 2, "--q2-layout"},
                        {"engine", 2, "--connect is required"},
                        {"generate -m /nowhere/m.gguf -p x", 3, "/nowhere/m.gguf"},
                        {"inspect -m /", 3, "'/'"},
                        {"inspect -m dummy://qwen3-7b/q8_0", 3, "shapes are tiny, "},
                        {"inspect -m dummy://tiny/q9", 3, "types are f32, "},
                        {"generate -m dummy://tiny/q8_0 -p x", 3, "'dummy://tiny/q8_0' has no tokenizer in it"},
                        {"batch -m dummy://tiny/q8_0 -i - -o x", 3, "'dummy://tiny/q8_0' has no tokenizer in it"},
                        {"generate -m MODEL -f /nowhere/p.txt", 3, "/nowhere/p.txt"},
                        {"tokenize -m MODEL -f /", 3, "'/' is a directory"},
                        {"perplexity -m MODEL -f /nowhere/t.txt", 3, "/nowhere/t.txt"},
                        {"batch -m MODEL -i /nowhere/in -o /nowhere/out", 3, "/nowhere/in"},
                        {"batch -m MODEL -i / -o /nowhere/out", 3, "it is a directory"},
                        {"batch -m MODEL -i - -o /nowhere/out", 3, "/nowhere/out"},
                        {"batch -m MODEL -i - -o /dev/null", 3, "no regular file"},
                        {"engine --connect /nowhere/s", 4, "/nowhere/s"},
                    });
}

TEST(WrongCommandLine, OfAGenerationEndsWithAMessageAndItsExitCode) {
  ExpectRefused(WordsOf("generate -m MODEL -p x"),
                {
                    {"--frobnicate", 2, "--frobnicate"},
                    {"stray", 2, "stray"},
                    {"-n", 2, "--predict: 1 required"},
                    {"-q -v", 2, "excludes"},
                    {"-n 0", 2, "--predict: 0 is out of range, expected 1 to"},
                    {"-n many", 2, "'many' is not an integer"},
                    {"--temp -1", 2, "--temp: -1 is out of range, expected 0 to 100"},
                    {"--temp nan", 2, "--temp: nan is out of range"},
                    {"--top-p 0", 2, "--top-p: 0 is out of range, expected more than 0 and up to 1"},
                    {"--top-p 1.1", 2, "--top-p: 1.1 is out of range"},
                    {"--min-p 2", 2, "--min-p: 2 is out of range, expected 0 to 1"},
                    {"--top-k -2", 2, "--top-k: -2 is out of range"},
                    {"--repeat-penalty 0", 2, "--repeat-penalty: 0 is out of range"},
                    {"--repeat-last-n -2", 2, "--repeat-last-n: -2 is out of range"},
                    {"--seed -5", 2, "'-5' is not a seed"},
                    {"--output json --logprobs 129", 2, "expected 0 to 128"},
                    {"--logprobs 1", 2, "--logprobs needs --output json"},
                    {"--output xml", 2, "'xml' is not one of text, json"},
                    {"--progress often", 2, "'often' is not one of auto, always, never"},
                    {"--policy fair", 2, "'fair' is not one of prefill-first"},
                    {"--kv-type q4_0", 2, "'q4_0' is not one of f32, f16, bf16, q8_0"},
                    {"--wire-dtype f16", 2, "'f16' is not one of f32, bf16"},
                    {"--block-size 17", 2, "--block-size is 17, expected a multiple of 16"},
                    {"--block-size 0", 2, "--block-size: 0 is out of range"},
                    {"--kv-cache-memory lots", 2, "'lots' is not a size"},
                    {"--max-num-seqs 0", 2, "--max-num-seqs: 0 is out of range"},
                    {"--prefill-chunk 0", 2, "--prefill-chunk: 0 is out of range"},
                    {"-t 0", 2, "--threads: 0 is out of range"},
                    {"--pp 0", 2, "0 is out of range"},
                    {"--pp 9", 2, "9 stages, but the model has 8 layers"},
                    {"--layer-split 4,5", 2, "4,5 adds up to 9, the model has 8 layers"},
                    {"--layer-split 8,0", 2, "0 is out of range"},
                    {"--layer-split 4;4", 2, "'4;4' is not an integer"},
                    {"--layer-split 4,4 --pp 3", 2, "has 2 parts, --pp asks for 3"},
                    {"-c 1025", 2, "the model's context is 1024"},
                    {"--hostfile ''", 2, "--hostfile: is empty, expected FILE"},
                    {"--host=", 2, "--host"},
                    {"--emulate-link bandwidth=0Gbit", 2, "--emulate-link: a link that delays nothing"},
                    {"-f /dev/zero", 3, "'/dev/zero' has more than 1024 MiB"},
                    {"--step-log /nowhere/s", 3, "--step-log: cannot write '/nowhere/s'"},
                    {"--stage-worker /nowhere/w", 4, "/nowhere/w"},
                    {"--hostfile /nowhere/h", 4, "/nowhere/h"},
                    {"--hostfile /", 4, "no regular file"},
                    {"--host node1:2,", 2, "--host: ''"},
                    {"--mpirun-args 'x", 2, "quote"},
                });
}

// Model files that are not right, made from the demo model and from nothing.
class WrongModelFile : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& contents, const char* message) {
    const std::string path = directory_.File("wrong.gguf");
    WriteFileOrDie(path, contents);
    for (const Words& arguments : {Words{"generate", "-m", path, "-p", "x"}, Words{"inspect", "-m", path}}) {
      SCOPED_TRACE(absl::StrCat(arguments.front(), ", ", message));
      const ProgramResult result = Coordinator(arguments);
      EXPECT_THAT(result, EndsWithCode(3, HasSubstr(message)));
      EXPECT_THAT(result.err, HasSubstr(path));
      EXPECT_THAT(result.out, IsEmpty());
    }
  }

  // `inspect` describes these; only running them is refused.
  void ExpectCannotRun(const GgufWriter& writer, const char* message) {
    SCOPED_TRACE(message);
    const std::string path = directory_.File("wrong.gguf");
    ASSERT_TRUE(writer.Write(path).ok());
    EXPECT_THAT(Coordinator({"generate", "-m", path, "-p", "x"}), EndsWithCode(3, HasSubstr(message)));
    EXPECT_THAT(CoordinatorOut({"inspect", "-m", path}), AllOf(HasSubstr("runs here        no: "), HasSubstr(message)));
  }

  const std::string demo_ = ReadFileOrDie(DemoModelPath());
  TempDir directory_;
};

TEST_F(WrongModelFile, CutOffOrOfOtherContentsIsRefused) {
  std::string version = demo_, counts = demo_;
  version[4] = 99;
  std::fill_n(counts.begin() + 8, 8, '\x7f');
  ExpectRefused("", "0 bytes");
  ExpectRefused("Entry not found", "is a server's error message: 'Entry not found'");
  for (const size_t bytes : {size_t{20}, size_t{1000}, demo_.size() - 1}) {
    ExpectRefused(demo_.substr(0, bytes), bytes == 20 ? "20 bytes" : "wrong.gguf");
  }
  ExpectRefused(version, "version");
  ExpectRefused(counts, "tensor");
}

TEST_F(WrongModelFile, OfNoArchitectureThatRunsHere) {
  GgufWriter unknown, without;
  unknown.Set("general.architecture", "mamba");
  ExpectCannotRun(unknown, "llama, minimax-m2");
  without.Set("general.name", "nothing");
  ExpectCannotRun(without, "general.architecture");
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
  const std::string tokens = CoordinatorOut({"tokenize", "-m", model, "-p", "x"});
}

TEST(WrongFile, OfTheTextOrTheOutputIsRefusedAndLeftAsItIs) {
  const TempDir directory;
  const std::string line = BatchInputLine("a", {{"prompt", "x"}});
  WriteFileOrDie(directory.File("short.txt"), "In the beginning");
  WriteFileOrDie(directory.File("both.jsonl"), line);
  WriteFileOrDie(directory.File("notes.txt"), "dear diary");
  ExpectRefused({},
                {{"perplexity -m MODEL -f DIR/short.txt", 3, "a window needs 512"},
                 {"batch -m MODEL -i DIR/both.jsonl -o DIR/both.jsonl", 2, "both.jsonl"},
                 {"batch -m MODEL -i - -o DIR/notes.txt", 3, "no line of a batch's output"}},
                Refusal::kAnyLines, directory.path());
  EXPECT_EQ(ReadFileOrDie(directory.File("both.jsonl")), line);
  EXPECT_EQ(ReadFileOrDie(directory.File("notes.txt")), "dear diary");
}

struct WrongLine {
  const char* text;  // a line of the batch
  const char* code;
  const char* message;
};

constexpr WrongLine kWrongLines[] = {
    // tests/unit/coordinator/serve/api/batch_line_test.cc has more of them
    {"not json", "invalid_json", "parse error"},
    {R"({"custom_id":null,"body":{"prompt":"x"}})", "missing_custom_id", "no 'custom_id'"},
    {R"({"custom_id":"w8","body":[]})", "invalid_request", "'body': is missing or no object"},
    {R"({"custom_id":"w13","body":{"prompt":[5000]}})", "invalid_request", "5000 is out of range, expected 0 to 4095"},
    {R"({"custom_id":"w20","body":{"prompt":"x","max_tokens":"5"}})", "invalid_request",
     "expected an integer, found string"},
    {R"({"custom_id":"w24","body":{"prompt":"x","logit_bias":{"9999":1}}})", "invalid_request",
     "'9999' is no token id"},
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

  const std::string result = CoordinatorOut(Batch(in, out));
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
    SCOPED_TRACE(wrong.text);
    ASSERT_TRUE(by_number.contains(number));
    const Json& error = by_number[number]["error"];
    EXPECT_TRUE(by_number[number]["response"].is_null());
    EXPECT_EQ(error["code"], wrong.code);
    EXPECT_THAT(error["message"].get<std::string>(), StartsWith(absl::StrCat("line ", number, ": ")));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(wrong.message));
  }
}

// ---- models with a hole, as a download leaves one that made room for the whole file first ----

constexpr char kTensor[] = "blk.6.ffn_down.weight";

class DamagedModel : public ::testing::Test {
 protected:
  DamagedModel() {
    const auto sound = GgufFile::Open(DemoModelPath()).value();
    std::string bytes = ReadFileOrDie(DemoModelPath());
    const uint64_t begin = sound->FindTensor(kTensor)->file_offset + 10000;
    bytes.replace(begin, 16384, 16384, '\0');
    WriteFileOrDie(path_, bytes);
    damage_ = absl::StrCat("tensor '", kTensor, "' of layer 6 has a hole, 16384 zero bytes at offset ", begin, " of '",
                           path_, "'");
  }

  ProgramResult Run(const Words& words, const Words& more = {}) const {
    return Coordinator(Joined(Joined(words, {"-m", path_}), more));
  }

  const TempDir directory_;
  const std::string path_ = directory_.File("hole.gguf");
  const Words generate_ = {"generate", "--pp", "2", "-p", "x", "-n", "4"};
  std::string damage_;
};

TEST_F(DamagedModel, IsRefusedByTheStageThatLoadsItFromAFileAndFromAStream) {
  for (const char* weights : {"file", "stream"}) {
    const ProgramResult result = Run(generate_, {"--weights", weights});
    EXPECT_THAT(result,
                EndsWithCode(3, AllOf(HasSubstr("stage 1 on "), HasSubstr(damage_), HasSubstr("download it again"),
                                      HasSubstr("give --allow-damaged to take it as it is"))));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(DamagedModel, IsLoadedWhereTheUserWantsIt) {
  EXPECT_THAT(Run(generate_, {"--allow-damaged"}), EndsWithCode(0, HasSubstr(damage_ + "; it is loaded all the same")));
}

TEST_F(DamagedModel, IsFoundByInspectAndDoctorWhenTheyAreAsked) {
  EXPECT_EQ(Run({"inspect"}).exit_code, 0) << "which reads the header alone";
  const ProgramResult inspect = Run({"inspect", "--check"});
  EXPECT_EQ(inspect.exit_code, 3) << inspect;
  EXPECT_THAT(inspect.out, AllOf(HasSubstr("damaged          " + damage_), HasSubstr("damaged are 1\n")));
  EXPECT_THAT(inspect.err, HasSubstr("copy or download the file again"));
  const ProgramResult doctor = Run({"doctor", "--check"});
  EXPECT_EQ(doctor.exit_code, 3) << doctor;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("error    model: " + damage_), HasSubstr("every stage sees the same file")));
}

TEST(SoundModel, HasAChecksumForEveryTensor) {
  const std::string text = CoordinatorOut({"inspect", "--check", "-m", DemoModelPath()});
  EXPECT_THAT(text, AllOf(HasSubstr("damaged are 0\n"), Not(HasSubstr("damaged          "))));
  const Json json = Json::parse(Coordinator({"inspect", "--check", "--json", "-m", DemoModelPath()}).out);
  EXPECT_EQ(json["damaged_tensors"], 0);
  for (const Json& tensor : json["tensor_list"]) {
    EXPECT_EQ(tensor["crc32c"].get<std::string>().size(), 8u);
    EXPECT_TRUE(tensor["damage"].is_null());
  }
  EXPECT_THAT(CoordinatorOut({"doctor", "--check", "-m", DemoModelPath()}), HasSubstr("none is damaged\n"));
}

// ---- a model whose keys do not fit an F16 cache: its logits are no numbers ----

std::string WithLargeKeys(const TempDir& directory) {
  GgufWriter writer = TinyModel({.architecture = "qwen2"});
  writer.SetTensor("blk.1.attn_k.bias", {64}, TensorType::kF32, std::vector<float>(64, 1e5f));
  const std::string path = directory.File("large-keys.gguf");
  EXPECT_TRUE(writer.Write(path).ok());
  return path;
}

TEST(InvalidLogits, EndAnAnswerWithWhatHelps) {
  const TempDir directory;
  const std::string model = WithLargeKeys(directory);
  const Words generate = {"generate", "-m", model, "--pp", "2", "-p", "some text", "-n", "4"};
  const ProgramResult failed = Coordinator(generate);
  EXPECT_THAT(failed, EndsWithCode(5, AllOf(HasSubstr("prompt 1 of 1 failed: the logits for position"),
                                            HasSubstr("are not finite"), HasSubstr("run with --kv-type bf16"),
                                            HasSubstr("failed       1\n"))));
  EXPECT_THAT(failed.out, IsEmpty());
  Words wider = generate;
  wider.insert(wider.end(), {"--kv-type", "bf16"});
  EXPECT_THAT(Coordinator(wider), EndsWithCode(0, Not(HasSubstr("failed"))));
}

TEST(InvalidLogits, EndABatchInWhichNoLineHasAnAnswer) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(in, BatchInputLine("a", {{"prompt", "some text"}, {"max_tokens", 4}}));
  const ProgramResult failed = Coordinator({"batch", "-m", WithLargeKeys(directory), "-i", in, "-o", out});
  EXPECT_EQ(failed.exit_code, 5) << failed;
}

TEST(InvalidLogits, GiveNoPerplexity) {
  const TempDir directory;
  const std::string text = directory.File("text.txt");
  for (std::ofstream file(text); file.tellp() < 400;) file << "some text. ";
  const ProgramResult failed =
      Coordinator({"perplexity", "-m", WithLargeKeys(directory), "-f", text, "-c", "64", "--pp", "2"});
  EXPECT_THAT(failed, EndsWithCode(5, AllOf(HasSubstr("are not finite"), HasSubstr("run with --kv-type bf16"))));
  EXPECT_THAT(failed.out, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace stagecoach::testing
