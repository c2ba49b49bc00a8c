# Sourced first by the scripts here, so that none of them ever ends in silence: with an error, or by a signal, the last line on
# standard error says which command it was, or why. A script that has more to say at its end defines `at_the_end`.

set -Eeuo pipefail

said_why=
failed_command=
trap 'failed_command="\"$BASH_COMMAND\" (${BASH_SOURCE[0]}, line $LINENO)"' ERR
trap 'last_words $?' EXIT
trap 'stop 129 "the terminal was closed"' HUP
trap 'stop 130 "interrupted"' INT
trap 'stop 141 "nobody reads its output any more"' PIPE
trap 'stop 143 "ended by a signal"' TERM

# stop <exit code> <why>: ends the script.
stop() {
  said_why=${*:2}
  exit "$1"
}

# run <command>...: of a command that fails, the words are shown as it was given them, and its exit code becomes the script's.
run() {
  local code=0
  "$@" || code=$?
  [ "$code" -eq 0 ] || stop "$code" "\"$*\" failed with exit code $code"
}

last_words() {
  trap '' HUP INT PIPE TERM
  if [ "$(type -t at_the_end)" = function ]; then at_the_end "$1" || true; fi
  [ "$1" -eq 0 ] || echo "$0: ${said_why:-${failed_command:-it} failed with exit code $1}$(full_disk)" >&2
}

# A compiler that finds no room crashes in many ways, few of which name it.
full_disk() {
  local free_mib
  free_mib=$(df --output=avail -BM "$PWD" 2>/dev/null | tr -dc 0-9) || return 0
  [ "${free_mib:-1000}" -ge 1000 ] || echo "; the disk of $PWD has only $free_mib MiB left, and the whole suite takes 5 GB"
}
