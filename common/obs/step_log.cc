#include "common/obs/step_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/job/job_settings.h"
#include "common/json/json_fields.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kWriteBytes = 1 << 20;
constexpr char kLeftOut[] = "micro-batch";

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

uint64_t BytesIn(int descriptor) {
  struct stat file;
  return fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) ? static_cast<uint64_t>(file.st_size) : 0;
}

constexpr size_t kMostStepLineBytes = 16 << 20;  // micro-batches have thousands of slices at most
constexpr IntegerRange kWholeNumber = {0, std::numeric_limits<int64_t>::max()};
constexpr IntegerRange kSmallNumber = {0, std::numeric_limits<int32_t>::max()};

constexpr NamedValue<GuessRecord> kGuessOutcomes[] = {{GuessRecord::kRight, "right"}, {GuessRecord::kVoid, "void"}};

// What a line holds, in the order of the file.

template <typename Fields, typename Slice>
void VisitSlice(Fields& fields, Slice& slice) {
  fields.Field("sequence", slice.sequence, kWholeNumber);
  fields.Field("start", slice.start, kSmallNumber);
  fields.Field("count", slice.count, kSmallNumber);
  fields.Field("sample", slice.sample);
  fields.Optional("state_read", slice.state_read, kNoSlot, kSmallNumber);
  fields.Optional("state_write", slice.state_write, kNoSlot, kSmallNumber);
  if (fields.Has("guess", slice.guess != GuessRecord::kNone)) fields.Field("guess", slice.guess, kGuessOutcomes);
}

struct NamedPart {
  StepPart part = StepPart::kOther;
  StepPartTotals totals;
};

template <typename Fields, typename Part>
void VisitPart(Fields& fields, Part& part) {
  fields.Field("part", part.part, kStepPartNames);
  fields.Optional("busy_ns", part.totals.busy_ns, 0, kStepPartRange);
  fields.Optional("wait_ns", part.totals.wait_ns, 0, kStepPartRange);
  fields.Optional("bytes", part.totals.bytes, 0, kStepPartRange);
}

// A list of those that are not 0.
template <typename Fields, typename Account>
void VisitAccount(Fields& fields, Account& account) {
  if (!fields.Has("parts", !account.empty())) return;
  std::vector<NamedPart> parts;
  for (size_t i = 0; i < account.size(); ++i) {
    if (account[i] != StepPartTotals()) parts.push_back({static_cast<StepPart>(i), account[i]});
  }
  if constexpr (std::is_const_v<Account>) {
    fields.Objects("parts", std::as_const(parts), [](auto& inner, const NamedPart& part) { VisitPart(inner, part); });
  } else {
    fields.Objects("parts", parts, [](auto& inner, NamedPart& part) { VisitPart(inner, part); });
    account.resize(kStepParts);
    for (const NamedPart& part : parts) account[static_cast<size_t>(part.part)] = part.totals;
  }
}

template <typename Fields, typename Times>
void VisitTimes(Fields& fields, Times& times) {
  fields.Field("stage", times.stage, kSmallNumber);
  fields.Field("received_us", times.received_us, kWholeNumber);
  fields.Field("start_us", times.start_us, kWholeNumber);
  fields.Field("end_us", times.end_us, kWholeNumber);
  VisitAccount(fields, times.account);
}

template <typename Fields, typename Command>
void VisitCommand(Fields& fields, Command& command) {
  const bool cancel = fields.Has("cancel", command.cancel);
  if constexpr (!std::is_const_v<Command>) command.cancel = cancel;
  fields.Field(cancel ? "cancel" : "add", command.sequence, kWholeNumber);
  fields.Field("confirmed", command.confirmed, kWholeNumber);
  if (cancel) return;
  fields.Field("prompt_tokens", command.prompt_tokens, kWholeNumber);
  fields.Field("output_tokens", command.output_tokens, kWholeNumber);
  fields.Field("max_new_tokens", command.max_new_tokens, kWholeNumber);
  fields.Optional("score_from", command.score_from, -1, kWholeNumber);
  fields.Optional("conversation_tokens", command.conversation_tokens, -1, kWholeNumber);
  fields.Optional("tenant", command.tenant, 0, kWholeNumber);
  fields.Optional("weight", command.weight, 1, NumberRange{0, 1e9});
  fields.Optional("priority_class", command.priority_class, 1, kSmallNumber);
  fields.Optional("grammar", command.grammar, 0, kWholeNumber);
  fields.Optional("grammar_bytes", command.grammar_bytes, 0, IntegerRange{0, kMaxDefinitionBytes});
  fields.Integers("blocks", command.blocks, kWholeNumber);
}

template <typename Fields, typename Block>
void VisitBlock(Fields& fields, Block& block) {
  fields.Field("sequence", block.sequence, kWholeNumber);
  fields.Field("block", block.block, kWholeNumber);
  fields.Field("hash", block.hash, kWholeNumber);
}

// 0 stands for a setting that was not given; the scheduler says what it can do.
NumberRange RuleInALog(NumberRange range) { return {0, range.max}; }
IntegerRange RuleInALog(IntegerRange range) { return {0, range.max}; }
template <typename Range>
const Range& RuleInALog(const Range& range) {
  return range;
}

template <typename Fields, typename Job>
void VisitJob(Fields& fields, Job& job) {
  fields.Field("stages", job.stages, kSmallNumber);
  VisitBatchingSettings(job, [&](const JobSetting& setting, auto& value, const auto&... rules) {
    const absl::string_view name = setting.name;
    if constexpr (!std::is_const_v<Job>) {  // earlier versions wrote microseconds, and the first ones had no cache
      if (name == "prefix_caching" && !fields.Has("prefix_caching")) {
        job.prefix_caching = false;
        return;
      }
      if (name == "slo_itl_s" && fields.Has("slo_itl_us")) {
        fields.Field("slo_itl_us", job.slo_itl_s, NumberRange{0, 1e15});
        job.slo_itl_s /= 1e6;
        return;
      }
    }
    fields.Field(setting.name, value, RuleInALog(rules)...);
  });
  fields.Integers("group_blocks", job.group_blocks, kSmallNumber, /*required=*/true);
  fields.Field("context", job.context, kWholeNumber);
  fields.Field("micro_batches", job.micro_batches, kSmallNumber);
  fields.Field("most_groups", job.most_groups, kSmallNumber);
  fields.Field("max_open_tokens", job.max_open_tokens, kWholeNumber);
  fields.Field("decode_groups", job.decode_groups, kSmallNumber);
  fields.Optional("experts", job.experts, 0, NumberRange{0, 1});
  fields.Optional("experts_chosen", job.experts_chosen, 1, NumberRange{0, 1});
  fields.Integers("group_windows", job.group_windows, kWholeNumber);
  fields.Optional("state_slots", job.state_slots, 0, kSmallNumber);
  fields.Optional("state_blocks", job.state_blocks, 0, kSmallNumber);
  fields.Optional("guess_places", job.guess_places, 0, kSmallNumber);
  fields.Optional("most_guesses", job.most_guesses, 0, JobLimits::kMostGuesses.range);
}

template <typename Fields, typename Record>
void VisitRecord(Fields& fields, Record& record) {
  fields.Field("number", record.number, kWholeNumber);
  fields.Objects(
      "slices", record.slices, [](auto& slice_fields, auto& slice) { VisitSlice(slice_fields, slice); }, true);
  fields.Integers("drop_grammars", record.drop_grammars, kWholeNumber);
  fields.Integers("define_grammars", record.define_grammars, kWholeNumber);
  fields.Field("submit_us", record.submit_us, kWholeNumber);
  fields.Field("confirm_us", record.confirm_us, kWholeNumber);
  fields.Objects(
      "stages", record.times, [](auto& stage_fields, auto& times) { VisitTimes(stage_fields, times); }, true);
  if (fields.Has("commands", !record.inputs.commands.empty()))
    fields.Objects("commands", record.inputs.commands,
                   [](auto& inner, auto& command) { VisitCommand(inner, command); });
  if (fields.Has("blocks", !record.inputs.blocks.empty()))
    fields.Objects("blocks", record.inputs.blocks, [](auto& inner, auto& block) { VisitBlock(inner, block); });
  fields.Optional("decode_groups", record.inputs.decode_groups, 0, kSmallNumber);
  fields.Optional("guess_places", record.inputs.guess_places, 0, kSmallNumber);
  fields.Optional("confirmed", record.inputs.confirmed, 0, kWholeNumber);
  fields.Object("job", record.inputs.job, [](auto& inner, auto& job) { VisitJob(inner, job); });
}

}  // namespace

std::string StepLogLine(const StepRecord& record) {
  Json line;
  JsonWriter fields(&line);
  VisitRecord(fields, record);
  return CompactJson(line);
}

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
    : path_(std::move(path)),
      format_(std::move(format)),
      descriptor_(descriptor),
      bytes_(BytesIn(descriptor)),
      writer_([this] { WriteLines(); }) {}

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
  std::string lacks;
  if (left_out_ > 0) lacks = absl::StrCat(CountOf(left_out_, kLeftOut), ", because its disk was too slow for them");
  if (full_) {
    absl::StrAppend(&lacks, lacks.empty() ? "" : ", and ", CountOf(beyond_bound_, kLeftOut),
                    " at its end, because it has at most ", format_.most_bytes >> 20, " MiB");
  }
  if (written_.ok() && !lacks.empty()) {
    written_ = absl::DataLossError(absl::StrCat("the ", format_.name, " '", path_, "' lacks ", lacks));
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

absl::Status StepLog::WriteLines(const std::vector<StepRecord>& records) {
  std::string lines;
  for (const StepRecord& record : records) {
    const size_t before = lines.size();
    if (!full_) format_.append(record, &lines);
    if (full_ || bytes_ + lines.size() > format_.most_bytes) {
      lines.resize(before);
      full_ = true;
      if (!record.shutdown) ++beyond_bound_;
    }
    if (lines.size() < kWriteBytes && &record != &records.back()) continue;
    RETURN_IF_ERROR(WriteWhole(lines));
    lines.clear();
  }
  return absl::OkStatus();
}

absl::Status StepLog::WriteWhole(absl::string_view lines) {
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
    bytes_ += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepRecord> ParseStepLogLine(absl::string_view line) {
  const Json json = ReadJson(line);
  if (json.is_discarded()) return absl::InvalidArgumentError("expected a JSON object");
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("the line: expected an object, found ", json.type_name()));
  }
  absl::Status status;
  StepRecord record;
  JsonReader fields("", "", json, &status);
  VisitRecord(fields, record);
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
