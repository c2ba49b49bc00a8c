#include "common/obs/step_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kWriteBytes = 1 << 20;

// A job that was killed in the middle of a write left half a line, which the next one would be glued to.
void CutOffHalfALine(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return;
  off_t end = info.st_size;
  for (char last = 0; end > 0 && pread(descriptor, &last, 1, end - 1) == 1 && last != '\n';) --end;
  if (end < info.st_size && ftruncate(descriptor, end) != 0) {
  }  // then it stays: lines after it are whole
  close(descriptor);
}

// After a write that ended within `written`'s last line: takes that half away again, so that an append goes on well.
void CutBackToALine(int descriptor, absl::string_view written) {
  const size_t end = written.rfind('\n');
  const size_t half = end == absl::string_view::npos ? written.size() : written.size() - end - 1;
  struct stat file;
  if (half == 0 || fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode)) return;
  if (ftruncate(descriptor, file.st_size - static_cast<off_t>(half)) != 0) return;  // as good as it gets
}

constexpr size_t kMostStepLineBytes = 16 << 20;  // micro-batches have thousands of slices at most
constexpr IntegerRange kWholeNumber = {0, std::numeric_limits<int64_t>::max()};
constexpr IntegerRange kSmallNumber = {0, std::numeric_limits<int32_t>::max()};

// What a line holds, in the order of the file: each field is declared once, for writing and for reading. A visitor has
//   visit(name, member)                  a field of every line; numbers with a point have a range
//   visit.If(written, name, member)      a field that is left out unless `written`, and may be absent
//   visit.Which(name, &member)           when reading: whether there is a field of that name

template <typename T, typename Record>
concept Either = std::same_as<std::remove_const_t<T>, Record>;  // to be written, or to be read

template <typename Visitor, Either<StepRecord::Slice> T>
void VisitFields(Visitor& visit, T& slice) {
  visit("sequence", slice.sequence);
  visit("start", slice.start);
  visit("count", slice.count);
  visit("sample", slice.sample);
}

template <typename Visitor, Either<StageTimes> T>
void VisitFields(Visitor& visit, T& times) {
  visit("stage", times.stage);
  visit("received_us", times.received_us);
  visit("start_us", times.start_us);
  visit("end_us", times.end_us);
}

template <typename Visitor, Either<RecordedCommand> T>
void VisitFields(Visitor& visit, T& command) {
  visit.Which("cancel", &command.cancel);
  visit(command.cancel ? "cancel" : "add", command.sequence);
  visit("confirmed", command.confirmed);
  if (command.cancel) return;
  visit("prompt_tokens", command.prompt_tokens);
  visit("output_tokens", command.output_tokens);
  visit("max_new_tokens", command.max_new_tokens);
  visit.If(command.score_from >= 0, "score_from", command.score_from);
  visit.If(command.tenant != 0, "tenant", command.tenant);
  visit.If(command.weight != 1, "weight", command.weight, NumberRange{0, 1e9});
  visit.If(command.priority_class != 1, "priority_class", command.priority_class);
  visit.If(!command.blocks.empty(), "blocks", command.blocks);
}

template <typename Visitor, Either<RecordedBlock> T>
void VisitFields(Visitor& visit, T& block) {
  visit("sequence", block.sequence);
  visit("block", block.block);
  visit("hash", block.hash);
}

template <typename Visitor, Either<RecordedJob> T>
void VisitFields(Visitor& visit, T& job) {
  visit("stages", job.stages);
  visit("max_num_seqs", job.max_num_seqs);
  visit("max_num_batched_tokens", job.max_num_batched_tokens);
  visit("prefill_chunk", job.prefill_chunk);
  visit("policy", job.policy);
  visit("chunking", job.chunking);
  visit("slo_itl_us", job.slo_itl_us, NumberRange{0, 1e15});
  visit("block_tokens", job.block_tokens);
  visit("group_blocks", job.group_blocks);
  visit("context", job.context);
  visit("micro_batches", job.micro_batches);
  visit("most_groups", job.most_groups);
  visit("max_open_tokens", job.max_open_tokens);
  visit.If(true, "prefix_caching", job.prefix_caching);  // older logs have none
  visit("decode_groups", job.decode_groups);
  bool experts = job.experts > 0;
  visit.Which("experts", &experts);
  if (experts) {
    visit("experts", job.experts, NumberRange{0, 1});
    visit("experts_chosen", job.experts_chosen, NumberRange{0, 1});
  }
  visit.If(!job.group_windows.empty(), "group_windows", job.group_windows);
}

template <typename Visitor, Either<StepRecord> T>
void VisitFields(Visitor& visit, T& record) {
  visit("number", record.number);
  visit("slices", record.slices);
  visit("submit_us", record.submit_us);
  visit("confirm_us", record.confirm_us);
  visit("stages", record.times);
  visit.If(!record.inputs.commands.empty(), "commands", record.inputs.commands);
  visit.If(!record.inputs.blocks.empty(), "blocks", record.inputs.blocks);
  visit.If(record.inputs.decode_groups > 0, "decode_groups", record.inputs.decode_groups);
  visit.If(record.inputs.job.has_value(), "job", record.inputs.job);
}

// Makes an object of the fields.
class FieldWriter {
 public:
  template <typename T, typename... Range>
  void operator()(const char* name, const T& value, const Range&...) {
    object_[name] = ValueOf(value);
  }
  template <typename T, typename... Range>
  void If(bool written, const char* name, const T& value, const Range&...) {
    if (written) object_[name] = ValueOf(value);
  }
  void Which(const char*, const bool*) {}

  template <typename T>
  static Json ValueOf(const T& value) {
    if constexpr (std::is_constructible_v<Json, const T&>) {
      return value;
    } else {
      FieldWriter fields;
      VisitFields(fields, value);
      return std::move(fields.object_);
    }
  }
  template <typename T>
  static Json ValueOf(const std::optional<T>& value) {
    return ValueOf(*value);
  }
  template <typename T>
  static Json ValueOf(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(ValueOf(value));
    return list;
  }

 private:
  Json object_;
};

// Reads a value of a line. The first error stays; what it is of, and all after it, keep their defaults.
class FieldReader {
 public:
  // The line itself.
  FieldReader(const Json& value, absl::Status* status) : value_(value), status_(*status) {}

  template <typename T, typename... Range>
  void operator()(const char* name, T& member, const Range&... range) {
    if (!status_.ok()) return;
    if (!value_.contains(name)) return Fail(name, "a value", "none");
    FieldReader(value_[name], this, name, 0).Read(member, range...);
  }
  template <typename T, typename... Range>
  void If(bool, const char* name, T& member, const Range&... range) {
    if (value_.contains(name)) (*this)(name, member, range...);
  }
  void Which(const char* name, bool* member) { *member = value_.contains(name); }

  void Read(int64_t& out, IntegerRange range = kWholeNumber) {
    const bool integer = value_.is_number_integer() &&
                         !(value_.is_number_unsigned() &&
                           value_.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!integer || !Contains(range, value_.get<int64_t>())) return FailNumber("an integer, ", range);
    out = value_.get<int64_t>();
  }
  void Read(int32_t& out) {
    int64_t number = out;
    Read(number, kSmallNumber);
    out = static_cast<int32_t>(number);
  }
  void Read(uint64_t& out) {
    int64_t number = 0;
    Read(number);
    out = static_cast<uint64_t>(number);
  }
  void Read(double& out, NumberRange range) {
    if (!value_.is_number() || !Contains(range, value_.get<double>())) return FailNumber("a number, ", range);
    out = value_.get<double>();
  }
  void Read(bool& out) {
    if (!value_.is_boolean()) return Fail(nullptr, "true or false", value_.type_name());
    out = value_.get<bool>();
  }
  void Read(std::string& out) {
    if (!value_.is_string()) return Fail(nullptr, "a text", value_.type_name());
    out = value_.get<std::string>();
  }
  template <typename T>
  void Read(std::vector<T>& out) {
    if (!value_.is_array()) return Fail(nullptr, "a list", value_.type_name());
    for (size_t i = 0; i < value_.size() && status_.ok(); ++i) {
      FieldReader(value_[i], this, nullptr, i).Read(out.emplace_back());
    }
  }
  template <typename T>
  void Read(std::optional<T>& out) {
    Read(out.emplace());
  }
  template <typename T>
  void Read(T& object) {
    if (!value_.is_object()) return Fail(nullptr, "an object", value_.type_name());
    VisitFields(*this, object);
  }

 private:
  FieldReader(const Json& value, const FieldReader* outer, const char* name, size_t index)
      : value_(value), status_(outer->status_), outer_(outer), name_(name), index_(index) {}

  std::string Path() const {
    if (outer_ == nullptr) return "";
    const std::string outer = outer_->Path();
    return name_ == nullptr ? absl::StrCat(outer, "[", index_, "]")
                            : absl::StrCat(outer, outer.empty() ? "" : ".", name_);
  }
  template <typename Range>
  void FailNumber(absl::string_view what, Range range) {
    Fail(nullptr, absl::StrCat(what, Expected(range)), value_.is_number() ? value_.dump() : value_.type_name());
  }
  // `name`: of a field that is missing; nullptr: of this value.
  void Fail(const char* name, absl::string_view expected, absl::string_view found) {
    if (!status_.ok()) return;
    std::string where = Path();
    if (name != nullptr) absl::StrAppend(&where, where.empty() ? "" : ".", name);
    status_ = absl::InvalidArgumentError(
        absl::StrCat(where.empty() ? "the line" : where, ": expected ", expected, ", found ", found));
  }

  const Json& value_;
  absl::Status& status_;
  const FieldReader* const outer_ = nullptr;  // the object or list that holds the value
  const char* const name_ = nullptr;          // of the value in an object; nullptr: it is an item of a list
  const size_t index_ = 0;
};

}  // namespace

std::string StepLogLine(const StepRecord& record) { return CompactJson(FieldWriter::ValueOf(record)); }

StepLogFormat PlainStepLog() {
  StepLogFormat format;
  format.append = [](const StepRecord& record, std::string* lines) {
    if (!record.shutdown) absl::StrAppend(lines, StepLogLine(record), "\n");
  };
  return format;
}

absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Open(const std::string& path, bool append, StepLogFormat format) {
  if (append) CutOffHalfALine(path);
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666);
  if (descriptor < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write the ", format.name, " '", path, "': ", std::strerror(errno)));
  }
  std::unique_ptr<StepLog> log(new StepLog(path, descriptor, std::move(format)));
  return log;
}

StepLog::StepLog(std::string path, int descriptor, StepLogFormat format)
    : path_(std::move(path)), format_(std::move(format)), descriptor_(descriptor), writer_([this] { WriteLines(); }) {}

StepLog::~StepLog() {
  Close().IgnoreError();  // it was logged
  close(descriptor_);
}

void StepLog::Write(StepRecord record) {
  const size_t bytes = record.bytes();
  std::unique_lock<std::mutex> lock(mu_);
  if (wait_for_disk_) {
    room_.wait(lock, [&] { return !written_.ok() || waiting_bytes_ + bytes <= std::max(kMaxWaitingBytes, bytes); });
  }
  if (!written_.ok()) return;
  if (waiting_bytes_ + bytes > kMaxWaitingBytes) {
    ++left_out_;
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.push_back(std::move(record));
  if (waiting_.size() == 1) more_.notify_one();
}

absl::Status StepLog::Close() {
  if (!writer_.joinable()) return written_;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    closing_ = true;
  }
  more_.notify_one();
  writer_.join();
  if (written_.ok() && left_out_ > 0) {
    written_ = absl::DataLossError(absl::StrCat("the ", format_.name, " '", path_, "' lacks ", left_out_,
                                                " micro-batches, because its disk was too slow for them"));
    LogError(written_.message());
  }
  return written_;
}

void StepLog::WriteLines() {
  std::vector<StepRecord> records;
  const absl::Status begun = WriteWhole(format_.head);
  if (!begun.ok()) LogError(begun.message());
  std::unique_lock<std::mutex> lock(mu_);
  written_ = begun;
  while (written_.ok()) {
    more_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    records.swap(waiting_);
    lock.unlock();
    size_t bytes = 0;
    for (const StepRecord& record : records) bytes += record.bytes();
    const absl::Status written = WriteLines(records);
    if (!written.ok()) LogError(written.message());
    records.clear();
    lock.lock();
    waiting_bytes_ -= bytes;
    written_ = written;
    room_.notify_one();
  }
  waiting_.clear();
}

absl::Status StepLog::WriteLines(const std::vector<StepRecord>& records) const {
  std::string lines;
  for (const StepRecord& record : records) {
    format_.append(record, &lines);
    if (lines.size() < kWriteBytes && &record != &records.back()) continue;
    RETURN_IF_ERROR(WriteWhole(lines));
    lines.clear();
  }
  return absl::OkStatus();
}

absl::Status StepLog::WriteWhole(absl::string_view lines) const {
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t n = write(descriptor_, lines.data() + done, lines.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string reason = std::strerror(errno);
      CutBackToALine(descriptor_, lines.substr(0, done));
      return absl::DataLossError(absl::StrCat("cannot write the ", format_.name, " '", path_, "': ", reason,
                                              "; no further lines are written"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepRecord> ParseStepLogLine(absl::string_view line) {
  const Json json = ReadJson(line);
  if (json.is_discarded()) return absl::InvalidArgumentError("expected a JSON object");
  absl::Status status;
  StepRecord record;
  FieldReader(json, &status).Read(record);
  RETURN_IF_ERROR(status);
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
