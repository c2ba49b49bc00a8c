#include "coordinator/launch/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"

namespace stagecoach {
namespace {

std::string QuoteShellWord(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           absl::string_view("@%+=:,./-_").find(static_cast<char>(c)) != absl::string_view::npos;
  };
  bool quote = word.empty();
  for (const char c : word) quote = quote || !plain(static_cast<unsigned char>(c));
  // A lone colon separates programs and needs no quotes.
  return quote ? absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'") : word;
}

bool StartsWithOneOf(absl::string_view text, std::initializer_list<absl::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](absl::string_view p) { return absl::StartsWith(text, p); });
}

// What mpirun 4.1 puts into the environment of a rank under the prefix that users also write.
bool IsSetForRanks(absl::string_view variable) {
  return StartsWithOneOf(variable, {"OMPI_MCA_ess=", "OMPI_MCA_ess_base_", "OMPI_MCA_pmix=", "OMPI_MCA_orte_",
                                    "OMPI_MCA_initial_wdir=", "OMPI_MCA_shmem_RUNTIME_QUERY_hint=",
                                    "OMPI_MCA_mpi_oversubscribe=", "OMPI_MCA_rmaps_base_oversubscribe=",
                                    "OMPI_MCA_hwloc_base_binding_policy=", "OMPI_MCA_btl_vader_backing_directory="});
}

constexpr size_t kMostOutputBytes = 1 << 20;
constexpr int kCannotStart = 127;

bool IsProgram(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Until the end of the output; false when the time is over before.
bool Collect(int descriptor, int64_t deadline_us, std::string* text) {
  char buffer[4096];
  while (true) {
    const int64_t left_us = deadline_us - MonotonicUs();
    if (left_us <= 0) return false;
    pollfd wait = {descriptor, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(left_us / 1000 + 1)) <= 0) continue;
    const ssize_t n = read(descriptor, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    if (text->size() < kMostOutputBytes) text->append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      const char next = text[++i];
      // Between double quotes a backslash stays unless it has something to protect.
      if (quote == '"' && next != '"' && next != '\\' && next != '$' && next != '`') word.push_back('\\');
      word.push_back(next);
      in_word = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word.push_back(c);
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (in_word) words.push_back(std::exchange(word, std::string()));
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the quote ", absl::string_view(&quote, 1), " is not closed in: ", text));
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string JoinShellWords(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, const std::string& word) { out->append(QuoteShellWord(word)); });
}

std::vector<std::string> LaunchEnvironment(const std::vector<std::string>& ours) {
  const bool outer_job = std::any_of(ours.begin(), ours.end(), [](const std::string& variable) {
    return absl::StartsWith(variable, "OMPI_COMM_WORLD_") || absl::StartsWith(variable, "PMIX_RANK=");
  });
  std::vector<std::string> environment;
  for (const std::string& variable : ours) {
    const bool users = absl::StartsWith(variable, "OMPI_MCA_") && !(outer_job && IsSetForRanks(variable));
    const bool launchers = StartsWithOneOf(variable, {"OMPI_", "PMIX_", "PMI_", "OPAL_", "ORTE_", "PRTE_"});
    if (users || !launchers) environment.push_back(variable);
  }
  const std::string hwloc = absl::StrCat(kHwlocComponentsVariable, "=");
  if (std::none_of(ours.begin(), ours.end(), [&](const std::string& v) { return absl::StartsWith(v, hwloc); })) {
    environment.push_back(absl::StrCat(hwloc, kHwlocComponents));
  }
  // Without either, mpirun looks for settings in an unknown user's home and crashes. In / no stranger leaves any.
  const bool has_home =
      std::any_of(ours.begin(), ours.end(), [](const std::string& v) { return absl::StartsWith(v, "HOME="); });
  if (!has_home && getpwuid(getuid()) == nullptr) environment.push_back("HOME=/");
  return environment;
}

std::vector<std::string> UserMpiSettings(const std::vector<std::string>& ours) {
  std::vector<std::string> settings;
  for (const std::string& variable : LaunchEnvironment(ours)) {
    if (absl::StartsWith(variable, "OMPI_MCA_")) settings.push_back(variable);
  }
  return settings;
}

std::string Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) variables.push_back(*entry);
  return variables;
}

std::vector<char*> WordPointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

void BecomeProgram(int output) {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
}

bool ReadAvailable(int descriptor, std::string* text) {
  char buffer[4096];
  for (size_t all = 0; all < kMostOutputBytes;) {
    const ssize_t n = read(descriptor, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    text->append(buffer, static_cast<size_t>(n));
    all += static_cast<size_t>(n);
  }
  return true;
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (absl::StrContains(name, "/")) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(name, error);
    if (!error && IsProgram(name)) return absolute.lexically_normal().string();
    return absl::NotFoundError(absl::StrCat("'", name, "' is no program that can be run"));
  }
  for (const absl::string_view directory : absl::StrSplit(Variable("PATH"), ':', absl::SkipEmpty())) {
    const std::string candidate = absl::StrCat(directory, "/", name);
    if (IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no '", name, "' in PATH"));
}

absl::StatusOr<StartedProgram> StartProgram(const std::vector<std::string>& arguments,
                                            std::vector<std::string> environment) {
  ASSIGN_OR_RETURN(const std::string program, FindProgram(arguments.front()));
  std::vector<std::string> words = arguments;
  const std::vector<char*> argv = WordPointers(words), variables = WordPointers(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kCannotStart);
    BecomeProgram(ends[1]);
    closefrom(STDERR_FILENO + 1);
    execve(program.c_str(), argv.data(), variables.data());
    _exit(kCannotStart);
  }
  const int error = errno;
  close(ends[1]);
  if (child > 0) return StartedProgram{child, ends[0]};
  close(ends[0]);
  return absl::ResourceExhaustedError(absl::StrCat("cannot start '", program, "': ", std::strerror(error)));
}

void KillProgram(pid_t process) {
  kill(-process, SIGKILL);
  kill(process, SIGKILL);  // that has not come to lead a group yet
}

int AwaitProgramEnd(pid_t process, absl::Duration most) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(most);
  int status = 0;
  while (MonotonicUs() < deadline_us) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process || (ended < 0 && errno != EINTR)) return status;
    absl::SleepFor(absl::Milliseconds(2));
  }
  KillProgram(process);
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

absl::StatusOr<ProgramOutput> RunForOutput(const std::vector<std::string>& arguments, absl::Duration deadline) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(deadline);
  ASSIGN_OR_RETURN(const StartedProgram started, StartProgram(arguments, OwnEnvironment()));
  ProgramOutput output;
  const bool ended = Collect(started.output, deadline_us, &output.text);
  close(started.output);
  const int status =
      AwaitProgramEnd(started.process, absl::Microseconds(std::max<int64_t>(deadline_us - MonotonicUs(), 0)));
  if (!ended) {
    return absl::DeadlineExceededError(
        absl::StrCat("'", arguments.front(), "' did not end within ", absl::FormatDuration(deadline)));
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace stagecoach
