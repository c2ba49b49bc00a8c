#ifndef STAGECOACH_COORDINATOR_CLI_RANK_ZERO_H_
#define STAGECOACH_COORDINATOR_CLI_RANK_ZERO_H_

#include <functional>

namespace stagecoach {

// Runs a verb of a joined world: the engine on this, the main thread, the verb on another one, a socket between them.
// Ends the world: in order when all went well, else hard with the verb's exit code. `verb` gets the descriptor of its
// end of the socket, owns it, and returns its exit code; it is not called when the world is a wrong one.
int RunInWorld(int* argc, char*** argv, const std::function<int(int descriptor)>& verb);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_RANK_ZERO_H_
