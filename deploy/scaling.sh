#!/usr/bin/env bash
# A scaling experiment: the model over growing numbers of stages, each beside what the planner predicts from a probe of the hosts and
# links (coordinator sweep). Usage:
#   deploy/scaling.sh -o DIRECTORY -m MODEL [--hostfile FILE] [option of coordinator sweep]...
# Without --pp: 1, 2, 4, ... stages up to the slots of the hosts, else up to this machine's cores, but never more than the model has
# layers. Without --concurrency: one request, for the latency, and eight for each stage of the largest pipeline. DIRECTORY gets the
# profile, the points and their report; the same command again goes on where an interrupted one ended. The coordinator is looked for in
# $STAGECOACH_BIN, the build directory of this tree, and PATH.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
source "$root/deploy/last_words.sh"

PATH=${STAGECOACH_BIN:+$STAGECOACH_BIN:}$root/build/coordinator:$PATH
command -v coordinator >/dev/null || stop 1 "there is no coordinator; build it (deploy/quickstart.sh), or set STAGECOACH_BIN"

host_file= host_list= stages= concurrency= model= shape= type= words=()
while [ $# -gt 0 ]; do
  case $1 in
    --hostfile=* | --host=* | --pp=* | --pipeline-parallel-size=* | --concurrency=* | --model=* | --shape=* | --type=*)
      set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
  esac
  case $1 in
    --hostfile | --host | --pp | --pipeline-parallel-size | --concurrency | -m | --model | --shape | --type)
      [ $# -gt 1 ] || stop 2 "$1 needs a value" ;;
  esac
  case $1 in
    --hostfile) host_file=$2 ;;
    --host) host_list=$2 ;;
    --pp | --pipeline-parallel-size) stages=$2 ;;
    --concurrency) concurrency=$2 ;;
    -m | --model) model=$2 ;;
    --shape) shape=$2 ;;
    --type) type=$2 ;;
  esac
  case $1 in
    --pp | --pipeline-parallel-size | --concurrency) shift 2 ;; # given below
    --hostfile | --host | -m | --model | --shape | --type) words+=("$1" "$2") && shift 2 ;;
    *) words+=("$1") && shift ;;
  esac
done

# In the lines of a host file: of all hosts but the spare ones, one for a host that does not say.
sum_of_slots() {
  awk '{sub(/#.*/, ""); n = $1 == "" ? 0 : 1
        for (i = 2; i <= NF; ++i) if ($i ~ /^slots=/) n = substr($i, 7)
        for (i = 2; i <= NF; ++i) if ($i == "spare") n = 0
        sum += n}
       END {print sum + 0}'
}
slots() {
  if [ -n "$host_file" ]; then
    sum_of_slots <"$host_file"
  elif [ -n "$host_list" ]; then
    sed 's/,/\n/g' <<<"$host_list" | sed 's/:/ slots=/' | sum_of_slots
  elif [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    echo "${SLURM_NTASKS:-$SLURM_JOB_NUM_NODES}"
  else
    nproc
  fi
}
# Nothing for a model that cannot be read, which the sweep will say.
layers() {
  local path=$model
  [ -z "$shape" ] || path=dummy://$shape/$type
  { coordinator inspect -m "$path" --json 2>/dev/null || true; } | awk -F '[:,]' '$1 ~ /"layers"/ {print $2 + 0}'
}
if [ -z "$stages" ]; then
  [ -z "$host_file" ] || [ -f "$host_file" ] || stop 4 "there is no host file '$host_file'"
  most=$(slots)
  [ "$most" -gt 0 ] || stop 2 "the host file names no host that is not spare"
  fit=$(layers)
  [ "${fit:-0}" -le 0 ] || [ "$most" -le "$fit" ] || most=$fit
  for ((n = 1; n < most; n *= 2)); do stages+=$n,; done
  stages+=$most
fi

largest=1
IFS=, read -r -a list <<<"$stages"
for n in "${list[@]}"; do
  if [[ $n =~ ^[0-9]{1,4}$ ]] && [ "$n" -gt "$largest" ]; then largest=$n; fi
done
together=$((8 * 10#$largest))
[ "$together" -le 512 ] || together=512 # rows of a micro-batch
run coordinator sweep --pp "$stages" --concurrency "${concurrency:-1,$together}" ${words[@]+"${words[@]}"}
