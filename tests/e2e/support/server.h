#ifndef STAGECOACH_TESTS_E2E_SUPPORT_SERVER_H_
#define STAGECOACH_TESTS_E2E_SUPPORT_SERVER_H_

// `coordinator serve` as it is run, and a client of it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/http/http_client.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/comes_true.h"

namespace stagecoach::testing {

// Of the choice 0.
struct ServedAnswer {
  int status = 0;
  std::string body;  // whole, of one that is no stream
  std::string text;
  std::string finish_reason;
  bool done = false;  // a stream that ended as it should
  std::string error;  // of the connection
};

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

  HttpReply Get(const std::string& path) const;
  HttpReply Post(const std::string& path, const Json& body) const;
  // The answer to a completion or a conversation; `on_text`: as its text grows; false: enough.
  ServedAnswer Ask(const std::string& path, Json body,
                   const std::function<bool(const ServedAnswer&)>& on_text = nullptr) const;
  // Of a sample as it is written: name and labels; -1: there is none.
  double Metric(const std::string& sample) const;

 private:
  HttpReply Call(const HttpCall& call) const;

  std::unique_ptr<Subprocess> process_;
  int port_ = 0;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_E2E_SUPPORT_SERVER_H_
