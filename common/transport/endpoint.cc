#include "common/transport/endpoint.h"

namespace stagecoach {

const char* ChannelName(Channel channel) {
  switch (channel) {
    case Channel::kSetup: return "setup";
    case Channel::kStep: return "step";
    case Channel::kResult: return "result";
    case Channel::kTelemetry: return "telemetry";
    case Channel::kWeights: return "weights";
  }
  return "unknown";
}

}  // namespace stagecoach
