#include "common/wire/job_proto.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;

const FieldDescriptor* FieldOf(const JobSetting& setting) {
  const FieldDescriptor* field = pb::ConfigureJob::descriptor()->FindFieldByName(setting.name);
  CHECK(field != nullptr);
  return field;
}

// A choice has its own number and one more on the wire, where 0 is none.
template <typename Proto, typename Enum, size_t kCount>
Proto Encoded(const NamedValue<Enum> (&names)[kCount], Enum value) {
  CHECK_LT(static_cast<size_t>(value), std::size(names));
  return static_cast<Proto>(static_cast<int>(value) + 1);
}

template <typename Enum, size_t kCount, typename Proto>
absl::StatusOr<Enum> Decoded(const NamedValue<Enum> (&names)[kCount], const char* field, Proto proto) {
  const int number = static_cast<int>(proto);
  if (number >= 1 && number <= static_cast<int>(kCount)) return static_cast<Enum>(number - 1);
  return absl::InvalidArgumentError(
      absl::StrCat("`", field, "` is number ", number, ", expected one of ", NamesIn(names)));
}

// Into the fields of a job. A setting without a field is a fault of this program.
class JobWriter {
 public:
  explicit JobWriter(pb::ConfigureJob* job) : job_(job) {}

  void operator()(const JobSetting& setting, int64_t value, IntegerRange) {
    const FieldDescriptor* field = FieldOf(setting);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return Fields().SetInt32(job_, field, static_cast<int32_t>(value));
      case FieldDescriptor::CPPTYPE_UINT32: return Fields().SetUInt32(job_, field, static_cast<uint32_t>(value));
      default: return Fields().SetInt64(job_, field, value);
    }
  }
  void operator()(const JobSetting& setting, double value, NumberRange) {
    Fields().SetDouble(job_, FieldOf(setting), value);
  }
  void operator()(const JobSetting& setting, const std::vector<int64_t>& values, IntegerRange) {
    Fields().ClearField(job_, FieldOf(setting));
    for (const int64_t value : values) Fields().AddInt64(job_, FieldOf(setting), value);
  }
  void operator()(const JobSetting& setting, uint64_t value) { Fields().SetUInt64(job_, FieldOf(setting), value); }
  void operator()(const JobSetting& setting, bool value) { Fields().SetBool(job_, FieldOf(setting), value); }
  template <typename... Choices>
  void operator()(const JobSetting& setting, const std::string& value, const Choices&...) {
    Fields().SetString(job_, FieldOf(setting), value);
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, Enum value, const NamedValue<Enum> (&names)[kCount]) {
    const FieldDescriptor* field = FieldOf(setting);
    if constexpr (requires { stagecoach::ToProto(value); }) {
      Fields().SetEnumValue(job_, field, stagecoach::ToProto(value));
    } else {
      Fields().SetString(job_, field, NameOf(names, value));
    }
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, const std::optional<Enum>& value, const NamedValue<Enum> (&)[kCount]) {
    Fields().ClearField(job_, FieldOf(setting));
    if (value.has_value()) Fields().SetEnumValue(job_, FieldOf(setting), stagecoach::ToProto(*value));
  }
  void operator()(const JobSetting& setting, const EmulatedLink& link) {
    Fields().ClearField(job_, FieldOf(setting));
    if (link != EmulatedLink()) Fields().MutableMessage(job_, FieldOf(setting))->CopyFrom(stagecoach::ToProto(link));
  }

 private:
  const google::protobuf::Reflection& Fields() const { return *job_->GetReflection(); }
  pb::ConfigureJob* job_;
};

// From the fields of a job, until one is not as it should be.
class JobReader {
 public:
  explicit JobReader(const pb::ConfigureJob& job) : job_(job) {}

  void operator()(const JobSetting& setting, int64_t& value, IntegerRange range) {
    const FieldDescriptor* field = FieldOf(setting);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: value = Fields().GetInt32(job_, field); break;
      case FieldDescriptor::CPPTYPE_UINT32: value = Fields().GetUInt32(job_, field); break;
      default: value = Fields().GetInt64(job_, field);
    }
    const JobField checked = {setting.name, range};
    Keep(*setting.unset == '\0' ? CheckJobField(checked, value) : CheckJobFieldOrDefault(checked, value));
  }
  void operator()(const JobSetting& setting, double& value, NumberRange range) {
    value = Fields().GetDouble(job_, FieldOf(setting));
    const bool has_default = *setting.unset != '\0';
    if ((value == 0 && has_default) || Contains(range, value)) return;
    Keep(absl::InvalidArgumentError(absl::StrCat("`", setting.name, "` is ", value, " s, ", Expected(range),
                                                 has_default ? ", or 0 for the default" : "")));
  }
  void operator()(const JobSetting& setting, std::vector<int64_t>& values, IntegerRange range) {
    const FieldDescriptor* field = FieldOf(setting);
    values.clear();
    for (int i = 0; i < Fields().FieldSize(job_, field); ++i) {
      values.push_back(Fields().GetRepeatedInt64(job_, field, i));
      Keep(CheckJobField({setting.name, range}, values.back()));
    }
  }
  void operator()(const JobSetting& setting, uint64_t& value) { value = Fields().GetUInt64(job_, FieldOf(setting)); }
  void operator()(const JobSetting& setting, bool& value) { value = Fields().GetBool(job_, FieldOf(setting)); }
  // What is none of the choices, the opening of the file says.
  template <typename... Choices>
  void operator()(const JobSetting& setting, std::string& value, const Choices&...) {
    value = Fields().GetString(job_, FieldOf(setting));
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, Enum& value, const NamedValue<Enum> (&names)[kCount]) {
    const FieldDescriptor* field = FieldOf(setting);
    const absl::StatusOr<Enum> decoded = [&] {
      if constexpr (requires { stagecoach::ToProto(value); }) {
        using Proto = decltype(stagecoach::ToProto(value));
        return stagecoach::FromProto(static_cast<Proto>(Fields().GetEnumValue(job_, field)));
      } else {
        return ParseName(names, setting.name, Fields().GetString(job_, field));
      }
    }();
    Keep(decoded.status());
    if (decoded.ok()) value = *decoded;
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, std::optional<Enum>& value, const NamedValue<Enum> (&names)[kCount]) {
    value.reset();
    if (Fields().GetEnumValue(job_, FieldOf(setting)) != 0) (*this)(setting, value.emplace(), names);
  }
  void operator()(const JobSetting& setting, EmulatedLink& link) {
    link = stagecoach::FromProto(job_.emulated_link());
    if (Fields().HasField(job_, FieldOf(setting))) Keep(CheckEmulatedLink(link));
  }

  const absl::Status& status() const { return status_; }

 private:
  const google::protobuf::Reflection& Fields() const { return *job_.GetReflection(); }
  void Keep(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const pb::ConfigureJob& job_;
  absl::Status status_;  // the first error
};

}  // namespace

void SetJobSettings(const JobSettings& settings, pb::ConfigureJob* job) { VisitJobSettings(settings, JobWriter(job)); }

absl::StatusOr<JobSettings> JobSettingsOf(const pb::ConfigureJob& job) {
  JobSettings settings;
  JobReader reader(job);
  VisitJobSettings(settings, reader);
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(CheckBlockTokens(settings.block_tokens));
  return settings;
}

pb::KvType ToProto(KvType type) { return Encoded<pb::KvType>(kKvTypes, type); }
pb::WireType ToProto(WireType type) { return Encoded<pb::WireType>(kWireTypes, type); }
pb::InstructionSet ToProto(InstructionSet set) { return Encoded<pb::InstructionSet>(kInstructionSets, set); }
pb::WeightSource ToProto(WeightSource source) { return Encoded<pb::WeightSource>(kWeightSources, source); }

bool Speculates(const pb::ConfigureJob& job) {
  return !job.speculate().empty() && job.speculate() != NameOf(kSpeculations, Speculate::kOff);
}

absl::StatusOr<KvType> FromProto(pb::KvType type) { return Decoded(kKvTypes, "kv_type", type); }
absl::StatusOr<WireType> FromProto(pb::WireType type) { return Decoded(kWireTypes, "wire_type", type); }
absl::StatusOr<InstructionSet> FromProto(pb::InstructionSet set) { return Decoded(kInstructionSets, "isa", set); }
absl::StatusOr<WeightSource> FromProto(pb::WeightSource source) {
  if (source == pb::WEIGHT_SOURCE_UNSPECIFIED) return WeightSource::kFile;
  return Decoded(kWeightSources, "weights", source);
}

pb::EmulatedLink ToProto(const EmulatedLink& link) {
  pb::EmulatedLink out;
  out.set_latency_s(link.latency_s);
  out.set_bytes_per_s(link.bytes_per_s);
  return out;
}
EmulatedLink FromProto(const pb::EmulatedLink& link) {
  return {.latency_s = link.latency_s(), .bytes_per_s = link.bytes_per_s()};
}

const char* InstructionSetName(pb::InstructionSet set) {
  const absl::StatusOr<InstructionSet> known = FromProto(set);
  return known.ok() ? InstructionSetName(*known) : "invalid";
}

FingerprintsProto ToProto(const std::vector<FileFingerprint>& fingerprints) {
  FingerprintsProto out;
  for (const FileFingerprint& fingerprint : fingerprints) {
    pb::FileFingerprint* entry = out.Add();
    entry->set_size_bytes(fingerprint.size_bytes);
    entry->set_modified_ns(fingerprint.modified_ns);
    entry->set_header_hash(fingerprint.header_hash);
    entry->set_sample_hash(fingerprint.sample_hash);
  }
  return out;
}

std::vector<FileFingerprint> FromProto(const FingerprintsProto& fingerprints) {
  std::vector<FileFingerprint> out;
  for (const pb::FileFingerprint& entry : fingerprints) {
    out.push_back({entry.size_bytes(), entry.modified_ns(), entry.header_hash(), entry.sample_hash()});
  }
  return out;
}

}  // namespace stagecoach
