#ifndef STAGECOACH_TESTS_UNIT_DEPLOY_BARE_MACHINE_H_
#define STAGECOACH_TESTS_UNIT_DEPLOY_BARE_MACHINE_H_

#include <string>
#include <vector>

#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach::testing {

// A machine on which Debian was installed a minute ago, as far as a script in deploy/ can tell: PATH has a few standard
// tools, and stand-ins of what the scripts ask about packages. The scripts are copies, so this checkout stays as it is.
// cmake is a stand-in too, which fails with exit code 7: so a script ends after its step of installing.
class BareMachine {
 public:
  enum class User { kRoot, kWithSudo, kWithout };

  explicit BareMachine(User user);

  // Replaces a tool by a shell script of this body, or adds it.
  void Replace(const std::string& tool, const std::string& body);
  void Remove(const std::string& tool);
  // Puts one of the project's programs, such a script too, where a build would: "build/coordinator/coordinator".
  void InstallProgram(const std::string& path, const std::string& body);
  const std::string& path() const { return directory_.path(); }  // of the checkout

  // Runs deploy/<script>.
  ProgramResult Run(const std::string& script, const std::vector<std::string>& arguments = {});

  // What stand-ins were asked so far, a line each: "apt-get update -qq". sudo's line stands before that of its command.
  std::vector<std::string> Asked() const;

  // The packages of the first "apt-get install", in order; empty when there was none.
  std::vector<std::string> Installed() const;

 private:
  std::string Tool(const std::string& name) const { return directory_.File("bin/" + name); }

  TempDir directory_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_DEPLOY_BARE_MACHINE_H_
