#include "common/model/model_description.h"

#include <fstream>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/counter_rng.h"
#include "common/gguf/dummy_model.h"
#include "common/gguf/model_shapes.h"
#include "common/model/architectures.h"
#include "common/model/footprint.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::TinyModel;
using ::stagecoach::testing::TinyModelOptions;

absl::StatusOr<std::shared_ptr<const ModelDescription>> Describe(const GgufWriter& writer) {
  const TempDir dir;
  return OpenModel(testing::WriteModel(dir.File("m.gguf"), writer));
}

// Why the model does not open.
std::string Refusal(const GgufWriter& writer, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Describe(writer).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

std::shared_ptr<const ModelDescription> DescribeOrDie(const TinyModelOptions& options) {
  return Describe(TinyModel(options)).value();
}

std::set<std::string> Names(const std::vector<const GgufTensor*>& tensors) {
  std::set<std::string> names;
  for (const GgufTensor* tensor : tensors) EXPECT_TRUE(names.insert(tensor->name).second) << tensor->name;
  return names;
}

TEST(ModelDescription, DescribesTheDemoModel) {
  const auto model = OpenModel(testing::DemoModelPath()).value();
  EXPECT_EQ(model->layers.size(), 8u);
  EXPECT_TRUE(model->tied());
  const LayerTensors& layer = model->layers[3];
  EXPECT_EQ(layer.attn_q->name, "blk.3.attn_q.weight");
  EXPECT_THAT(layer.attn_q->dims, ElementsAre(256, 512));
  EXPECT_EQ(layer.attn_q_bias, nullptr);
  EXPECT_NE(layer.attn_k_norm, nullptr);
  EXPECT_EQ(layer.All().size(), 11u);
  EXPECT_EQ(model->StageTensors(0, 8, true, true).size(), 90u);
}

TEST(ModelDescription, DescribesAModelWithoutWeightsOfEveryShape) {
  for (const ModelShape& shape : ModelShapes()) {
    const auto model = OpenModel(DummyModelPath(shape.name, "q8_0")).value();
    EXPECT_EQ(model->hyper.layer_count(), shape.layers);
    EXPECT_EQ(model->hyper.vocab, shape.vocab);
    EXPECT_EQ(model->hyper.first_attention().q_width(), shape.heads * shape.head_dim);
    EXPECT_EQ(model->tied(), shape.tied);
  }
}

TEST(ModelDescription, KvBytesOfATokenFollowTheStoredType) {
  AttentionSpec attention;
  attention.kv_heads = 2;
  attention.head_dim = 64;
  EXPECT_EQ(KvBytesPerTokenLayer(attention, KvType::kF32).value(), 2 * 2 * 64 * 4);
  EXPECT_EQ(KvBytesPerTokenLayer(attention, KvType::kF16).value(), 2 * 2 * 64 * 2);
  EXPECT_EQ(KvBytesPerTokenLayer(attention, KvType::kBF16).value(), 2 * 2 * 64 * 2);
  EXPECT_EQ(KvBytesPerTokenLayer(attention, KvType::kQ8_0).value(), 2 * 2 * 2 * 36);
  attention.head_dim = 80;
  EXPECT_THAT(KvBytesPerTokenLayer(attention, KvType::kQ8_0).status().message(), HasSubstr("heads have 80"));
}

TEST(ModelDescription, FindsEveryTensorOfEveryForm) {
  const struct {
    TinyModelOptions options;
    size_t tensors_a_layer;
  } cases[] = {
      {{.architecture = "qwen3"}, 11},
      {{.architecture = "qwen3", .fused_qkv = true}, 9},
      {{.architecture = "qwen2"}, 12},
      {{.architecture = "qwen2", .fused_qkv = true}, 8},
      {{.architecture = "llama"}, 9},
      {{.architecture = "llama", .biases = true}, 16},
      {{.architecture = "llama", .type = TensorType::kQ8_0, .vector_type = TensorType::kBF16}, 9},
  };
  for (const auto& c : cases) {
    const auto model = DescribeOrDie(c.options);
    for (const LayerTensors& layer : model->layers) EXPECT_EQ(layer.All().size(), c.tensors_a_layer);
    EXPECT_EQ(model->StageTensors(0, 4, true, true).size(), model->file->tensors().size());
  }
}

TEST(ModelDescription, ATiedModelUsesItsEmbeddingAsTheHead) {
  EXPECT_TRUE(DescribeOrDie({.tied = true})->tied());
  const auto untied = DescribeOrDie({.tied = false});
  EXPECT_FALSE(untied->tied());
  EXPECT_EQ(untied->output->name, "output.weight");
}

TEST(ModelDescription, AStageNeedsItsLayersAndItsEndsOnly) {
  const auto model = DescribeOrDie({.architecture = "llama", .layers = 3, .tied = true, .rope_factors = true});
  const std::set<std::string> first = Names(model->StageTensors(0, 1, true, false));
  const std::set<std::string> middle = Names(model->StageTensors(1, 2, false, false));
  const std::set<std::string> last = Names(model->StageTensors(2, 3, false, true));
  EXPECT_TRUE(first.contains("token_embd.weight") && first.contains("blk.0.attn_norm.weight"));
  EXPECT_FALSE(first.contains("output_norm.weight") || first.contains("blk.1.attn_norm.weight"));
  EXPECT_EQ(middle.size(), 10u);
  EXPECT_TRUE(middle.contains("rope_freqs.weight"));
  EXPECT_TRUE(last.contains("output_norm.weight") && last.contains("token_embd.weight"));
  EXPECT_EQ(Names(model->StageTensors(0, 3, true, true)).size(), model->file->tensors().size());
  EXPECT_THAT(Names(model->StageTensors(0, 0, true, false)), ElementsAre("token_embd.weight"));
}

TEST(ModelDescription, ShardsDescribeTheSameModel) {
  const TempDir dir;
  const auto model = OpenModel(testing::WriteTinyModel(dir.File("m.gguf"), {.shards = 3})).value();
  EXPECT_EQ(model->file->shard_paths().size(), 3u);
  EXPECT_EQ(model->output_norm->shard, 2);
}

TEST(Footprint, AddsUpToTheTensorsOfTheFile) {
  const auto model =
      DescribeOrDie({.architecture = "llama", .type = TensorType::kQ8_0, .tied = false, .rope_factors = true});
  const auto parts = PartsOf(*model, KvType::kF16, /*bf16_dot=*/false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const double shared = static_cast<double>(model->rope_freqs->bytes);
  double sum = static_cast<double>(model->token_embd->bytes) + parts->head.bytes_kept + shared;
  for (const PartWork& layer : parts->layers) sum += layer.bytes_kept;
  double file = 0;
  for (const GgufTensor& tensor : model->file->tensors()) file += static_cast<double>(tensor.bytes);
  EXPECT_EQ(sum, file);
  EXPECT_EQ(parts->layers.size(), 4u);
  EXPECT_EQ(model->token_embd->bytes, 320u * 68);
  EXPECT_EQ(static_cast<double>(StageWeightBytes(*model, 0, 4, true, true)), file);
  EXPECT_EQ(static_cast<double>(StageWeightBytes(*model, 1, 3, false, false)),
            parts->layers[1].bytes_kept + parts->layers[2].bytes_kept + shared);
}

TEST(Footprint, ATiedMatrixIsHeldTwiceOnTwoStagesAndOnceOnOne) {
  const auto model = DescribeOrDie({.tied = true});
  EXPECT_TRUE(model->tied());
  const uint64_t whole = StageWeightBytes(*model, 0, 4, true, true);
  const uint64_t split = StageWeightBytes(*model, 0, 2, true, false) + StageWeightBytes(*model, 2, 4, false, true);
  EXPECT_EQ(split - whole, model->token_embd->bytes);
}

TEST(WrongTensor, AnEmbeddingThatDisagreesWithTheKeysIsRefused) {
  GgufWriter rows = TinyModel({});
  rows.SetTensor("token_embd.weight", {64, 300}, TensorType::kF32, std::vector<float>(64 * 300));
  EXPECT_THAT(Refusal(rows), HasSubstr("key 'qwen3.vocab_size' is 320, but tensor 'token_embd.weight' has 300 rows"));
  GgufWriter cols = TinyModel({});
  cols.SetTensor("token_embd.weight", {32, 320}, TensorType::kF32, std::vector<float>(32 * 320));
  EXPECT_THAT(Refusal(cols), HasSubstr("tensor 'token_embd.weight' has shape [32, 320], expected [64, 320]"));
}

TEST(WrongTensor, AnUnsupportedTypeIsRefusedWithTheListOfSupportedOnes) {
  GgufWriter writer = TinyModel({});
  writer.SetTensor("blk.0.ffn_up.weight", {64, 96}, 40, std::string(64 / 64 * 36 * 96, '\0'));
  EXPECT_THAT(Refusal(writer, absl::StatusCode::kUnimplemented),
              HasSubstr("'blk.0.ffn_up.weight' has type NVFP4; supported types are F32, F16, BF16, Q8_0"));
}

TEST(WrongTensor, ATensorThatNothingUsesIsRefusedUnlessItIsKnownToBeIdle) {
  GgufWriter idle = TinyModel({});
  idle.SetTensor("blk.0.attn_rot_embd.weight", {16}, TensorType::kF32, std::vector<float>(16));
  EXPECT_TRUE(Describe(idle).ok());
  GgufWriter factors = TinyModel({.rope_factors = true});  // qwen3: nobody divides its frequencies
  EXPECT_THAT(Refusal(factors, absl::StatusCode::kUnimplemented), HasSubstr("'rope_freqs.weight' is not part of"));
  GgufWriter writer = TinyModel({});
  writer.SetTensor("blk.0.post_attention_norm.weight", {64}, TensorType::kF32, std::vector<float>(64));
  EXPECT_THAT(Refusal(writer, absl::StatusCode::kUnimplemented),
              HasSubstr("'blk.0.post_attention_norm.weight' is not part of"));
  GgufWriter extra_layer = TinyModel({.layers = 3});
  extra_layer.Set("qwen3.block_count", uint32_t{2});
  EXPECT_THAT(Refusal(extra_layer, absl::StatusCode::kUnimplemented), HasSubstr("qwen3 model of 2 layers"));
}

TEST(WrongVocabulary, MoreTokensThanRowsAreRefused) {
  GgufWriter writer = TinyModel({});
  writer.Set("tokenizer.ggml.tokens", std::vector<std::string>(321, "x"));
  EXPECT_THAT(Refusal(writer),
              HasSubstr("key 'tokenizer.ggml.tokens' has 321 tokens, but tensor 'token_embd.weight' has 320 rows"));
}

TEST(WrongVocabulary, SpecialTokensOutsideTheVocabularyAreRefused) {
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown"}) {
    GgufWriter writer = TinyModel({});
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    writer.Set(key, uint32_t{320});
    EXPECT_THAT(Refusal(writer), HasSubstr(absl::StrCat("key '", key, "' is 320, expected 0 to 319")));
  }
}

TEST(WrongVocabulary, APaddingTokenThatIsNoneIsNotAsked) {
  GgufWriter writer = TinyModel({});
  writer.Set("tokenizer.ggml.padding_token_id", uint32_t{0xffffffff});
  EXPECT_TRUE(Describe(writer).ok());
}

TEST(HostileModel, FlippedHeaderBytesNeverYieldAnInconsistentModel) {
  const TempDir dir;
  const std::string path =
      testing::WriteTinyModel(dir.File("m.gguf"), {.layers = 1, .hidden = 32, .heads = 2, .ffn = 32, .vocab = 260});
  const std::string whole = testing::ReadFileOrDie(path);
  const uint64_t header_bytes = (*GgufFile::Open(path))->tensors()[0].file_offset;
  FILE* file = fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  int refused = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    const uint64_t at = MixBits(round + 1) % header_bytes;
    const auto put = [&](char byte) {
      ASSERT_EQ(fseek(file, static_cast<long>(at), SEEK_SET), 0);
      ASSERT_EQ(fputc(byte, file), static_cast<unsigned char>(byte));
      ASSERT_EQ(fflush(file), 0);
    };
    put(static_cast<char>(whole[at] ^ static_cast<char>(1 + MixBits(round + 77) % 255)));
    const auto model = OpenModel(path);
    if (!model.ok()) {
      ++refused;
    } else {
      const HyperParameters& hyper = (*model)->hyper;
      ASSERT_EQ((*model)->token_embd->bytes,
                RowBytes(TensorType::kF32, hyper.hidden) * static_cast<size_t>(hyper.vocab));
      ASSERT_EQ((*model)->layers.size(), static_cast<size_t>(hyper.layer_count()));
      for (const LayerSpec& layer : hyper.layers) ASSERT_EQ(layer.attention.heads % layer.attention.kv_heads, 0);
    }
    put(whole[at]);
  }
  fclose(file);
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 2000);
}

// The names in the first column of the table with that heading.
std::vector<std::string> FirstColumn(const std::string& heading) {
  std::ifstream file(testing::SourcePath("deploy/docs/models.md"));
  std::vector<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "| " + heading + " |")) inside = true;
    if (inside && line.empty()) break;
    if (!inside || absl::StartsWith(line, "|--") || absl::StartsWith(line, "| " + heading)) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    for (const absl::string_view name : absl::StrSplit(absl::StripPrefix(cells[0], "| "), ", ")) {
      names.emplace_back(name);
    }
  }
  return names;
}

TEST(Inventory, OfTheDocumentsNamesEveryArchitectureAndNoOther) {
  const std::vector<std::string> supported = absl::StrSplit(SupportedArchitectures(), ", ");
  EXPECT_THAT(FirstColumn("architecture"), ::testing::UnorderedElementsAreArray(supported));
}

std::shared_ptr<const ModelDescription> Model(const std::string& name) { return OpenModel("dummy://" + name).value(); }

ModelParts Parts(const std::string& name, bool bf16_dot = false) {
  return PartsOf(*Model(name), KvType::kF16, bf16_dot).value();
}

TEST(PartWork, CountsTheMatricesOfALayerAndOfTheHead) {
  // Hidden 1024, 16 heads and 8 KV heads of 128, FFN 3072, vocabulary 151936.
  const auto parts = Parts("qwen3-0.6b/q8_0");
  ASSERT_EQ(parts.layers.size(), 28u);
  EXPECT_EQ(parts.hidden, 1024);
  const double matrices = 1024.0 * (2048 + 1024 + 1024) + 2048.0 * 1024 + 3 * 1024.0 * 3072;
  for (const PartWork& layer : parts.layers) {
    EXPECT_DOUBLE_EQ(layer.int8_ops, 2 * matrices);
    EXPECT_DOUBLE_EQ(layer.bf16_ops, 0);
    EXPECT_DOUBLE_EQ(layer.f32_ops, 0);
    EXPECT_DOUBLE_EQ(layer.attention_ops, 4 * 2048);
    EXPECT_DOUBLE_EQ(layer.kv_token_bytes, 2 * 1024 * 2);
  }
  EXPECT_DOUBLE_EQ(parts.head.int8_ops, 2 * 1024.0 * 151936);
  EXPECT_DOUBLE_EQ(parts.head.kv_token_bytes, 0);
}

TEST(PartWork, KeepsTheBytesThatTheFileHas) {
  const auto parts = Parts("qwen3-8b/q4_k_m");  // layers of several types
  const auto model = Model("qwen3-8b/q4_k_m");
  ASSERT_EQ(parts.layers.size(), model->layers.size());
  for (size_t i = 0; i < model->layers.size(); ++i) {
    double bytes = 0;
    for (const GgufTensor* tensor : model->layers[i].All()) bytes += static_cast<double>(tensor->bytes);
    EXPECT_DOUBLE_EQ(parts.layers[i].bytes_kept, bytes);
    EXPECT_DOUBLE_EQ(parts.layers[i].BytesTouched(1), bytes);
    EXPECT_DOUBLE_EQ(parts.layers[i].BytesTouched(512), bytes);
    EXPECT_DOUBLE_EQ(parts.layers[i].BytesTouched(0), 0);
  }
  EXPECT_DOUBLE_EQ(parts.head.bytes_kept, static_cast<double>(model->output_norm->bytes + model->output->bytes));
}

TEST(PartWork, TheInstructionSetDecidesHowBf16IsMultiplied) {
  const PartWork with = Parts("tiny/bf16", true).layers[0], without = Parts("tiny/bf16").layers[0];
  EXPECT_GT(with.bf16_ops, 0);
  EXPECT_DOUBLE_EQ(with.f32_ops, 0);
  EXPECT_DOUBLE_EQ(without.bf16_ops, 0);
  EXPECT_GT(without.f32_ops, 0);
}

// Distinct experts that B rows choose, over the k of one row.
TEST(PartWork, ReadsOfExpertsWhatSomeRowChooses) {
  const struct {
    double experts, used;
    double times[7];  // what one row reads, of B = 2, 4, .. 128
  } cases[] = {
      {128, 8, {1.9, 3.6, 6.5, 10.3, 14.0, 15.7, 16.0}}, {160, 8, {2.0, 3.7, 6.7, 11.2, 16.1, 19.2, 20.0}},
      {256, 8, {2.0, 3.8, 7.2, 12.7, 20.4, 27.8, 31.5}}, {128, 4, {2.0, 3.8, 7.2, 12.7, 20.4, 27.8, 31.5}},
      {384, 8, {2.0, 3.9, 7.4, 13.7, 23.5, 35.5, 44.8}},
  };
  for (const auto& [experts, used, times] : cases) {
    const PartWork layer = {.bytes_kept = 1e9, .expert_bytes = 1e9, .expert_share = used / experts};
    EXPECT_NEAR(layer.BytesTouched(1), 1e9 * used / experts, 1);
    double rows = 2;
    for (const double expected : times) {
      EXPECT_NEAR(layer.BytesTouched(rows) / layer.BytesTouched(1), expected, 0.051) << experts << ' ' << rows;
      rows *= 2;
    }
    EXPECT_NEAR(layer.BytesTouched(1e6), 1e9, 1);
    EXPECT_DOUBLE_EQ(layer.BytesTouched(0), 0);
  }
}

TEST(PartWork, ARowGoesThroughTheExpertsThatItChoosesAndReadsThoseOfOthersNot) {
  // Hidden 2048, 32 heads and 4 KV heads of 128, 128 experts of 768 of which a row uses 8.
  const auto parts = Parts("qwen3-30b-a3b:layers=2/q8_0");
  const PartWork& layer = parts.layers[1];
  const double attention = 2048.0 * (4096 + 512 + 512) + 4096.0 * 2048, expert = 3 * 2048.0 * 768;
  EXPECT_DOUBLE_EQ(layer.int8_ops, 2 * (attention + 8 * expert));
  EXPECT_DOUBLE_EQ(layer.f32_ops, 2 * 2048.0 * 128);  // the router
  EXPECT_DOUBLE_EQ(layer.expert_bytes, 128 * expert / 32 * 34);
  EXPECT_DOUBLE_EQ(layer.expert_share, 8.0 / 128);
  const double rest = attention / 32 * 34 + 4 * (2 * 2048 + 2 * 128 + 2048.0 * 128);  // norms and router
  EXPECT_DOUBLE_EQ(layer.bytes_kept, rest + layer.expert_bytes);
  EXPECT_NEAR(layer.BytesTouched(1), rest + layer.expert_bytes / 16, 1);
  EXPECT_NEAR(layer.BytesTouched(1e6), layer.bytes_kept, 1);
}

TEST(PartWork, DenseLeadsAndSharedExpertsAreReadByEveryRow) {
  const auto parts = Parts("glm-4.5:layers=4/q8_0");  // three dense layers lead
  const PartWork &lead = parts.layers[2], &layer = parts.layers[3];
  EXPECT_EQ(lead.expert_bytes, 0);
  EXPECT_DOUBLE_EQ(lead.BytesTouched(1), lead.bytes_kept);
  const double expert = 3 * 5120.0 * 1536 / 32 * 34;
  EXPECT_DOUBLE_EQ(layer.expert_bytes, 160 * expert);
  EXPECT_GT(layer.BytesTouched(1) - 8 * expert, expert);  // the shared one, and attention
}

TEST(PartWork, OnlyEverySecondLayerOfGptOssSeesAll) {
  const auto parts = Parts("gpt-oss-20b:layers=4/mxfp4");
  for (size_t layer = 0; layer < 4; ++layer) EXPECT_EQ(parts.layers[layer].window, layer % 2 == 0 ? 128 : 0);
  EXPECT_EQ(parts.window, 128);
  EXPECT_EQ(Parts("qwen3-0.6b/q8_0").window, 0);
}

TEST(PartWork, ALatentRowIsReadOnceForKeysAndValues) {
  // 128 heads; rows of 512 + 64.
  const auto parts = Parts("deepseek-v3:layers=4/q8_0");
  EXPECT_DOUBLE_EQ(parts.layers[3].kv_token_bytes, 576 * 2);
  EXPECT_DOUBLE_EQ(parts.layers[3].attention_ops, 2.0 * 128 * (2 * 512 + 64));
}

TEST(PartWork, OfAWholeModelTheShareOfOneRowIsWhatItsNameSays) {
  // Billions of parameters that a token uses, by what one row's step touches of 16 bits a weight; embeddings aside.
  const struct {
    const char* shape;
    double active;
  } cases[] = {{"qwen3-30b-a3b", 3}, {"qwen3-235b-a22b", 22}, {"gpt-oss-120b", 5.1}, {"glm-4.5", 32}, {"kimi-k2", 32}};
  for (const auto& [shape, active] : cases) {
    EXPECT_NEAR(Parts(std::string(shape) + "/bf16", true).Bytes().BytesTouched(1) / 2e9, active, 0.06 * active)
        << shape;
  }
}

TEST(LayerToTime, IsTheFirstOfExpertsThatSeesAll) {
  EXPECT_EQ(LayerToTime(Model("qwen3-0.6b/q8_0")->hyper), 0);
  EXPECT_EQ(LayerToTime(Model("glm-4.5/q8_0")->hyper), 3);
  EXPECT_EQ(LayerToTime(Model("gpt-oss-20b/mxfp4")->hyper), 1);
  EXPECT_EQ(LayerToTime(Model("gemma-3-4b/q8_0")->hyper), 5);
}

}  // namespace
}  // namespace stagecoach
