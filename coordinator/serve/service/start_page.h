#ifndef STAGECOACH_COORDINATOR_SERVE_SERVICE_START_PAGE_H_
#define STAGECOACH_COORDINATOR_SERVE_SERVICE_START_PAGE_H_

// What a browser shows at the address of a server: what it is, its model, its state, where to go on. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/serve/http/http_request.h"

namespace stagecoach {

struct StartPageFacts {
  std::string version;
  std::vector<std::string> models;  // names, the first is shown first
  std::string state;                // "ready", "loading"
  std::string detail;               // one sentence about the state; empty: none
  bool settled = true;              // else the browser asks for the page again
  int64_t context_tokens = 0;       // 0: not known yet
  int stages = 0;                   // 0: not known yet
  int64_t calls = 0;                // open
  int64_t waiting = 0, places = 0;  // taken and all in the queue
  std::string base_url;             // without /v1
};

// One page of HTML that needs nothing else and runs no script. Facts may hold any characters.
HttpResponse StartPage(const StartPageFacts& facts);

// How the client of a request reached this server, "https://chat.example": by its Host, and what a proxy in front says
// of the scheme. `address` where it does not say.
std::string BaseUrlOf(const HttpRequest& request, const std::string& address);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_SERVICE_START_PAGE_H_
