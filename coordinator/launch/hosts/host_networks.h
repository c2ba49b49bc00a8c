#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_NETWORKS_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_NETWORKS_H_

// Which of their networks the hosts of a job use, from what the hosts say of their interfaces.
//
// Hosts have addresses that lead nowhere else: of bridges for containers and virtual machines, the same on every host.
// Open MPI pairs such addresses, too, and a rank then connects to its own host and waits for ever.

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/launch/placement.h"
#include "proto/network.pb.h"

namespace stagecoach {

struct HostInterfaces {
  std::vector<pb::HostAddress> addresses;
  std::set<std::string> used;  // of these addresses, those that the job's connections go by
};

// Addresses that several of these machines have. Those with all the same addresses are one machine.
std::set<std::string> SharedAddresses(const std::vector<HostInterfaces>& hosts);

// The addresses of a host to be tried, the best first, at most four: those of its name, then those in a network of
// `own`, then others; IPv4 first; only its own, none of its loopback; shared ones only where there are no others.
std::vector<std::string> AddressesToTry(const std::vector<pb::HostAddress>& addresses,
                                        const std::vector<std::string>& of_its_name,
                                        const std::vector<pb::HostAddress>& own, const std::set<std::string>& shared);

// What Open MPI is told so that it uses the used addresses of all hosts, and no shared one. Empty: nothing, where no
// setting says it (IPv4 and IPv6 mixed, an address that its host does not know of).
Networks ChooseNetworks(const std::vector<HostInterfaces>& hosts);

// "10.1.2.0/24"; of bits beyond 31 only 31, as Open MPI 4.1 takes /32 for every address. Empty for anything but IPv4.
std::string NetworkText(const std::string& address, int prefix_bits);
bool IsInNetwork(const std::string& address, const std::string& network_address, int prefix_bits);

// Whether the name means the machine we run on: localhost, our host name (short or full), or a name of our address.
bool IsThisHost(const std::string& name);

// The IPv4 networks by which this machine reaches the hosts, by its routes: "10.1.0.0/16,10.2.0.3/31", in the order of
// first use. Of a host in none of this machine's own networks nothing but its address is known. Empty when one of the
// hosts cannot be resolved, or not be reached by IPv4.
std::string NetworksTowards(const std::vector<std::string>& hosts);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_NETWORKS_H_
