#!/usr/bin/env bash
# The server as its operators meet it: by its systemd unit's command, behind nginx with TLS, read by Prometheus' tools, asked by curl, in
# a minimal Debian of its own. Usage: served.sh <build directory> <demo model>. Exit code 77, and the reason, where this machine does not
# permit a minimal Debian or cannot have the packages.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../deploy/last_words.sh"
build=$1 model=$2
work=$(mktemp -d)
at_the_end() { rm -rf "$work"; }

code=0
"$here/minimal_root.sh" \
  --include openmpi-bin,libprotobuf32,libtbb12,libhwloc15,libabsl20220623,libedit2,curl,jq,openssl,nginx-light,systemd,prometheus \
  --copy "$build/coordinator/coordinator:/usr/local/bin/coordinator" --copy "$build/stage_worker/stage_worker:/usr/local/bin/stage_worker" \
  --copy "$model:/srv/models/demo.gguf" --copy "$here/as_an_operator.sh:/opt/as_an_operator.sh" --copy "$here/../../deploy:/opt/deploy" \
  -- bash /opt/as_an_operator.sh | tee "$work/said" || code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 77 ] && ! grep -q '^serving' "$work/said"; then
  echo "SKIPPED: no minimal Debian with nginx and Prometheus could be made; what stood in the way is said above" >&2
  code=77
fi
said_why="the server of an operator: exit code $code"
exit "$code"
