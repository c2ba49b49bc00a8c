// What an emulated host (tests/testing/hosts/emulated_hosts.h) runs beside the programs under test: a process 1, and a
// remote shell over TCP in the place of ssh, so that a host answers exactly as long as the network and its process 1
// do.
//
//   test_host lab                        process 1 of the namespaces that hold the bridge; a memory file system at /mnt
//   test_host host <name> <directory>... process 1 of a host; serves the remote shell. The directories, which lie below
//   /tmp, are seen there although the host has a /tmp of its own.
//   test_host shell <host> <command>...  the client. A host that has a file /mnt/hang/<host> is one whose ssh never
//   answers.
//
// Both say "ready <pid>" on stdout, with the process id that the caller of unshare sees, and end by SIGKILL alone.
//
// The session's messages. Client to server: a u32 of the command's length, the command, then what comes on stdin.
// Server to client: any number of {u8 kind, u32 length, bytes}: output, error output, and last the exit code in one
// byte.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr uint16_t kPort = 22;
constexpr int kConnectTimeoutMs = 2000;
constexpr int kUnreachable = 255;  // ssh's exit code for all that is not the command's own
constexpr uint8_t kOutput = 1, kErrorOutput = 2, kExitCode = 3;
constexpr char kShared[] = "/mnt";

void CheckZero(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

bool WriteAll(int descriptor, const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(descriptor, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAll(int descriptor, void* bytes, size_t size) {
  char* next = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t got = read(descriptor, next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool SendMessage(int connection, uint8_t kind, const void* bytes, uint32_t size) {
  return WriteAll(connection, &kind, sizeof(kind)) && WriteAll(connection, &size, sizeof(size)) &&
         WriteAll(connection, bytes, size);
}

// "/proc/self" still shows the process ids of whoever started us, because the namespace has no /proc of its own yet.
void SayReady() {
  char pid[32] = {};
  CHECK_GT(readlink("/proc/self", pid, sizeof(pid) - 1), 0);
  std::printf("ready %s\n", pid);
  std::fflush(stdout);
}

void Reap() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

[[noreturn]] void RunLab() {
  CheckZero(mount("none", kShared, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"), "mount /mnt");
  SayReady();
  while (true) {
    pause();
    Reap();
  }
}

// ---- the server
// ----------------------------------------------------------------------------------------------------------------------

struct Command {
  pid_t pid = -1;
  int input = -1;
  int output = -1;
  int error_output = -1;
};

Command StartCommand(const std::string& text) {
  int in[2], out[2], err[2];
  for (int* ends : {in, out, err}) CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = fork();
  CHECK_GE(pid, 0);
  if (pid == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", text.c_str(), nullptr);
    _exit(127);
  }
  for (const int descriptor : {in[0], out[1], err[1]}) close(descriptor);
  return {pid, in[1], out[0], err[0]};
}

// Takes what is there from `*from`; closes it at its end. False when the other side of the connection is gone.
bool Forward(int* from, int connection, uint8_t kind) {
  char buffer[4096];
  const ssize_t got = read(*from, buffer, sizeof(buffer));
  if (got < 0 && errno == EINTR) return true;
  if (got > 0) return SendMessage(connection, kind, buffer, static_cast<uint32_t>(got));
  close(*from);
  *from = -1;
  return true;
}

// Like sshd's: a client that goes away takes nothing with it, its command meets closed pipes.
[[noreturn]] void Serve(int connection) {
  uint32_t size = 0;
  if (!ReadAll(connection, &size, sizeof(size)) || size > (1u << 20)) _exit(1);
  std::string text(size, '\0');
  if (!ReadAll(connection, text.data(), size)) _exit(1);
  setsid();
  Command command = StartCommand(text);
  bool listening = true;  // the client's input has not ended
  while (command.output >= 0 || command.error_output >= 0) {
    pollfd waits[3] = {
        {command.output, POLLIN, 0}, {command.error_output, POLLIN, 0}, {listening ? connection : -1, POLLIN, 0}};
    if (poll(waits, 3, -1) < 0) continue;
    if (waits[0].revents != 0 && !Forward(&command.output, connection, kOutput)) _exit(1);
    if (waits[1].revents != 0 && !Forward(&command.error_output, connection, kErrorOutput)) _exit(1);
    if (waits[2].revents == 0) continue;
    char buffer[4096];
    const ssize_t got = read(connection, buffer, sizeof(buffer));
    if (got > 0) WriteAll(command.input, buffer, static_cast<size_t>(got));
    if (got == 0) close(command.input);
    if (got <= 0) listening = false;
  }
  int status = 0;
  waitpid(command.pid, &status, 0);
  const uint8_t code = static_cast<uint8_t>(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  SendMessage(connection, kExitCode, &code, 1);
  _exit(0);
}

// The host's own files: nothing in /tmp and /dev/shm, its processes in /proc, the shared list of addresses.
void MakeHost(const char* name, const std::vector<std::string>& kept) {
  std::vector<int> directories;
  for (const std::string& directory : kept) {
    directories.push_back(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    CheckZero(directories.back() < 0, directory.c_str());
  }
  CheckZero(sethostname(name, std::strlen(name)), "sethostname");
  CheckZero(mount("/mnt/hosts", "/etc/hosts", nullptr, MS_BIND, nullptr), "mount /etc/hosts");
  CheckZero(mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"), "mount /tmp");
  CheckZero(mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"), "mount /dev/shm");
  for (size_t i = 0; i < kept.size(); ++i) {
    std::filesystem::create_directories(kept[i]);
    const std::string hidden = "/proc/self/fd/" + std::to_string(directories[i]);
    CheckZero(mount(hidden.c_str(), kept[i].c_str(), nullptr, MS_BIND, nullptr), kept[i].c_str());
    close(directories[i]);
  }
  SayReady();
  CheckZero(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr), "mount /proc");
}

// The environment of a login, and none of the test's.
void MakeEnvironment() {
  clearenv();
  setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
  setenv("HOME", "/root", 1);
  setenv("USER", "root", 1);
  setenv("SHELL", "/bin/sh", 1);
}

[[noreturn]] void RunHost(const char* name, const std::vector<std::string>& kept) {
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);  // which takes IPv4's connections, too
  const int yes = 1, no = 0;
  CheckZero(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)), "setsockopt");
  CheckZero(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), "setsockopt");
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(kPort);
  CheckZero(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "bind");
  CheckZero(listen(listener, 16), "listen");
  MakeHost(name, kept);
  MakeEnvironment();
  while (true) {
    pollfd wait = {listener, POLLIN, 0};
    poll(&wait, 1, 100);  // children that end do not interrupt it reliably
    Reap();
    if (wait.revents == 0) continue;
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (fork() == 0) {
      close(listener);
      Serve(connection);
    }
    close(connection);
  }
}

// ---- the client
// ----------------------------------------------------------------------------------------------------------------------

[[noreturn]] void Unreachable(const std::string& host, const char* why) {
  std::fprintf(stderr, "ssh: connect to host %s port %d: %s\n", host.c_str(), kPort, why);
  std::exit(kUnreachable);
}

int Connect(const std::string& host) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(kPort).c_str(), &hints, &list) != 0) Unreachable(host, "unknown host");
  const int connection = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = connect(connection, list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  freeaddrinfo(list);
  if (error == EINPROGRESS) {
    pollfd wait = {connection, POLLOUT, 0};
    if (poll(&wait, 1, kConnectTimeoutMs) <= 0) Unreachable(host, std::strerror(ETIMEDOUT));
    socklen_t size = sizeof(error);
    getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) Unreachable(host, std::strerror(error));
  fcntl(connection, F_SETFL, 0);
  return connection;
}

[[noreturn]] void RunShell(const std::string& host, const std::string& command) {
  signal(SIGPIPE, SIG_IGN);
  if (access((std::string(kShared) + "/hang/" + host).c_str(), F_OK) == 0) {
    while (true) pause();
  }
  const int connection = Connect(host);
  const uint32_t size = static_cast<uint32_t>(command.size());
  WriteAll(connection, &size, sizeof(size));
  WriteAll(connection, command.data(), command.size());
  bool reading = true;
  while (true) {
    pollfd waits[2] = {{connection, POLLIN, 0}, {reading ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(waits, 2, -1) < 0) continue;
    char buffer[4096];
    if (waits[1].revents != 0) {
      const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
      if (got > 0) WriteAll(connection, buffer, static_cast<size_t>(got));
      if (got <= 0) {
        shutdown(connection, SHUT_WR);
        reading = false;
      }
    }
    if (waits[0].revents == 0) continue;
    uint8_t kind = 0;
    uint32_t length = 0;
    if (!ReadAll(connection, &kind, sizeof(kind)) || !ReadAll(connection, &length, sizeof(length)) ||
        length > sizeof(buffer) || !ReadAll(connection, buffer, length)) {
      std::fprintf(stderr, "Connection to %s closed by remote host.\n", host.c_str());
      std::exit(kUnreachable);
    }
    if (kind == kExitCode) std::exit(static_cast<uint8_t>(buffer[0]));
    WriteAll(kind == kOutput ? STDOUT_FILENO : STDERR_FILENO, buffer, length);
  }
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "lab" && argc == 2) stagecoach::RunLab();
  if (role == "host" && argc >= 3) stagecoach::RunHost(argv[2], {argv + 3, argv + argc});
  if (role == "shell" && argc > 3) {
    std::string command = argv[3];
    for (int i = 4; i < argc; ++i) command += std::string(" ") + argv[i];
    stagecoach::RunShell(argv[2], command);
  }
  std::fprintf(stderr, "usage: test_host lab | host <name> <directory>... | shell <host> <command>...\n");
  return 2;
}
