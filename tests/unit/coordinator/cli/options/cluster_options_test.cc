#include "coordinator/cli/options/cluster_options.h"

#include <algorithm>
#include <limits>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "common/gguf/gguf_writer.h"
#include "coordinator/cli/options/client_key.h"
#include "coordinator/cli/options/job_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/sampling_options.h"
#include "coordinator/cli/verb.h"
#include "proto/engine.pb.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

ModelDescription EightLayers() {
  ModelDescription model;
  model.hyper.layers.resize(8);
  model.hyper.context = 1024;
  return model;
}

RunContext Program() {
  RunContext context;
  context.program = "/opt/coordinator";
  return context;
}

pb::ConfigureJob JobOf(const ClusterOptions& options) {
  return MakeLaunchOptions(options, EightLayers(), Program()).value().job;
}

// Of the command line `words`, behind -m.
pb::ConfigureJob JobGiven(const std::string& words, ClusterOptions options = {}) {
  CLI::App app;
  AddClusterOptions(&app, &options, "");
  app.parse("-m model.gguf " + words);
  return JobOf(options);
}

absl::Status RefusalOf(const ClusterOptions& options) {
  return MakeLaunchOptions(options, EightLayers(), Program()).status();
}

std::string UsageMessage(const ClusterOptions& options) {
  const absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << status;
  return std::string(status.message());
}

struct ClusterOptionsTest : ::testing::Test {
  ClusterOptions options;
};

TEST_F(ClusterOptionsTest, ADraftNeedsSomebodyToAskItAndIsDoneWithoutWhereItCannotBeRead) {
  options.model = "model.gguf";
  options.draft_model = "/no/draft.gguf";
  options.speculate = Speculate::kOff;
  EXPECT_THAT(UsageMessage(options), HasSubstr("--draft-model guesses only with --speculate auto or draft"));
  options.speculate = Speculate::kSuffix;
  EXPECT_THAT(UsageMessage(options), HasSubstr("but that is suffix"));
  for (const Speculate speculate : {Speculate::kAuto, Speculate::kDraft}) {
    options.speculate = speculate;
    options.draft_model = "/no/draft.gguf";
    EXPECT_EQ(JobOf(options).draft_model_path(), "");
  }
  options.draft_model.clear();
  EXPECT_THAT(UsageMessage(options), HasSubstr("--speculate draft guesses by --draft-model; give that too"));
}

TEST_F(ClusterOptionsTest, ADraftOfOtherTokensIsRefusedBeforeAnythingStarts) {
  const testing::TempDir dir;
  testing::TinyArchitectureOptions tiny = testing::TinyArchitecture("qwen3");
  options.model = testing::WriteTinyArchitecture(dir.File("model.gguf"), tiny);
  const std::shared_ptr<const ModelDescription> model = OpenModel(options.model).value();
  options.speculate = Speculate::kDraft;
  tiny.seed = 2;
  options.draft_model = testing::WriteTinyArchitecture(dir.File("draft.gguf"), tiny);
  EXPECT_EQ(MakeLaunchOptions(options, *model, Program()).value().job.draft_model_path(), dir.File("draft.gguf"));
  tiny.vocab = 300;
  options.draft_model = testing::WriteTinyArchitecture(dir.File("other.gguf"), tiny);
  absl::Status refused = MakeLaunchOptions(options, *model, Program()).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kInputFile);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("--draft-model: '"), HasSubstr("other.gguf' cannot guess tokens of '"),
                                       HasSubstr("token 299 is \""), HasSubstr("give a draft of the same family")));
  options.draft_model = "dummy://tiny/q8_0";
  refused = MakeLaunchOptions(options, *model, Program()).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kInputFile);
  EXPECT_THAT(refused.message(), HasSubstr("--draft-model: the tokens of model and draft cannot be compared"));
}

TEST_F(ClusterOptionsTest, BecomeTheJobOfALaunch) {
  options.model = "model.gguf";
  options.context = 512;
  options.layer_split = {5, 3};
  options.kv_type = KvType::kF32;
  options.stage_timeout_s = 7;
  const LaunchOptions launch = MakeLaunchOptions(options, EightLayers(), Program()).value();
  EXPECT_EQ(launch.stages, 2) << "as many as the split has parts";
  EXPECT_EQ(launch.coordinator_path, "/opt/coordinator");
  EXPECT_EQ(launch.job.model_path().front(), '/');
  EXPECT_THAT(launch.job.layer_split(), ElementsAre(5, 3));
  EXPECT_EQ(launch.job.context(), 512);
  EXPECT_EQ(launch.job.max_num_seqs(), 8);
  EXPECT_EQ(launch.job.max_num_batched_tokens(), 512);
  EXPECT_EQ(launch.job.block_tokens(), 32);
  EXPECT_EQ(launch.job.kv_type(), pb::KV_TYPE_F32);
  EXPECT_EQ(launch.job.wire_type(), pb::WIRE_TYPE_F32);
  EXPECT_EQ(launch.job.policy(), "throttled");
  EXPECT_EQ(launch.job.stage_timeout_s(), 7);
  EXPECT_EQ(launch.job.fingerprints_size(), 0);
}

TEST_F(ClusterOptionsTest, PromptsThatBeginAlikeShareUnlessToldNotTo) {
  EXPECT_TRUE(ClusterOptions().prefix_caching);
  EXPECT_TRUE(JobGiven("").prefix_caching());
  EXPECT_FALSE(JobGiven("--no-enable-prefix-caching").prefix_caching());
  ClusterOptions off;
  off.prefix_caching = false;
  EXPECT_FALSE(JobGiven("", off).prefix_caching());
  EXPECT_TRUE(JobGiven("--enable-prefix-caching", off).prefix_caching());
}

TEST_F(ClusterOptionsTest, AWantedGapIsForThePolicyThatKeepsIt) {
  options.model = "dummy://qwen3-0.6b/q8_0";
  options.slo_itl_s = 0.08;
  options.policy = Policy::kInterleaved;
  EXPECT_THAT(UsageMessage(options), HasSubstr("--slo-itl is what --policy throttled keeps to"));
  options.policy = ClusterOptions().policy;
  options.chunking = Chunking::kEqualTime;
  EXPECT_EQ(JobOf(options).slo_itl_s(), 0.08);
  EXPECT_EQ(JobOf(options).chunking(), "equal-time");
}

TEST_F(ClusterOptionsTest, StreamedWeightsNeedAFileToSend) {
  options.model = "model.gguf";
  EXPECT_EQ(JobOf(options).weights(), pb::WEIGHT_SOURCE_FILE);
  options.weights = WeightSource::kStream;
  EXPECT_EQ(JobOf(options).weights(), pb::WEIGHT_SOURCE_STREAM);
  options.weights_cache = "kept";
  EXPECT_EQ(JobOf(options).weights_cache().front(), '/');
  options.weights = WeightSource::kFile;
  EXPECT_THAT(UsageMessage(options), HasSubstr("--weights-cache is for streamed weights"));
  options.weights = WeightSource::kStream;
  options.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_THAT(UsageMessage(options), HasSubstr("--weights: stream sends a model's file, but dummy://qwen3-0.6b/q8_0"));
}

TEST_F(ClusterOptionsTest, HandOnWhatSaysHowTheModelIsRead) {
  ClusterOptions dummy;
  dummy.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_EQ(JobOf(dummy).model_path(), "dummy://qwen3-0.6b/q8_0");
  EXPECT_EQ(JobGiven("").q2_layout(), "auto");
  EXPECT_EQ(JobGiven("--q2-layout g128-oxi").q2_layout(), "g128-oxi");
  EXPECT_FALSE(JobGiven("").allow_damaged());
  EXPECT_TRUE(JobGiven("--allow-damaged").allow_damaged());
}

TEST_F(ClusterOptionsTest, LeaveTheNumberOfStagesToTheHostFile) {
  options.model = "model.gguf";
  EXPECT_EQ(MakeLaunchOptions(options, EightLayers(), Program())->stages, 0);
  options.stages = 3;
  EXPECT_EQ(MakeLaunchOptions(options, EightLayers(), Program())->stages, 3);
}

TEST_F(ClusterOptionsTest, RefuseASplitThatDoesNotAddUp) {
  options.layer_split = {5, 4};
  EXPECT_THAT(UsageMessage(options), HasSubstr("5,4 adds up to 9, the model has 8 layers"));
  options.layer_split = {5, 3};
  options.stages = 3;
  EXPECT_THAT(UsageMessage(options), HasSubstr("has 2 parts, --pp asks for 3 stages"));
}

TEST_F(ClusterOptionsTest, RefuseMoreStagesThanLayersAndMoreContextThanTheModelHas) {
  options.stages = 9;
  EXPECT_THAT(UsageMessage(options), HasSubstr("9 stages, but the model has 8 layers"));
  options.stages = 8;
  options.context = 1025;
  EXPECT_THAT(UsageMessage(options), HasSubstr("1025 tokens, but the model's context is 1024"));
  options.context = 1024;
  options.block_tokens = 24;
  EXPECT_THAT(UsageMessage(options), HasSubstr("`block_tokens` is 24, expected a multiple of 16"));
}

TEST_F(ClusterOptionsTest, NameAMissingHostFileOrStageProgram) {
  options.hostfile = "/nowhere/hosts";
  absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kLaunch);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/hosts"));
  options.hostfile.clear();
  options.stage_worker = "/nowhere/stage_worker";
  status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kLaunch);
}

TEST_F(ClusterOptionsTest, TakeAListOfHostsInsteadOfAFile) {
  options.hosts = "node1:2,node2";
  EXPECT_EQ(MakeLaunchOptions(options, EightLayers(), Program()).value().hosts, "node1:2,node2");
  options.hosts = "node1:2,";
  EXPECT_THAT(UsageMessage(options), HasSubstr("`hosts`: '' does not begin with a host name"));
  options.hosts = "node1";
  options.hostfile = "hosts";
  EXPECT_THAT(UsageMessage(options), HasSubstr("--hostfile and --host name the hosts twice"));
}

TEST_F(ClusterOptionsTest, RefuseAStepLogThatCannotBeWritten) {
  options.step_log = "/nowhere/steps.jsonl";
  const absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInputFile);
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/steps.jsonl"));
}

TEST_F(ClusterOptionsTest, ATraceIsForAFileThatCanBeReadAgain) {
  options.trace = "/dev/null";
  const absl::Status status = RefusalOf(options);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInputFile);
  EXPECT_THAT(status.message(), HasSubstr("--trace: '/dev/null' is not a regular file"));
  options.dry_run = true;
  EXPECT_EQ(JobOf(options).trace(), "");
}

TEST(JobFlags, FieldsInBackquotesBecomeTheOptionsThatSetThemAndAllElseStaysAsItIs) {
  EXPECT_EQ(WithFlags("`kv_cache_bytes` is 7, `stages` is 2"), "--kv-cache-memory is 7, --pp is 2");
  EXPECT_EQ(WithFlags("lower `context` or `threads`"), "lower --ctx-size or --threads");
  for (const char* message : {"", "context", "`", "a ` b", "`coordinator help`", "``", "`a``b`", "kv_cache_bytes`"}) {
    EXPECT_EQ(WithFlags(message), message);
  }
  EXPECT_EQ(WithFlags("`x`isa`y"), "`x--isay");
  EXPECT_EQ(WithFlags("a ` b `isa`"), "a ` b --isa");
}

TEST(JobOptions, EverySettingHasAnOptionAndAFieldOfTheJob) {
  CLI::App app;
  ClusterOptions options;
  AddClusterOptions(&app, &options, "");
  int settings = 0;
  VisitJobSettings(options, [&](const JobSetting& setting, auto&...) {
    ++settings;
    EXPECT_NE(app.get_option_no_throw(FlagOfField(setting.name)), nullptr) << setting.name;
    EXPECT_NE(pb::ConfigureJob::descriptor()->FindFieldByName(setting.name), nullptr) << setting.name;
  });
  EXPECT_GT(settings, 25);
  for (const char* field : {"hostfile", "launcher_args", "stage_worker_path", "dry_run"}) {  // of the launch
    EXPECT_NE(app.get_option_no_throw(FlagOfField(field)), nullptr) << field;
  }
}

// Of every kind of value one that is not its default.
TEST(JobOptions, WordsGiveTheSettingsBack) {
  JobSettings given;
  given.threads = 3;
  given.layer_split = {5, 3};
  given.isa = InstructionSet::kAvx2;
  given.policy = Policy::kPhases;
  given.slo_itl_s = 0.0805;
  given.stage_timeout_s = 7.5;
  given.kv_cache_bytes = 12345;
  given.prefix_caching = false;
  given.allow_damaged = true;
  given.q2_layout = "g128";
  given.step_log = "steps of today.jsonl";
  given.emulated_link = {.latency_s = 0.002, .bytes_per_s = 125e6};
  std::vector<std::string> words = JobSettingWords(given, AllSettingsBut({}));
  EXPECT_EQ(words.front(), "--q2-layout");
  CLI::App app;
  JobSettings parsed;
  AddJobSettings(&app, &parsed, AllSettingsBut({}));
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  app.parse(words);
  EXPECT_EQ(parsed, given);
  EXPECT_TRUE(JobSettingWords(JobSettings(), AllSettingsBut({})).empty());
  EXPECT_THAT(JobSettingWords(given, Settings({"threads", "kv_type"})), ElementsAre("--threads", "3"));
}

// What is sent for a key file with this text, or why nothing is.
std::string Shown(const std::string& text) {
  const testing::TempDir directory;
  testing::WriteFileOrDie(directory.File("key"), text);
  const absl::StatusOr<HttpHeaders> headers = ReadClientKey(directory.File("key"));
  return headers.ok() ? headers->at(0).second : std::string(headers.status().message());
}

TEST(ClientKey, IsTheOneLineOfItsFileWithItsOwnersNameOrWithout) {
  for (const char* text : {"sk-mine", "sk-mine\r\n", "# of the lab\n\n  sk-mine  \n", "me:sk-mine\n",
                           "# name:key\nme:sk-mine:batch:0.5\n"}) {
    EXPECT_EQ(Shown(text), "Bearer sk-mine") << text;
  }
}

TEST(ClientKey, IsRefusedWithoutBeingShownWhereItIsNone) {
  EXPECT_THAT(Shown("a:sk-1\nb:sk-2\n"), AllOf(HasSubstr("expected one key, found 2 lines"), Not(HasSubstr("sk-"))));
  for (const char* text : {"", "# nothing\n", "me:\n", "sk-1 sk-2\n"}) {
    EXPECT_THAT(Shown(text), AllOf(HasSubstr("expected one key"), Not(HasSubstr("sk-")))) << text;
  }
}

// Parses `arguments` with the options that `add` makes; the message of the error, or an empty string.
template <typename Add>
std::string ParseError(Add add, std::vector<std::string> arguments) {
  CLI::App app;
  add(&app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its end
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(OptionValues, ReadIntegersInTheirRangeOnly) {
  EXPECT_EQ(*ParseInteger("7", {1, 8}), 7);
  EXPECT_EQ(*ParseInteger("-1", {-1, 8}), -1);
  EXPECT_EQ(*ParseInteger("010", {1, 10}), 10) << "a leading zero does not mean octal";
  EXPECT_EQ(ParseInteger("9", {1, 8}).status().message(), "9 is out of range, expected 1 to 8");
  EXPECT_EQ(ParseInteger("x", {1, 8}).status().message(), "'x' is not an integer, expected 1 to 8");
  for (const char* bad : {"", " ", "1.5", "1e3", "0x10", "99999999999999999999", "--1"}) {
    EXPECT_FALSE(ParseInteger(bad, {0, std::numeric_limits<int64_t>::max()}).ok()) << bad;
  }
}

TEST(OptionValues, ReadNumbersInTheirRangeOnly) {
  EXPECT_FLOAT_EQ(*ParseNumber("0.7", {0, 1}), 0.7f);
  EXPECT_FLOAT_EQ(*ParseNumber("1", {0, 1}), 1);
  EXPECT_FALSE(ParseNumber("0", {0, 1, true}).ok());
  EXPECT_FALSE(ParseNumber("1e-60", {0, 1, true}).ok()) << "0 as a float";
  EXPECT_THAT(ParseNumber("-1", {0, 100}).status().message(), HasSubstr("expected 0 to 100"));
  for (const char* bad : {"nan", "inf", "-inf", "", "1,5", "abc"}) EXPECT_FALSE(ParseNumber(bad, {0, 100}).ok()) << bad;
}

TEST(OptionValues, ReadDurationsWithTheirUnits) {
  EXPECT_DOUBLE_EQ(*ParseDuration("80ms", {0.001, 10}), 0.08);
  EXPECT_DOUBLE_EQ(*ParseDuration("0.2s", {0.001, 10}), 0.2);
  EXPECT_DOUBLE_EQ(*ParseDuration("1m30s", {0, 100}), 90);
  EXPECT_EQ(ParseDuration("80", {0, 1}).status().message(), "'80' is not a duration, expected such as 80ms or 0.2s");
  EXPECT_EQ(ParseDuration("2s", {0, 1}).status().message(), "2s is out of range, expected 0 to 1 seconds");
  for (const char* bad : {"", "s", "-1s", "inf", "-inf", "1.5", "1 s", "1x"}) {
    EXPECT_FALSE(ParseDuration(bad, {0.001, 3600}).ok()) << bad;
  }
}

TEST(OptionValues, ReadSizesWithTheirUnits) {
  EXPECT_EQ(*ParseBytes("123"), 123u);
  EXPECT_EQ(*ParseBytes("4K"), 4096u);
  EXPECT_EQ(*ParseBytes("512m"), 512u << 20);
  EXPECT_EQ(*ParseBytes("2GiB"), uint64_t{2} << 30);
  EXPECT_EQ(*ParseBytes("1T"), uint64_t{1} << 40);
  for (const char* bad : {"", "0", "M", "-1", "1.5G", "1X", "99999999999T", "1 G"})
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
}

TEST(OptionValues, ReadListsOfIntegers) {
  EXPECT_THAT(*ParseIntegerList("10,9,9", {1, 100}), ElementsAre(10, 9, 9));
  for (const char* bad : {"", "1,", ",1", "1,,2", "1,0", "1;2"})
    EXPECT_FALSE(ParseIntegerList(bad, {1, 100}).ok()) << bad;
}

TEST(OptionValues, NameTheOptionTheValueAndTheRange) {
  double temperature = 0;
  const auto add = [&](CLI::App* app) { AddNumber(app, "--temp", &temperature, {0, 100}, "", ""); };
  EXPECT_EQ(ParseError(add, {"--temp", "-1"}), "--temp: -1 is out of range, expected 0 to 100");
  EXPECT_EQ(ParseError(add, {"--temp", "hot"}), "--temp: 'hot' is not a number, expected 0 to 100");
  EXPECT_EQ(temperature, 0);
  EXPECT_EQ(ParseError(add, {"--temp=2.5"}), "");
  EXPECT_EQ(temperature, 2.5);
}

TEST(OptionValues, OfAScalarGivenTwiceTheLastCounts) {
  int64_t value = 0;
  const auto add = [&](CLI::App* app) { AddInteger(app, "-n,--predict", &value, {1, 100}, "", ""); };
  EXPECT_EQ(ParseError(add, {"-n", "3", "--predict", "4"}), "");
  EXPECT_EQ(value, 4);
}

TEST(OptionValues, ListsThatAreGivenReplaceTheDefaultTogether) {
  std::vector<std::string> values = {"default"};
  const auto parse = [](absl::string_view text) -> absl::StatusOr<std::string> {
    if (text == "bad") return absl::InvalidArgumentError("is bad");
    return std::string(text);
  };
  const auto add = [&](CLI::App* app) { AddList<std::string>(app, "--prompt", &values, "N,...", "", parse); };
  EXPECT_EQ(ParseError(add, {}), "");
  EXPECT_THAT(values, ElementsAre("default"));
  EXPECT_EQ(ParseError(add, {"--prompt", "a, b", "--prompt", "c"}), "");
  EXPECT_THAT(values, ElementsAre("a", "b", "c"));
  EXPECT_EQ(ParseError(add, {"--prompt", "a,bad"}), "--prompt: is bad");
}

TEST(OptionValues, TakeTextsAsTheyStand) {
  std::vector<std::string> texts;
  const auto add = [&](CLI::App* app) { AddTexts(app, "-p", &texts, "TEXT", ""); };
  EXPECT_EQ(ParseError(add, {"-p", "[a,b]", "-p", "{}", "-p", "", "-p", "--n", "-p", "a,b c"}), "");
  EXPECT_THAT(texts, ElementsAre("[a,b]", "{}", "", "--n", "a,b c"));
  EXPECT_NE(ParseError(add, {"-p", "a", "b"}), "") << "one value an option";
}

TEST(OptionValues, OfferTheChoicesWhenNoneFits) {
  std::string choice = "f16";
  const auto add = [&](CLI::App* app) { AddChoice(app, "--kv-type", &choice, {"f32", "f16"}, ""); };
  EXPECT_EQ(ParseError(add, {"--kv-type", "f64"}), "--kv-type: 'f64' is not one of f32, f16");
  EXPECT_EQ(ParseError(add, {"--kv-type", "f32"}), "");
  EXPECT_EQ(choice, "f32");
}

TEST(OptionValues, TakeAnySeedOf64Bits) {
  std::optional<uint64_t> seed;
  const auto add = [&](CLI::App* app) { AddSeed(app, "--seed", &seed, "", ""); };
  EXPECT_EQ(ParseError(add, {"--seed", "18446744073709551615"}), "");
  EXPECT_EQ(*seed, std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(ParseError(add, {"--seed", "-1"}), HasSubstr("'-1' is not a seed"));
}

// A file with the given sampling values, opened.
class SamplingFile {
 public:
  explicit SamplingFile(const GgufWriter& writer) {
    const std::string path = directory_.File("m.gguf");
    EXPECT_TRUE(writer.Write(path).ok());
    file_ = GgufFile::Open(path).value();
  }
  const GgufMetadata& metadata() const { return file_->metadata(); }

 private:
  testing::TempDir directory_;
  std::unique_ptr<GgufFile> file_;
};

GgufWriter AuthorsChoice() {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  writer.Set("general.sampling.temp", 0.6f);
  writer.Set("general.sampling.top_k", int32_t{20});
  writer.Set("general.sampling.top_p", 0.95f);
  writer.Set("general.sampling.min_p", 0.05f);
  writer.Set("general.sampling.penalty_repeat", 1.1f);
  writer.Set("general.sampling.penalty_last_n", int32_t{-1});
  return writer;
}

TEST(SamplingOptions, AreGreedyWhenNobodySaysAnything) {
  GgufWriter writer;
  writer.Set("general.architecture", "qwen3");
  const SamplingFile file(writer);
  SamplingParams sampling = ResolveSampling({}, file.metadata());
  sampling.seed = 0;
  EXPECT_EQ(sampling, SamplingParams());
}

TEST(SamplingOptions, AreTheUsersElseTheModelsAuthors) {
  const SamplingFile file(AuthorsChoice());
  SamplingParams expected = {
      .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f, .repeat_last_n = -1};
  SamplingParams sampling = ResolveSampling({}, file.metadata());
  expected.seed = sampling.seed;
  EXPECT_EQ(sampling, expected);
  SamplingOptions options;
  options[&SamplingParams::temperature] = expected.temperature = 0.0f;
  options[&SamplingParams::top_k] = expected.top_k = 5;
  options.seed = expected.seed = 42;
  EXPECT_EQ(ResolveSampling(options, file.metadata()), expected);
}

TEST(SamplingOptions, WithoutAFileAreWhatTheUserGaveAndElseGreedy) {
  EXPECT_EQ(GivenSampling({}), SamplingParams());
  SamplingOptions options;
  options[&SamplingParams::temperature] = 0.7f;
  options[&SamplingParams::top_p] = 0.9f;
  options[&SamplingParams::min_p] = 0.1f;
  options[&SamplingParams::top_k] = 5;
  options[&SamplingParams::repeat_penalty] = 1.5f;
  options[&SamplingParams::repeat_last_n] = -1;
  options[&SamplingParams::presence_penalty] = 0.25f;
  options[&SamplingParams::frequency_penalty] = -0.5f;
  options.seed = 42;
  EXPECT_EQ(GivenSampling(options), (SamplingParams{.temperature = 0.7f,
                                                    .top_k = 5,
                                                    .top_p = 0.9f,
                                                    .min_p = 0.1f,
                                                    .repeat_penalty = 1.5f,
                                                    .presence_penalty = 0.25f,
                                                    .frequency_penalty = -0.5f,
                                                    .repeat_last_n = -1,
                                                    .seed = 42}));
}

TEST(SamplingOptions, LeaveOutValuesOfTheFileThatAreOutOfRange) {
  GgufWriter writer = AuthorsChoice();
  writer.Set("general.sampling.top_p", 0.0f);
  writer.Set("general.sampling.temp", -3.0f);
  writer.Set("general.sampling.top_k", "many");
  const SamplingFile file(writer);
  const SamplingParams sampling = ResolveSampling({}, file.metadata());
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 0);
}

TEST(SamplingOptions, SayWhatTheirVerbTakesWhenNobodyGivesThem) {
  const std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  const auto help_of = [&](const std::string& name) {
    CLI::App app;
    for (const std::unique_ptr<Verb>& verb : verbs) {
      if (verb->name() == name) verb->AddOptions(&app);
    }
    return absl::StrJoin(absl::StrSplit(app.help(), absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  };
  EXPECT_THAT(help_of("generate"), AllOf(HasSubstr("--temp X=0 "), HasSubstr("--seed N=drawn and printed ")));
  EXPECT_THAT(help_of("serve"), AllOf(HasSubstr("--temp X=1 "), HasSubstr("--seed N=drawn for each request ")));
  EXPECT_THAT(help_of("chat"), AllOf(HasSubstr("with --url the server's"), HasSubstr("N=drawn for each answer ")));
}

TEST(SamplingOptions, MakeEndOfGenerationImpossible) {
  SamplingParams sampling;
  const std::vector<TokenId> end = {4093, 4095};
  IgnoreEndOfGeneration(end, &sampling);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(4093, -INFINITY), Pair(4095, -INFINITY)));
}

}  // namespace
}  // namespace stagecoach
