#include "common/obs/step_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {

namespace {

constexpr size_t kWriteBytes = 1 << 20;

void AddInputs(const StepInputs& inputs, Json* line) {
  for (const RecordedCommand& command : inputs.commands) {
    Json json = {{command.cancel ? "cancel" : "add", command.sequence}, {"confirmed", command.confirmed}};
    if (!command.cancel) {
      json["prompt_tokens"] = command.prompt_tokens;
      json["output_tokens"] = command.output_tokens;
      json["max_new_tokens"] = command.max_new_tokens;
      if (command.score_from >= 0) json["score_from"] = command.score_from;
      if (command.tenant != 0) json["tenant"] = command.tenant;
      if (command.weight != 1) json["weight"] = command.weight;
      if (command.priority_class != 1) json["priority_class"] = command.priority_class;
      if (!command.blocks.empty()) json["blocks"] = command.blocks;
    }
    (*line)["commands"].push_back(std::move(json));
  }
  for (const RecordedBlock& block : inputs.blocks) {
    (*line)["blocks"].push_back({{"sequence", block.sequence}, {"block", block.block}, {"hash", block.hash}});
  }
  if (inputs.decode_groups > 0) (*line)["decode_groups"] = inputs.decode_groups;
  if (!inputs.job.has_value()) return;
  const RecordedJob& job = *inputs.job;
  (*line)["job"] = {{"stages", job.stages},
                    {"max_num_seqs", job.max_num_seqs},
                    {"max_num_batched_tokens", job.max_num_batched_tokens},
                    {"prefill_chunk", job.prefill_chunk},
                    {"policy", job.policy},
                    {"chunking", job.chunking},
                    {"slo_itl_us", job.slo_itl_us},
                    {"block_tokens", job.block_tokens},
                    {"group_blocks", job.group_blocks},
                    {"context", job.context},
                    {"micro_batches", job.micro_batches},
                    {"most_groups", job.most_groups},
                    {"max_open_tokens", job.max_open_tokens},
                    {"prefix_caching", job.prefix_caching},
                    {"decode_groups", job.decode_groups}};
  if (job.experts > 0) {
    (*line)["job"]["experts"] = job.experts;
    (*line)["job"]["experts_chosen"] = job.experts_chosen;
  }
  if (!job.group_windows.empty()) (*line)["job"]["group_windows"] = job.group_windows;
}

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

}  // namespace

std::string StepLogLine(const StepRecord& record) {
  Json slices = Json::array();
  for (const StepRecord::Slice& slice : record.slices) {
    slices.push_back(
        {{"sequence", slice.sequence}, {"start", slice.start}, {"count", slice.count}, {"sample", slice.sample}});
  }
  Json stages = Json::array();
  for (const StageTimes& times : record.times) {
    stages.push_back({{"stage", times.stage},
                      {"received_us", times.received_us},
                      {"start_us", times.start_us},
                      {"end_us", times.end_us}});
  }
  Json line = {{"number", record.number},
               {"slices", std::move(slices)},
               {"submit_us", record.submit_us},
               {"confirm_us", record.confirm_us},
               {"stages", std::move(stages)}};
  AddInputs(record.inputs, &line);
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

}  // namespace stagecoach
