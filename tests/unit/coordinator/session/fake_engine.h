#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SESSION_FAKE_ENGINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SESSION_FAKE_ENGINE_H_

// The test program itself can stand in for mpirun, for the engine and for a stage, so that sessions are tested with
// real processes and no model. What it does is told by words after "--fake" on mpirun's command line, e.g. "--fake
// die_after=7,launches=2", or, for an engine under a real mpirun, in STAGECOACH_FAKE_ENGINE:
//
//   state=FILE        one line is appended at each launch: pid, then the paths after --cleanup
//   launches=N        misbehave in the first N launches only (default: in all)
//   die_after=K       SIGKILL oneself after K tokens of this launch; 0: right after JobReady
//   stop_after=K      SIGSTOP oneself instead
//   mute_end=1        SIGKILL oneself in place of the first RequestFinished
//   duplicate=1       report each token twice
//   status=1          report the status after every token
//   gap=1             leave the second token out
//   exit=C            print a line and exit with C at once, before connecting
//   never=1           never connect
//   slow_relaunch=MS  from the second launch on, wait so long before connecting
//   reject_resumed=1  reject every request that comes with output
//   children=1        start two processes that ignore SIGTERM, one of them an orphan
//   changed=1         report another fingerprint from the second launch on
//   failed=final|lost report JobFailed in place of JobReady
//   hostile=KIND      in place of JobReady: length, garbage, submit, unknown_request, negative_token, torn
//   crash_on=T        end as mpirun does when stage 0 crashed, as soon as a request whose prompt holds token T is
//   computed short=N           report that memory is short in place of JobReady, in the launches from the second to the
//   Nth told=1            insist that every launch but the first is told the files' fingerprints and of
//                     the KV tokens that a relaunch needs
//   environment=FILE  write all environment variables there

#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace stagecoach {

// Runs a role when the command line asks for one and does not return then.
void MaybeRunFakeProgram(int argc, char** argv);

// The token a fake engine produces at a position of a sequence; never 0.
TokenId FakeToken(const std::vector<TokenId>& prompt, uint64_t seed, int64_t position);

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SESSION_FAKE_ENGINE_H_
