#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: text from the demo model through a pipeline of two stages.
# Arguments go to `coordinator generate` and replace this script's own model, prompt, length and number of stages. Where the first one
# is `chat` or `serve`, it is a conversation with that model, or a server of it, and the others go to `coordinator chat` or `serve`.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit
source "$root/deploy/last_words.sh"
source "$root/deploy/packages.sh"
install_missing_packages "${run_packages[@]}"

# The user's working directory stays: paths among the arguments are theirs.
if [ ! -e "$root/build/build.ninja" ]; then
  echo "Building in $root/build; this takes a few minutes the first time." >&2
  # The tests need more packages; test.sh adds both to this tree.
  run cmake -S "$root" --preset release -DSTAGECOACH_BUILD_TESTS=OFF >&2
fi
cmake --build "$root/build" --target coordinator stage_worker 2>&1 |
  { grep -vE 'no work to do|Re-checking globbed' >&2 || true; } || stop $? "the build failed with exit code $?"

verb=generate
case ${1:-} in
  chat | serve)
    verb=$1
    shift
    ;;
esac
has_model= has_prompt= has_length= has_stages= has_template=
for argument in "$@"; do
  case $argument in
    -m | -m?* | --model | --model=*) has_model=1 ;;
    -p | -p?* | --prompt | --prompt=* | -f | -f?* | --file | --file=*) has_prompt=1 ;;
    -n | -n?* | --predict | --predict=*) has_length=1 ;;
    --layer-split | --layer-split=* | --plan | --plan=* | --pp | --pp=* | --pipeline-parallel-size | --pipeline-parallel-size=* | --hostfile | --hostfile=* | --hosts | --hosts=*) has_stages=1 ;;
    --host | --host=*) [ "$verb" = serve ] || has_stages=1 ;; # of a server: the address to listen on
    --url | --url=*) has_model=1 has_stages=1 ;;              # somebody else's model and cluster
    --system | --system=* | --chat-template | --chat-template=* | --chat-template-file | --chat-template-file=*) has_template=1 ;;
  esac
done
# Text that is piped in is a prompt too.
if [ -p /dev/stdin ] || [ -f /dev/stdin ]; then read -t 0 && has_prompt=1; fi
if [ "$verb" != generate ]; then has_prompt=1 has_length=1; fi
defaults=()
[ -n "$has_model" ] || defaults+=(-m "$root/deploy/models/demo-q8_0.gguf")
# A sentence to be continued, not a question, unless it is to go through a template.
[ -n "$has_prompt" ] || defaults+=(-p "In the beginning God created")
[ -n "$has_prompt$has_template" ] || defaults+=(--raw)
[ -n "$has_length" ] || defaults+=(-n 64)
[ -n "$has_stages" ] || defaults+=(--pp 2)
exec "$root/build/coordinator/coordinator" "$verb" "${defaults[@]}" "$@"
