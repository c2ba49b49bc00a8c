#include "coordinator/launch/launcher_output.h"

#include <signal.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

constexpr size_t kTailLines = 50;
constexpr size_t kMaxLineBytes = 16 << 10;  // a longer one is cut into several

}  // namespace

bool IsCrashSignal(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS: return true;
    default: return false;
  }
}

std::string RankName(int rank, std::optional<int> stage) {
  if (rank == 0) return "rank 0 (the coordinator)";
  return absl::StrCat("rank ", rank, stage.has_value() ? absl::StrCat(" (stage ", *stage, ")") : "");
}

std::vector<std::string> LauncherOutput::Feed(absl::string_view bytes) {
  std::vector<std::string> shown;
  for (const char c : bytes) {
    if (c != '\n') partial_.push_back(c);
    if (c != '\n' && partial_.size() < kMaxLineBytes) continue;
    std::string line = std::exchange(partial_, std::string());
    if (TakeLine(line)) shown.push_back(std::move(line));
  }
  return shown;
}

std::vector<std::string> LauncherOutput::FeedEnd() {
  return partial_.empty() ? std::vector<std::string>() : Feed("\n");
}

std::string LauncherOutput::Tail() const { return absl::StrJoin(tail_, "\n"); }

bool LauncherOutput::TakeLine(const std::string& line) {
  const std::string text(absl::StripTrailingAsciiWhitespace(line));
  if (text.empty()) return false;
  if (text.find_first_not_of('-') != std::string::npos) {
    tail_.push_back(text);
    if (tail_.size() > kTailLines) tail_.pop_front();
  }
  return words_->Take(text);
}

}  // namespace stagecoach
