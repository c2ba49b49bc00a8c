#!/usr/bin/env bash
# The programs of a build under a real Slurm of two nodes, in a minimal Debian of its own. Usage: slurm_two_nodes.sh <build directory>
# <demo model>. Exit code 77, and the reason, where this machine does not permit a minimal Debian.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../deploy/last_words.sh"
build=$1 model=$2
code=0
"$here/minimal_root.sh" \
  --include slurmctld,slurmd,slurm-client,munge,libpmix-dev,iproute2,openmpi-bin,libprotobuf32,libtbb12,libhwloc15,libedit2,libabsl20220623 \
  --copy "$build/coordinator/coordinator:/opt/stagecoach/coordinator" --copy "$build/stage_worker/stage_worker:/opt/stagecoach/stage_worker" \
  --copy "$model:/opt/stagecoach/demo.gguf" --copy "$here:/opt/stagecoach/tests/fresh" \
  --copy "$here/../../deploy:/opt/stagecoach/deploy" \
  -- bash /opt/stagecoach/tests/fresh/as_a_slurm_user.sh || code=$?
said_why="under Slurm: exit code $code"
exit "$code"
