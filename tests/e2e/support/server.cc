#include "tests/e2e/support/server.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/reciting_model.h"

namespace stagecoach::testing {
namespace {

constexpr char kListens[] = "listening on http://127.0.0.1:";

}  // namespace

Server::Server(const std::string& program, const Words& words,
               const std::vector<std::pair<std::string, std::string>>& environment)
    : Server(std::make_unique<Subprocess>(program, words, environment)) {}

Server::Server(std::unique_ptr<Subprocess> process) : process_(std::move(process)) {
  if (!process_->WaitForOutput("; the model loads", 60)) return;
  const std::vector<std::string> parts = absl::StrSplit(process_->err(), absl::MaxSplits(kListens, 1));
  if (parts.size() == 2 && !absl::SimpleAtoi(parts[1].substr(0, parts[1].find(';')), &port_)) port_ = 0;
}

Server::Server(const Words& more)
    : Server(CoordinatorProgram(), Joined({"serve", "-m", DemoModelPath(), "--port", "0"}, more)) {}

std::string Server::url() const { return absl::StrCat("http://127.0.0.1:", port_); }

bool Server::AwaitReady(double timeout_s) { return process_->WaitForOutput("ready: ", timeout_s); }

ProgramResult Server::End(int signal) {
  process_->Kill(signal);
  return process_->Wait(60);
}

Words CallingServer(const TempDir& directory, int words) {
  std::vector<std::string> tokens = {"Let me look.\n", "<tool_call>", "\n{\"name\": \"look\", ",
                                     "\"arguments\": {\"where\": \""};
  for (int i = 0; i < words; ++i) tokens.push_back(absl::StrCat("word ", i, "; "));
  tokens.insert(tokens.end(), {"\"}}", "\n</tool_call>"});
  const std::string model = WriteModel(directory.File("calling.gguf"), RecitingModel(tokens));
  WriteFileOrDie(directory.File("calling.jinja"),
                 "{% for t in tools %}<tool_call>{{ t.function.name }} and arguments{% endfor %}"
                 "{% for m in messages %}{{ m.content }}\n{% endfor %}");
  return {"serve", "-m", model, "--port", "0", "--chat-template-file", directory.File("calling.jinja")};
}

HttpReply Server::Call(const HttpCall& call) const {
  HttpClient client({"127.0.0.1", port_, ""}, {});
  absl::StatusOr<HttpReply> reply = client.Call(call);
  if (reply.ok()) return *std::move(reply);
  HttpReply failed;
  failed.body = std::string(reply.status().message());
  return failed;
}

HttpReply Server::Get(const std::string& path) const {
  HttpCall call;
  call.path = path;
  return Call(call);
}

HttpReply Server::Post(const std::string& path, const Json& body) const {
  HttpCall call;
  call.method = "POST";
  call.path = path;
  call.body = body.dump();
  return Call(call);
}

double Server::Sum(const std::string& begin, const std::string& part) const {
  double sum = -1;
  for (const std::string& line : Lines(Get("/metrics").body)) {
    double value = 0;
    if (!absl::StartsWith(line, begin) || !absl::StrContains(line, part)) continue;
    if (absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) sum = std::max(sum, 0.0) + value;
  }
  return sum;
}

}  // namespace stagecoach::testing
