#include "common/obs/step_log.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace stagecoach {

using Json = nlohmann::ordered_json;

std::string StepLogLine(const MicroBatch& batch, const StepResult& result, int64_t submit_us, int64_t confirm_us) {
  Json slices = Json::array();
  for (const SequenceSlice& slice : batch.slices) {
    slices.push_back(
        {{"sequence", slice.sequence}, {"start", slice.start}, {"count", slice.count}, {"sample", slice.sample}});
  }
  Json stages = Json::array();
  for (const StageTimes& times : result.times) {
    stages.push_back({{"stage", times.stage},
                      {"received_us", times.received_us},
                      {"start_us", times.start_us},
                      {"end_us", times.end_us}});
  }
  const Json line = {{"number", batch.number},
                     {"slices", std::move(slices)},
                     {"submit_us", submit_us},
                     {"confirm_us", confirm_us},
                     {"stages", std::move(stages)}};
  return line.dump();
}

absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Open(const std::string& path, bool append) {
  std::FILE* file = std::fopen(path.c_str(), append ? "a" : "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write the step log '", path, "': ", std::strerror(errno)));
  }
  return std::unique_ptr<StepLog>(new StepLog(file));
}

void StepLog::Write(const MicroBatch& batch, const StepResult& result, int64_t submit_us, int64_t confirm_us) {
  const std::string line = StepLogLine(batch, result, submit_us, confirm_us) + "\n";
  std::fwrite(line.data(), 1, line.size(), file_.get());
  std::fflush(file_.get());
}

}  // namespace stagecoach
