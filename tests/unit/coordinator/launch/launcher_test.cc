#include "coordinator/launch/launcher.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "coordinator/launch/launcher_backend.h"

namespace stagecoach {
namespace {

constexpr int kNotPermitted = 77;

// From now on this process has no close_range, as under a kernel before 5.9.
bool ForbidCloseRange() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A front that starts a launcher which never ends, writes into `report` which session that is and what directories it
// has, and is killed.
[[noreturn]] void RunFront(const std::string& mpirun, const std::string& report) {
  if (!ForbidCloseRange()) _exit(kNotPermitted);
  LaunchPlan plan;
  plan.backend = MakeOpenMpi({.program = mpirun});
  plan.programs = {"/bin/true", "/bin/true"};
  const auto launcher = Launcher::Start(plan, {.hosts = {{"localhost", 1, true}}});
  if (!launcher.ok()) _exit(1);
  while ((*launcher)->Processes().empty()) usleep(1000);
  std::ofstream out(report);
  out << (*launcher)->Processes().front().pid << "\n";
  for (const std::string& directory : (*launcher)->directories()) out << directory << "\n";
  out.close();
  raise(SIGKILL);
  _exit(1);
}

TEST(Launcher, ItsGuardNoticesTheEndOfTheFrontUnderAnOldKernelToo) {
  std::string directory = ::testing::TempDir() + "launcher.XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string mpirun = directory + "/mpirun", report = directory + "/report";
  std::ofstream(mpirun) << "#!/bin/sh\nexec sleep 1000\n";
  ASSERT_EQ(chmod(mpirun.c_str(), 0755), 0);
  const pid_t front = fork();
  if (front == 0) RunFront(mpirun, report);
  int status = 0;
  waitpid(front, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "NOT RUN: no seccomp filters here";
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  std::ifstream in(report);
  pid_t session = 0;
  std::vector<std::string> directories;
  in >> session;
  for (std::string path; in >> path;) directories.push_back(path);
  ASSERT_GT(session, 0);
  ASSERT_FALSE(directories.empty());
  const auto is_left = [&] {
    return !ListSession(session).empty() || std::any_of(directories.begin(), directories.end(),
                                                        [](const auto& path) { return std::filesystem::exists(path); });
  };
  for (int i = 0; i < 1000 && is_left(); ++i) usleep(10000);
  EXPECT_FALSE(is_left());
  KillSession(session, /*except=*/0, /*reap=*/false);
  for (const std::string& path : directories) std::filesystem::remove_all(path);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace stagecoach
