#include "tests/testing/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"

extern char** environ;

namespace stagecoach::testing {
namespace {

int64_t DeadlineUs(double timeout_s) { return MonotonicUs() + static_cast<int64_t>(timeout_s * 1e6); }

// "NAME=value" of this process, changed by `changes`.
std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    bool of_outer_job = name == "PMI_RANK" || name == "PMIX_RANK";
    for (const char* prefix : {"OMPI_COMM_WORLD", "PMIX_", "PMI_"})
      of_outer_job = of_outer_job || absl::StartsWith(name, prefix);
    if (!of_outer_job && equals != std::string::npos) variables[name] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : changes) {
    if (value.empty())
      variables.erase(name);
    else
      variables[name] = value;
  }
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& text : *strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const ProgramResult& result) {
  return stream << "exit code " << result.exit_code << (result.timed_out ? " (timed out)" : "") << "\n--- stdout\n"
                << result.out << "\n--- stderr\n"
                << result.err << "\n---\n";
}

Subprocess::Subprocess(const std::string& program, const std::vector<std::string>& arguments,
                       const std::vector<std::pair<std::string, std::string>>& environment) {
  int in[2], out[2], err[2];
  for (int* ends : {in, out, err}) CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = Environment(environment);
  const int error =
      posix_spawnp(&pid_, program.c_str(), &actions, nullptr, Pointers(&words).data(), Pointers(&variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) internal::CheckFailed(__FILE__, __LINE__, program.c_str(), std::strerror(error));
  close(in[0]);
  close(out[1]);
  close(err[1]);
  input_ = in[1];
  out_ = out[0];
  err_ = err[0];
  for (int descriptor : {out_, err_}) CHECK_EQ(fcntl(descriptor, F_SETFL, O_NONBLOCK), 0);
}

Subprocess::~Subprocess() {
  CloseInput();
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (int descriptor : {out_, err_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void Subprocess::Write(const std::string& text) {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);  // a program may end without reading its input
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(input_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    done += static_cast<size_t>(written);
  }
  sigaction(SIGPIPE, &before, nullptr);
}

void Subprocess::CloseInput() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

void Subprocess::Kill(int signal) {
  if (!reaped_) kill(pid_, signal);
}

void Subprocess::Drain(int* descriptor, std::string* into) {
  char buffer[4096];
  while (*descriptor >= 0) {
    const ssize_t got = read(*descriptor, buffer, sizeof(buffer));
    if (got > 0) {
      into->append(buffer, static_cast<size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      close(*descriptor);
      *descriptor = -1;
    }
  }
}

bool Subprocess::Collect(double timeout_s) {
  if (out_ < 0 && err_ < 0) return false;
  pollfd watched[2] = {{.fd = out_, .events = POLLIN, .revents = 0}, {.fd = err_, .events = POLLIN, .revents = 0}};
  poll(watched, 2, static_cast<int>(timeout_s * 1000));
  Drain(&out_, &result_.out);
  Drain(&err_, &result_.err);
  return true;
}

bool Subprocess::WaitForOutput(const std::string& text, double timeout_s) {
  const int64_t deadline = DeadlineUs(timeout_s);
  while (MonotonicUs() < deadline) {
    const bool open = Collect(0.05);
    if (absl::StrContains(result_.out, text) || absl::StrContains(result_.err, text)) return true;
    if (!open) return false;
  }
  return false;
}

bool Subprocess::WaitUntil(const std::function<bool()>& holds, double timeout_s) {
  const int64_t deadline = DeadlineUs(timeout_s);
  while (!holds()) {
    if (MonotonicUs() > deadline) return false;
    if (!Collect(0.02)) usleep(20000);
  }
  return true;
}

// The program's own end counts, not that of its streams: a process it left behind may hold them open.
ProgramResult Subprocess::Wait(double timeout_s) {
  CloseInput();
  const int64_t deadline = DeadlineUs(timeout_s);
  int status = 0;
  while (true) {
    if (!Collect(0.02)) usleep(2000);
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) break;
    if (MonotonicUs() < deadline) continue;
    result_.timed_out = true;
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    break;
  }
  reaped_ = true;
  Collect(0);
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

ProgramResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                         const std::string& input, double timeout_s,
                         const std::vector<std::pair<std::string, std::string>>& environment) {
  Subprocess process(program, arguments, environment);
  process.Write(input);
  return process.Wait(timeout_s);
}

}  // namespace stagecoach::testing
