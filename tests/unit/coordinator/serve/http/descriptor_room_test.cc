#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/serve/http/served.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

rlim_t SoftLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// The soft limit while it lives.
class SoftLimitOf {
 public:
  explicit SoftLimitOf(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(files, before_.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~SoftLimitOf() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// In fours: an exit code is small.
int RoomInAChildWith(rlim_t hard, int wanted) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {std::min<rlim_t>(hard, 32), hard};
    _exit(setrlimit(RLIMIT_NOFILE, &limit) != 0 ? 255 : DescriptorRoom(wanted) / 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DescriptorRoom, IsMadeByRaisingTheSoftLimitNoFurtherThanNeeded) {
  const SoftLimitOf few(64);
  EXPECT_EQ(DescriptorRoom(100), 100);
  EXPECT_EQ(SoftLimit(), 100u + kOtherDescriptors);
  EXPECT_EQ(DescriptorRoom(50), 50);
  EXPECT_EQ(SoftLimit(), 100u + kOtherDescriptors);
}

TEST(DescriptorRoom, IsWhatTheHardLimitLeavesWhereThatCannotBeRaised) {
  EXPECT_EQ(RoomInAChildWith(kOtherDescriptors + 400, 1000), 400 / 4);
  EXPECT_EQ(RoomInAChildWith(128, 1000), 64 / 4) << "of few the others get half";
  EXPECT_EQ(RoomInAChildWith(128, 20), 20 / 4);
}

TEST(DescriptorRoom, AServerTakesWhatItNeedsOfTheUsualLimit) {
  const SoftLimitOf usual(256);
  const Served served;
  EXPECT_GE(SoftLimit(), 1024u);
}

// A socket that exists before there are no more, and connects then.
class LateClient {
 public:
  LateClient() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~LateClient() { close(descriptor_); }

  std::string Get(int port) const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience = {10, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return "";
    const std::string request = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (send(descriptor_, request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
    std::string answer(4096, '\0');
    const ssize_t received = recv(descriptor_, &answer[0], answer.size(), 0);
    return answer.substr(0, std::max<ssize_t>(received, 0));
  }

 private:
  const int descriptor_;
};

TEST(DescriptorRoom, AServerWithoutDescriptorsClosesTheConnectionThatIdledLongestForANewOne) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors to see whether memory is there";
  Served served;
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<RawClient>(served.server->port()));
  ASSERT_TRUE(ComesTrue([&] { return served.Counters().idle == 10; }));
  const LateClient first, second;
  const int next = open("/", O_RDONLY | O_CLOEXEC);  // the lowest free number; those above it are not to be had
  close(next);
  const SoftLimitOf none_left(static_cast<rlim_t>(next));
  EXPECT_THAT(first.Get(served.server->port()), HasSubstr("200 OK"));
  EXPECT_THAT(second.Get(served.server->port()), HasSubstr("200 OK"));
  EXPECT_LE(served.Counters().idle_closed, 3) << "one descriptor is kept free";
  EXPECT_TRUE(silent.front()->ReadAll().empty());
  EXPECT_TRUE(silent.front()->closed());
}

}  // namespace
}  // namespace stagecoach
