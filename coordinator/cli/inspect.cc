// inspect: what a GGUF file holds, whether or not it can run here.

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/model/footprint.h"
#include "common/quant/tensor_type.h"
#include "coordinator/cli/chat/chat_screen.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/tensor_check.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/text/chat/chat_template.h"
#include "coordinator/text/jinja/jinja_template.h"

namespace stagecoach {
namespace {

struct TypeUse {
  int64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

std::string TypeName(uint32_t id) {
  const TensorTypeInfo* info = FindTensorType(id);
  return info != nullptr ? std::string(info->name) : absl::StrCat("type ", id);
}

bool TypeSupported(uint32_t id) {
  const TensorTypeInfo* info = FindTensorType(id);
  return info != nullptr && info->supported;
}

double BitsPerWeight(uint64_t bytes, uint64_t elements) {
  return elements == 0 ? 0 : static_cast<double>(bytes) * 8 / static_cast<double>(elements);
}

// A number of the file's own architecture, "qwen3.block_count"; null when it is not there.
Json ArchitectureNumber(const GgufMetadata& metadata, const std::string& architecture, const char* name) {
  absl::StatusOr<int64_t> value = metadata.GetInt(absl::StrCat(architecture, ".", name));
  return value.ok() ? Json(*value) : Json(nullptr);
}

Json StringOrNull(const GgufMetadata& metadata, const char* key) {
  absl::StatusOr<std::string> value = metadata.GetString(key);
  return value.ok() ? Json(*value) : Json(nullptr);
}

// The width of the FFN; one for every layer where they differ.
Json FfnWidthsJson(const HyperParameters& hyper) {
  Json widths = Json::array();
  bool equal = true;
  for (const LayerSpec& layer : hyper.layers) {
    widths.push_back(layer.ffn.width);
    equal = equal && layer.ffn == hyper.layers[0].ffn;
  }
  return equal ? widths[0] : widths;
}

int64_t KvBytesPerToken(const LayerSpec& layer) { return KvBytesPerTokenLayer(layer.attention, KvType::kF16).value(); }

int64_t KvBytesPerToken(const HyperParameters& hyper) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : hyper.layers) bytes += KvBytesPerToken(layer);
  return bytes;
}

// Of layers that keep a state of a size that is the same for any length; null where there are none.
Json StatesJson(const HyperParameters& hyper) {
  if (!hyper.recurrent()) return nullptr;
  const auto layers =
      std::count_if(hyper.layers.begin(), hyper.layers.end(), [](const LayerSpec& layer) { return layer.recurrent(); });
  return {{"layers", layers}, {"bytes_per_sequence", StateBytes(hyper, 0, hyper.layer_count())}};
}

// The attention of layers that see a window only; null where there are none.
Json WindowsJson(const HyperParameters& hyper) {
  Json windows;
  for (const LayerSpec& layer : hyper.layers) {
    if (layer.attention.kind != AttentionKind::kWindowed) continue;
    windows["positions"] = layer.attention.window;
    windows["layers"] = windows.value("layers", 0) + 1;
    windows["kv_bytes_per_token_f16"] = windows.value("kv_bytes_per_token_f16", int64_t{0}) + KvBytesPerToken(layer);
  }
  return windows;
}

// What the layers that have experts have of them; null where there are none.
Json ExpertsJson(const HyperParameters& hyper) {
  Json experts;
  for (const LayerSpec& layer : hyper.layers) {
    if (layer.ffn.kind != FfnKind::kExperts) continue;
    experts["count"] = layer.ffn.experts;
    experts["used"] = layer.ffn.experts_used;
    experts["width"] = layer.ffn.width;
    experts["shared_width"] = layer.ffn.shared_width;
    experts["layers"] = experts.value("layers", 0) + 1;
  }
  return experts;
}

// A model may be measured without one, but gives no text.
bool HasTokenizer(const GgufMetadata& metadata) {
  const absl::StatusOr<std::string> model = metadata.GetString("tokenizer.ggml.model");
  return model.ok() && *model != "no_vocab";
}

// Why the file's chat template, or its template for tools, cannot be used; empty if it can be, or there is none.
std::string TemplateFault(const GgufMetadata& metadata) {
  for (const bool with_tools : {false, true}) {
    const absl::StatusOr<ChatTemplateSource> source = ChooseChatTemplate({}, metadata, with_tools);
    if (absl::IsNotFound(source.status())) continue;
    const absl::Status status = source.ok() ? JinjaTemplate::Parse(source->text).status() : source.status();
    if (!status.ok()) return absl::StrCat(with_tools ? "for tools: " : "", status.message());
  }
  return "";
}

Json TokenizerJson(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  Json json;
  json["model"] = StringOrNull(metadata, "tokenizer.ggml.model");
  json["pre"] = StringOrNull(metadata, "tokenizer.ggml.pre");
  const GgufValue* tokens = metadata.Find("tokenizer.ggml.tokens");
  const GgufArray* array = tokens != nullptr ? std::get_if<GgufArray>(tokens) : nullptr;
  json["tokens"] = array != nullptr ? Json(array->size()) : Json(nullptr);
  json["chat_template"] = metadata.Has("tokenizer.chat_template");
  if (std::string fault = TemplateFault(metadata); !fault.empty()) {
    json["chat_template_unusable_because"] = std::move(fault);
  }
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizer(file);
  json["supported"] = tokenizer.ok();
  if (tokenizer.ok()) {
    json["end_of_generation"] = (*tokenizer)->end_of_generation();
  } else {
    json["unsupported_because"] = std::string(tokenizer.status().message());
  }
  return json;
}

Json SamplingJson(const GgufMetadata& metadata) {
  Json json = Json::object();
  VisitSampling([&](const SamplingSetting& setting, auto...) {
    if (setting.file_key == nullptr) return;
    const std::string key = absl::StrCat("general.sampling.", setting.file_key);
    if (absl::StatusOr<double> number = metadata.GetFloat(key); number.ok()) {
      json[setting.file_key] = FloatJson(static_cast<float>(*number));
    } else if (absl::StatusOr<int64_t> integer = metadata.GetInt(key); integer.ok()) {
      json[setting.file_key] = *integer;
    }
  });
  return json;
}

Json TypesJson(const GgufFile& file) {
  std::map<uint32_t, TypeUse> uses;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeUse& use = uses[tensor.type_id];
    ++use.tensors;
    use.elements += tensor.elements();
    use.bytes += tensor.bytes;
  }
  Json list = Json::array();
  for (const auto& [id, use] : uses) {
    list.push_back({{"type", TypeName(id)},
                    {"tensors", use.tensors},
                    {"elements", use.elements},
                    {"bytes", use.bytes},
                    {"bits_per_weight", BitsPerWeight(use.bytes, use.elements)},
                    {"supported", TypeSupported(id)}});
  }
  return list;
}

Json TensorsJson(const GgufFile& file) {
  Json list = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    list.push_back({{"name", tensor.name},
                    {"type", TypeName(tensor.type_id)},
                    {"dims", tensor.dims},
                    {"bytes", tensor.bytes},
                    {"shard", tensor.shard}});
  }
  return list;
}

// Adds what reading all of them found to their list.
void AddChecks(const GgufFile& file, const std::vector<CheckedTensor>& checked, Json* json) {
  (*json)["damaged_tensors"] = CountDamaged(checked);
  for (size_t i = 0; i < checked.size(); ++i) {
    Json& tensor = (*json)["tensor_list"][i];
    tensor["crc32c"] = absl::StrFormat("%08x", checked[i].crc32c);
    const std::optional<TensorDamage>& damage = checked[i].damage;
    tensor["damage"] = damage.has_value() ? Json(DescribeDamage(file, file.tensors()[i], *damage)) : Json(nullptr);
  }
}

// Everything there is to say, as JSON; the text is made from it.
Json Describe(const std::shared_ptr<const GgufFile>& file, bool with_tensors) {
  const GgufMetadata& metadata = file->metadata();
  const std::string architecture = metadata.GetStringOr("general.architecture", "").value_or("");
  uint64_t parameters = 0, tensor_bytes = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    parameters += tensor.elements();
    tensor_bytes += tensor.bytes;
  }
  Json json;
  json["path"] = file->path();
  json["gguf_version"] = file->version();
  json["shards"] = file->shard_paths().size();
  json["file_bytes"] = TotalBytes(file->fingerprints());
  json["architecture"] = architecture.empty() ? Json(nullptr) : Json(architecture);
  json["name"] = StringOrNull(metadata, "general.name");
  json["parameters"] = parameters;
  json["tensors"] = file->tensors().size();
  json["tensor_bytes"] = tensor_bytes;
  json["bits_per_weight"] = BitsPerWeight(tensor_bytes, parameters);
  json["layers"] = ArchitectureNumber(metadata, architecture, "block_count");
  json["context"] = ArchitectureNumber(metadata, architecture, "context_length");
  json["hidden"] = ArchitectureNumber(metadata, architecture, "embedding_length");
  json["ffn"] = ArchitectureNumber(metadata, architecture, "feed_forward_length");
  json["heads"] = ArchitectureNumber(metadata, architecture, "attention.head_count");
  json["kv_heads"] = ArchitectureNumber(metadata, architecture, "attention.head_count_kv");
  const absl::StatusOr<std::shared_ptr<const ModelDescription>> model = DescribeModel(file);
  if (model.ok()) {
    const HyperParameters& hyper = (*model)->hyper;
    const AttentionSpec& attention = hyper.first_attention();
    // As they are used: the keys may stand elsewhere, or hold a value for every layer.
    json["layers"] = hyper.layer_count();
    json["context"] = hyper.context;
    json["hidden"] = hyper.hidden;
    json["ffn"] = FfnWidthsJson(hyper);
    json["heads"] = attention.heads;
    json["kv_heads"] = attention.kv_heads;
    json["head_dim"] = attention.head_dim;
    json["vocabulary"] = hyper.vocab;
    json["tied_embedding"] = (*model)->tied();
    json["kv_bytes_per_token_f16"] = KvBytesPerToken(hyper);
    json["windows"] = WindowsJson(hyper);
    json["states"] = StatesJson(hyper);
    json["experts"] = ExpertsJson(hyper);
    json["blocks_left_out"] = hyper.skipped_layers;
  }
  json["types"] = TypesJson(*file);
  json["tokenizer"] = TokenizerJson(*file);
  json["sampling"] = SamplingJson(metadata);
  const bool understood = json["tokenizer"]["supported"].get<bool>() || !HasTokenizer(metadata);
  json["supported"] = model.ok() && understood;
  if (!model.ok()) {
    json["unsupported_because"] = std::string(model.status().message());
  } else if (!understood) {
    json["unsupported_because"] = json["tokenizer"]["unsupported_because"];
  }
  if (with_tensors) json["tensor_list"] = TensorsJson(*file);
  return json;
}

// On one line: a stranger's file shows nothing that looks like what we say of it.
std::string Shown(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return absl::StrReplaceAll(ForTerminal(value.get<std::string>()), {{"\n", "␊"}});
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return CompactJson(value);
}

std::string TokenizerText(const Json& tokenizer) {
  std::string text = absl::StrFormat("tokenizer        %s, pre-tokenizer %s, %s tokens\n", Shown(tokenizer["model"]),
                                     Shown(tokenizer["pre"]), Shown(tokenizer["tokens"]));
  if (!tokenizer["supported"].get<bool>()) {
    absl::StrAppend(&text, "                 unsupported: ", Shown(tokenizer["unsupported_because"]), "\n");
  }
  absl::StrAppend(&text, "chat template    ", Shown(tokenizer["chat_template"]));
  if (const auto fault = tokenizer.find("chat_template_unusable_because"); fault != tokenizer.end()) {
    absl::StrAppend(&text, ", but it cannot be used: ", Shown(*fault));
  }
  absl::StrAppend(&text, "\n");
  return text;
}

std::string ExpertsText(const Json& experts) {
  const std::string shared =
      experts["shared_width"] == 0 ? "" : absl::StrCat(", shared ", Shown(experts["shared_width"]), " wide");
  return absl::StrFormat("%s, of which a token uses %s, each %s wide%s, in %s layers", Shown(experts["count"]),
                         Shown(experts["used"]), Shown(experts["width"]), shared, Shown(experts["layers"]));
}

std::string Text(const Json& json) {
  std::string text;
  const auto line = [&text](absl::string_view label, absl::string_view value) {
    absl::StrAppendFormat(&text, "%-16s %s\n", label, value);
  };
  line("file", Shown(json["path"]));
  line("format",
       absl::StrFormat("GGUF version %s, %s file%s, %.1f MiB", Shown(json["gguf_version"]), Shown(json["shards"]),
                       json["shards"] == 1 ? "" : "s", json["file_bytes"].get<double>() / 1048576));
  line("architecture", Shown(json["architecture"]));
  line("name", Shown(json["name"]));
  line("parameters", absl::StrFormat("%s in %s tensors, %.1f MiB, %.2f bits per weight", Shown(json["parameters"]),
                                     Shown(json["tensors"]), json["tensor_bytes"].get<double>() / 1048576,
                                     json["bits_per_weight"].get<double>()));
  line("layers", Shown(json["layers"]));
  line("context", Shown(json["context"]));
  line("hidden", absl::StrFormat("%s, feed-forward %s", Shown(json["hidden"]), Shown(json["ffn"])));
  line("heads", absl::StrFormat("%s, of them KV %s", Shown(json["heads"]), Shown(json["kv_heads"])));
  if (json.contains("vocabulary")) {
    line("vocabulary", absl::StrFormat("%s%s", Shown(json["vocabulary"]),
                                       json["tied_embedding"].get<bool>() ? ", embedding also used as output" : ""));
    line("KV cache", absl::StrFormat("%s bytes a token in f16", Shown(json["kv_bytes_per_token_f16"])));
    if (const Json& windows = json["windows"]; !windows.is_null()) {
      line("windows",
           absl::StrFormat("of %s positions in %s layers, which keep %s of these bytes for no more tokens than that",
                           Shown(windows["positions"]), Shown(windows["layers"]),
                           Shown(windows["kv_bytes_per_token_f16"])));
    }
    if (const Json& states = json["states"]; !states.is_null()) {
      line("states", absl::StrFormat("%.1f MiB a sequence of any length, of %s layers, which have no KV",
                                     states["bytes_per_sequence"].get<double>() / 1048576, Shown(states["layers"])));
    }
    if (const Json& experts = json["experts"]; !experts.is_null()) {
      line("experts", ExpertsText(experts));
    }
    if (json["blocks_left_out"] != 0) {
      line("left out", absl::StrCat("blocks that only draft: ", Shown(json["blocks_left_out"])));
    }
  }
  text += TokenizerText(json["tokenizer"]);
  if (!json["sampling"].empty()) line("sampling", CompactJson(json["sampling"]));
  for (const Json& type : json["types"]) {
    line("type",
         absl::StrFormat("%-8s %6s tensors %10.1f MiB %6.2f bits per weight%s", Shown(type["type"]),
                         Shown(type["tensors"]), type["bytes"].get<double>() / 1048576,
                         type["bits_per_weight"].get<double>(), type["supported"].get<bool>() ? "" : "  unsupported"));
  }
  line("runs here", json["supported"].get<bool>() ? "yes" : absl::StrCat("no: ", Shown(json["unsupported_because"])));
  if (!json.contains("tensor_list")) return text;
  for (const Json& tensor : json["tensor_list"]) {
    absl::StrAppendFormat(&text, "%-40s %-8s %-24s %12s bytes%s\n", Shown(tensor["name"]), Shown(tensor["type"]),
                          CompactJson(tensor["dims"]), Shown(tensor["bytes"]),
                          tensor.contains("crc32c") ? absl::StrCat("  crc32c ", Shown(tensor["crc32c"])) : "");
  }
  if (!json.contains("damaged_tensors")) return text;
  for (const Json& tensor : json["tensor_list"]) {
    if (!tensor["damage"].is_null()) line("damaged", Shown(tensor["damage"]));
  }
  line("checked", absl::StrCat("every tensor was read, damaged are ", Shown(json["damaged_tensors"])));
  return text;
}

class InspectVerb : public Verb {
 public:
  InspectVerb() : Verb("inspect", "describe a model file", "coordinator inspect -m model.gguf --tensors") {}

  void AddOptions(CLI::App* app) override {
    AddModelFileOptions(app, &options_);
    AddFlag(app, "--json", &json_, "one JSON object");
    AddFlag(app, "--tensors", &tensors_, "list every tensor; dims begin with the contiguous one");
    AddFlag(app, "--check", &check_, "read every tensor: the same list with checksums (CRC-32C), and what is damaged");
  }

  absl::Status Run(const RunContext&) override {
    ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, OpenGguf(options_.model, options_.q2_layout));
    std::vector<CheckedTensor> checked;
    if (check_) {
      absl::StatusOr<std::vector<CheckedTensor>> found = CheckTensors(*file);
      if (!found.ok()) return WithExitCode(found.status(), ExitCode::kInputFile);
      checked = *std::move(found);
    }
    const std::shared_ptr<const GgufFile> shared = std::move(file);
    Json json = Describe(shared, tensors_ || check_);
    if (check_) AddChecks(*shared, checked, &json);
    RETURN_IF_ERROR(WriteStdout(json_ ? PrettyJson(json) : Text(json)));
    if (CountDamaged(checked) == 0) return absl::OkStatus();
    return InputFileError(absl::StrCat("'", shared->path(), "': of ", checked.size(), " tensors ",
                                       CountDamaged(checked), " are damaged; copy or download the file again"));
  }

 private:
  ClusterOptions options_;
  bool json_ = false;
  bool tensors_ = false;
  bool check_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeInspectVerb() { return std::make_unique<InspectVerb>(); }

}  // namespace stagecoach
