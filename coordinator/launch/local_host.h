#ifndef STAGECOACH_COORDINATOR_LAUNCH_LOCAL_HOST_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LOCAL_HOST_H_

// What this machine's interfaces say about a host name.

#include <string>
#include <vector>

namespace stagecoach {

// Whether the name means the machine we run on: localhost, our host name (short or full), or a name of one of our
// addresses.
bool IsThisHost(const std::string& name);

// The IPv4 networks by which this machine reaches the hosts, by its routes: "10.1.0.0/16,10.2.0.3/31", in the order of
// first use. Of a host in none of this machine's own networks nothing but its address is known. Empty when one of the
// hosts cannot be resolved, or not be reached by IPv4.
std::string NetworksTowards(const std::vector<std::string>& hosts);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LOCAL_HOST_H_
