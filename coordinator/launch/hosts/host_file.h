#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_FILE_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_FILE_H_

// Open MPI's two ways to name hosts: a file with one host a line, `name slots=N`, where `#` to the end of the line is a
// comment; and a list on the command line, `name:N,name`. Two words on a line of the file are our own: `spare`, a host
// that runs stages only in place of one that is lost, and `model=PATH`, where this host has the model file.
//
// Read as Open MPI 4.1 reads them: `slots = 2`, its other words for slots and max_slots, comments after `//`, CRLF, a
// byte-order mark. Refused, with what to write instead: user@host, username= and port= (settings of the login), IPv6
// addresses (mpirun's list of hosts cannot say them), ^host and +n0, comments between /* and */, UTF-16.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

struct HostSlots {
  std::string name;
  int slots = 1;
  bool spare = false;
  std::string model;  // absolute; empty: where the coordinator has it
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// The hosts in the file's order. A line without slots= counts one slot (Open MPI would count cores, which depends on
// the machine); a name on several lines keeps its places. max_slots= is accepted and must not be below slots. Errors
// name `file` and the line: kInvalidArgument for anything else on a line, slots outside 1..65536, a path that is not
// absolute, or a file without a host that is no spare one.
absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view file, absl::string_view text);

// A file that names hosts, whole. kNotFound when it cannot be read.
absl::StatusOr<std::string> ReadHostsText(const std::string& file);

// Reads and parses. kNotFound when it cannot be read.
absl::StatusOr<std::vector<HostSlots>> ReadHostFile(const std::string& file);

// A list, in its order: `name` is one slot more of that host, `name:N` are N. kInvalidArgument, naming the field
// `hosts` and the part, for what is no host name, a number outside 1..65536, or a list without a host.
absl::StatusOr<std::vector<HostSlots>> ParseHostList(absl::string_view text);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_FILE_H_
