#!/usr/bin/env bash
# The README's two commands on a Debian that was installed a minute ago. Usage: two_commands.sh <source directory>
# Exit code 77, and the reason, where this machine does not permit a minimal Debian.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../deploy/last_words.sh"
copy=$(mktemp -d)
at_the_end() { rm -rf "$copy"; }

# The working tree as it is, without what was built in it.
tar -C "$1" --exclude=./build --exclude='./build-*' --exclude=./.git --exclude=./.cache -c . | tar -C "$copy" -x
code=0
"$here/minimal_root.sh" --network --copy "$copy:/stagecoach" -- bash /stagecoach/tests/fresh/as_a_stranger.sh || code=$?
said_why="the two commands on a fresh machine: exit code $code"
exit "$code"
