#ifndef STAGECOACH_TESTS_E2E_SUPPORT_SERVER_H_
#define STAGECOACH_TESTS_E2E_SUPPORT_SERVER_H_

// `coordinator serve` as it is run.

#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/serve/http/http_client.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {

class Server {
 public:
  // Runs `program` with these words and waits until it says that it listens, or has ended.
  Server(const std::string& program, const Words& words,
         const std::vector<std::pair<std::string, std::string>>& environment = {});
  // The demo model on a port of its own.
  explicit Server(const Words& more);
  // One that was started by other means, in the network of the calling thread or another.
  explicit Server(std::unique_ptr<Subprocess> process);

  Subprocess& process() { return *process_; }
  int port() const { return port_; }  // 0: it does not listen
  std::string url() const;
  bool AwaitReady(double timeout_s = 60);  // the line on stderr
  ProgramResult End(int signal = SIGTERM);

  HttpReply Get(const std::string& path) const;
  HttpReply Post(const std::string& path, const Json& body) const;
  // Of a sample as it is written: name and labels; -1: there is none.
  double Metric(const std::string& sample) const { return Sum(sample + " "); }
  // Of all samples whose line begins with `begin` and has `part` in it; -1: there is none.
  double Sum(const std::string& begin, const std::string& part = "") const;

 private:
  HttpReply Call(const HttpCall& call) const;

  std::unique_ptr<Subprocess> process_;
  int port_ = 0;
};

// One that has loaded its model, or the test has failed.
class ReadyServer : public Server {
 public:
  explicit ReadyServer(const Words& more) : Server(more) { EXPECT_TRUE(AwaitReady()) << process().err(); }
};

// A model that says "Let me look.", calls the tool `look`, whose argument `where` is so many words, each of them a
// token, and ends. The words of its server's command line; its files lie in `directory`.
Words CallingServer(const TempDir& directory, int words);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_E2E_SUPPORT_SERVER_H_
