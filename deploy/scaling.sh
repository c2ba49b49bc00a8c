#!/usr/bin/env bash
# A scaling experiment: the model over growing numbers of stages, each beside what the planner predicts from a probe of the hosts and
# links (coordinator sweep). Usage:
#   deploy/scaling.sh -o DIRECTORY -m MODEL [--hostfile FILE] [option of coordinator sweep]...
# Without --pp: 1, 2, 4, ... stages up to the host file's slots, or this machine's cores. Without --concurrency: one request, for the
# latency, and eight for each stage of the largest pipeline. DIRECTORY gets the profile, the points and their report; the same command
# again goes on where an interrupted one ended. The coordinator is looked for in $STAGECOACH_BIN, the build directory of this tree, and PATH.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
source "$root/deploy/last_words.sh"

PATH=${STAGECOACH_BIN:+$STAGECOACH_BIN:}$root/build/coordinator:$PATH
command -v coordinator >/dev/null || stop 1 "there is no coordinator; build it (deploy/quickstart.sh), or set STAGECOACH_BIN"

hostfile= stages= concurrency= words=()
while [ $# -gt 0 ]; do
  case $1 in
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
    --hostfile) hostfile=${2?} && words+=("$1" "$2") && shift 2 ;;
    --pp | --pipeline-parallel-size) stages=${2?} && shift 2 ;;
    --concurrency) concurrency=${2?} && shift 2 ;;
    *) words+=("$1") && shift ;;
  esac
done

# The slots of a host file without its spare hosts; one for a line that does not say.
slots() {
  if [ -z "$hostfile" ]; then nproc && return; fi
  sed 's/#.*//' "$hostfile" | awk 'NF && !/ spare/ {n = 1; for (i = 2; i <= NF; ++i) if ($i ~ /^slots=/) n = substr($i, 7); sum += n} END {print sum + 0}'
}
if [ -z "$stages" ]; then
  most=$(slots)
  [ "$most" -gt 0 ] || stop 2 "'$hostfile' names no host"
  for ((n = 1; n < most; n *= 2)); do stages+=$n,; done
  stages+=$most
fi
largest=$(tr , '\n' <<<"$stages" | sort -n | tail -n 1)

run coordinator sweep --pp "$stages" --concurrency "${concurrency:-1,$((8 * largest))}" ${words[@]+"${words[@]}"}
