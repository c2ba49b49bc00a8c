#include "common/obs/step_log_reader.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/line_file.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kMostStepLineBytes = 16 << 20;  // micro-batches have thousands of slices at most
constexpr IntegerRange kWholeNumber = {0, std::numeric_limits<int64_t>::max()};
constexpr IntegerRange kSmallNumber = {0, std::numeric_limits<int32_t>::max()};

// The fields of one object; the first error stays, and after it values are 0.
class LineFields {
 public:
  LineFields(const Json& object, std::string path, absl::Status* status)
      : object_(object), path_(std::move(path)), status_(*status) {
    if (!object.is_object()) Fail("", "an object", object.type_name());
  }

  bool Has(const char* name) const { return object_.is_object() && object_.contains(name); }

  int64_t Integer(const char* name, IntegerRange range = kWholeNumber) {
    const Json* value = Find(name);
    if (value == nullptr) return 0;
    const bool integer = value->is_number_integer() &&
                         !(value->is_number_unsigned() &&
                           value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (integer && Contains(range, value->get<int64_t>())) return value->get<int64_t>();
    Fail(name, absl::StrCat("an integer, ", Expected(range)), value->is_number() ? value->dump() : value->type_name());
    return 0;
  }
  int32_t Int(const char* name) { return static_cast<int32_t>(Integer(name, kSmallNumber)); }
  double Number(const char* name, NumberRange range) {
    const Json* value = Find(name);
    if (value == nullptr) return 0;
    if (value->is_number() && Contains(range, value->get<double>())) return value->get<double>();
    Fail(name, absl::StrCat("a number, ", Expected(range)), value->is_number() ? value->dump() : value->type_name());
    return 0;
  }
  bool Bool(const char* name) {
    const Json* value = Find(name);
    if (value != nullptr && !value->is_boolean()) Fail(name, "true or false", value->type_name());
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }
  std::string Text(const char* name) {
    const Json* value = Find(name);
    if (value != nullptr && !value->is_string()) Fail(name, "a text", value->type_name());
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  const Json& List(const char* name) {
    static const Json kNone = Json::array();
    const Json* value = Find(name);
    if (value == nullptr) return kNone;
    if (value->is_array()) return *value;
    Fail(name, "a list", value->type_name());
    return kNone;
  }
  // Calls `read` with the fields of each object of a list.
  template <typename Read>
  void Objects(const char* name, Read read) {
    const Json& list = List(name);
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      LineFields fields(list[i], absl::StrCat(path_, name, "[", i, "]."), &status_);
      if (status_.ok()) read(&fields);
    }
  }

 private:
  const Json* Find(const char* name) {
    if (Has(name)) return &object_[name];
    if (object_.is_object()) Fail(name, "a value", "none");
    return nullptr;
  }
  void Fail(absl::string_view name, absl::string_view expected, absl::string_view found) {
    if (!status_.ok()) return;
    const std::string where = absl::StrCat(path_, name);
    status_ = absl::InvalidArgumentError(
        absl::StrCat(where.empty() ? "the line" : where, ": expected ", expected, ", found ", found));
  }

  const Json& object_;
  const std::string path_;
  absl::Status& status_;
};

RecordedJob ReadJob(LineFields* fields, absl::Status* status) {
  RecordedJob job;
  job.stages = fields->Int("stages");
  job.max_num_seqs = fields->Int("max_num_seqs");
  job.max_num_batched_tokens = fields->Int("max_num_batched_tokens");
  job.prefill_chunk = fields->Int("prefill_chunk");
  job.policy = fields->Text("policy");
  job.chunking = fields->Text("chunking");
  job.slo_itl_us = fields->Number("slo_itl_us", {0, 1e15});
  if (fields->Has("experts")) {
    job.experts = fields->Number("experts", {0, 1});
    job.experts_chosen = fields->Number("experts_chosen", {0, 1});
  }
  job.block_tokens = fields->Int("block_tokens");
  for (const Json& blocks : fields->List("group_blocks")) {
    const Json entry = {{"group_blocks", blocks}};
    job.group_blocks.push_back(LineFields(entry, "job.", status).Int("group_blocks"));
  }
  if (fields->Has("group_windows")) {
    for (const Json& window : fields->List("group_windows")) {
      const Json entry = {{"group_windows", window}};
      job.group_windows.push_back(LineFields(entry, "job.", status).Integer("group_windows"));
    }
  }
  job.context = fields->Integer("context");
  job.micro_batches = fields->Int("micro_batches");
  job.most_groups = fields->Int("most_groups");
  job.max_open_tokens = fields->Integer("max_open_tokens");
  if (fields->Has("prefix_caching")) job.prefix_caching = fields->Bool("prefix_caching");
  job.decode_groups = fields->Int("decode_groups");
  return job;
}

RecordedCommand ReadCommand(LineFields* fields, absl::Status* status) {
  RecordedCommand command;
  command.cancel = fields->Has("cancel");
  command.sequence = static_cast<SequenceId>(fields->Integer(command.cancel ? "cancel" : "add"));
  command.confirmed = static_cast<uint64_t>(fields->Integer("confirmed"));
  if (command.cancel) return command;
  command.prompt_tokens = fields->Integer("prompt_tokens");
  command.output_tokens = fields->Integer("output_tokens");
  command.max_new_tokens = fields->Integer("max_new_tokens");
  if (fields->Has("score_from")) command.score_from = fields->Integer("score_from");
  if (fields->Has("tenant")) command.tenant = static_cast<uint64_t>(fields->Integer("tenant"));
  if (fields->Has("weight")) command.weight = fields->Number("weight", {0, 1e9});
  if (fields->Has("priority_class")) command.priority_class = fields->Int("priority_class");
  if (fields->Has("blocks")) {
    for (const Json& hash : fields->List("blocks")) {
      const Json entry = {{"blocks", hash}};
      command.blocks.push_back(static_cast<uint64_t>(LineFields(entry, "commands.", status).Integer("blocks")));
    }
  }
  return command;
}

}  // namespace

absl::StatusOr<StepRecord> ParseStepLogLine(absl::string_view line) {
  const Json json = ReadJson(line);
  if (json.is_discarded()) return absl::InvalidArgumentError("expected a JSON object");
  absl::Status status;
  LineFields fields(json, "", &status);
  StepRecord record;
  record.number = static_cast<uint64_t>(fields.Integer("number"));
  fields.Objects("slices", [&](LineFields* slice) {
    record.slices.push_back({static_cast<SequenceId>(slice->Integer("sequence")), slice->Int("start"),
                             slice->Int("count"), slice->Bool("sample")});
  });
  record.submit_us = fields.Integer("submit_us");
  record.confirm_us = fields.Integer("confirm_us");
  fields.Objects("stages", [&](LineFields* stage) {
    StageTimes times;
    times.stage = stage->Int("stage");
    times.received_us = stage->Integer("received_us");
    times.start_us = stage->Integer("start_us");
    times.end_us = stage->Integer("end_us");
    record.times.push_back(times);
  });
  if (fields.Has("commands")) {
    fields.Objects("commands",
                   [&](LineFields* command) { record.inputs.commands.push_back(ReadCommand(command, &status)); });
  }
  if (fields.Has("blocks")) {
    fields.Objects("blocks", [&](LineFields* block) {
      record.inputs.blocks.push_back({static_cast<SequenceId>(block->Integer("sequence")), block->Integer("block"),
                                      static_cast<uint64_t>(block->Integer("hash"))});
    });
  }
  if (fields.Has("decode_groups")) record.inputs.decode_groups = fields.Int("decode_groups");
  if (fields.Has("job")) {
    LineFields job(json["job"], "job.", &status);
    if (status.ok()) record.inputs.job = ReadJob(&job, &status);
  }
  if (!status.ok()) return status;
  return record;
}

absl::StatusOr<std::vector<StepRecord>> ReadStepLog(const std::string& file) {
  LineFile in(file, kMostStepLineBytes);
  std::vector<StepRecord> records;
  while (true) {
    const absl::StatusOr<std::optional<absl::string_view>> line = in.Next();
    if (absl::IsInvalidArgument(line.status())) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", file, "': ", line.status().message(), " and none of a step log"));
    }
    RETURN_IF_ERROR(line.status());
    if (!line->has_value()) return records;
    if (absl::StripAsciiWhitespace(**line).empty()) continue;
    absl::StatusOr<StepRecord> record = ParseStepLogLine(**line);
    if (!record.ok() && !in.whole()) return records;
    if (!record.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", file, "', line ", in.number(), ": ", record.status().message()));
    }
    records.push_back(*std::move(record));
  }
}

}  // namespace stagecoach
