#!/usr/bin/env bash
# A scaling experiment: the model over growing numbers of stages, each beside what the planner predicts from a probe of the hosts and
# links (coordinator sweep). Usage:
#   deploy/scaling.sh -o DIRECTORY -m MODEL [--hostfile FILE] [option of coordinator sweep]...
# Without --pp: 1, 2, 4, ... stages up to the hosts' slots, or this machine's cores. Without --concurrency: one request, for the
# latency, and eight for each stage of the largest pipeline. DIRECTORY gets the profile, the points and their report; the same command
# again goes on where an interrupted one ended. The coordinator is looked for in $STAGECOACH_BIN, the build directory of this tree, and PATH.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
source "$root/deploy/last_words.sh"

PATH=${STAGECOACH_BIN:+$STAGECOACH_BIN:}$root/build/coordinator:$PATH
command -v coordinator >/dev/null || stop 1 "there is no coordinator; build it (deploy/quickstart.sh), or set STAGECOACH_BIN"

hosts= stages= concurrency= words=()
while [ $# -gt 0 ]; do
  case $1 in
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
    --hostfile) hosts=$(sed 's/#.*//' "${2?}") && words+=("$1" "$2") && shift 2 ;;
    --host) hosts=$(tr , '\n' <<<"${2?}" | sed 's/:/ slots=/') && words+=("$1" "$2") && shift 2 ;;
    --pp | --pipeline-parallel-size) stages=${2?} && shift 2 ;;
    --concurrency) concurrency=${2?} && shift 2 ;;
    *) words+=("$1") && shift ;;
  esac
done

# Of all hosts but the spare ones; one for a host that does not say.
slots() {
  [ -n "$hosts" ] || { nproc && return; }
  awk 'NF {n = 1; for (i = 2; i <= NF; ++i) {if ($i ~ /^slots=/) n = substr($i, 7)} for (i = 2; i <= NF; ++i) if ($i == "spare") n = 0; sum += n} END {print sum + 0}' <<<"$hosts"
}
if [ -z "$stages" ]; then
  most=$(slots)
  [ "$most" -gt 0 ] || stop 2 "the host file names no host that is not spare"
  for ((n = 1; n < most; n *= 2)); do stages+=$n,; done
  stages+=$most
fi
largest=$(tr , '\n' <<<"$stages" | sort -n | tail -n 1)

run coordinator sweep --pp "$stages" --concurrency "${concurrency:-1,$((8 * largest))}" ${words[@]+"${words[@]}"}
