#!/usr/bin/env bash
# Runs in a minimal Debian, as root, for two_commands.sh: what a stranger does with the checkout in /stagecoach.
source /stagecoach/deploy/last_words.sh
cd /

out=/tmp/out err=/tmp/err code=0
# tell <what> <lines>: the end of what it printed.
tell() {
  echo "--- $1"
  tail -n "$2" "$err" | sed 's/^/  2 /'
  tail -n "$2" "$out" | sed 's/^/  1 /'
}
wrong() {
  tell "standard error (2) and output (1):" 200
  stop 1 "$1"
}
# try <words>...: sets $code, $out and $err.
try() {
  code=0
  "$@" >"$out" 2>"$err" </dev/null || code=$?
}
# What the optimiser makes of kernels, a tenth of what the programs take to compile, is shown where they are built as they are
# shipped, by the same compiler; here are shown that the packages suffice, that all compiles and links with them, and that it runs. The
# text must be the same anyway.
export CMAKE_CXX_COMPILER_LAUNCHER=/stagecoach/tests/fresh/unoptimised.sh
as_nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/nonexistent)
has() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

! command -v sudo >/dev/null || stop 1 "this is no bare machine: it has sudo"
! has g++ || stop 1 "this is no bare machine: it has g++"

for script in quickstart.sh test.sh; do
  try "${as_nobody[@]}" "/stagecoach/deploy/$script"
  [ "$code" -eq 1 ] || wrong "$script as a user without sudo: exit code $code, expected 1"
  grep -qE '^  apt-get install --no-install-recommends g\+\+ cmake ' "$err" || wrong "$script does not print the one line"
  tell "deploy/$script as a user without sudo" 4
done
grep -q ' libgtest-dev' "$err" || wrong "test.sh's one line has no libgtest-dev"

try /stagecoach/deploy/quickstart.sh
[ "$code" -eq 0 ] || wrong "quickstart.sh: exit code $code"
grep -q '^ the heaven and the earth\.' "$out" || wrong "quickstart.sh prints other text than the demo model's"
tell "deploy/quickstart.sh" 16
for package in libgtest-dev libpcre2-dev libbenchmark-dev googletest mmdebstrap; do
  ! has "$package" || stop 1 "quickstart.sh installed $package, which running does not need"
done
cp "$out" /tmp/first

try /stagecoach/deploy/quickstart.sh -q
[ "$code" -eq 0 ] || wrong "quickstart.sh again: exit code $code"
cmp -s "$out" /tmp/first || wrong "quickstart.sh prints other text the second time"
! grep -q 'Building' "$err" || wrong "quickstart.sh builds twice"

try bash -c 'echo Hello | /stagecoach/deploy/quickstart.sh chat -q'
[ "$code" -eq 0 ] || wrong "quickstart.sh chat: exit code $code"
grep -q '^Hello! I am a small demonstration model' "$out" || wrong "quickstart.sh chat prints another answer than the demo model's"

try /stagecoach/deploy/test.sh -L smoke
[ "$code" -eq 0 ] || wrong "test.sh -L smoke: exit code $code"
grep -q '^100% tests passed, 0 tests failed out of [1-9]' "$out" || wrong "test.sh -L smoke: not every test passed"
grep -q '^Time by part' "$out" || wrong "test.sh prints no table of its time"
tell "deploy/test.sh -L smoke" 20
[ ! -e /stagecoach/build-asan ] || stop 1 "test.sh -L smoke configured the sanitizers"
for package in g++-aarch64-linux-gnu qemu-user-static mmdebstrap; do
  ! has "$package" || stop 1 "test.sh -L smoke installed $package, which its tests do not need"
done

try /stagecoach/deploy/quickstart.sh -q
[ "$code" -eq 0 ] || wrong "quickstart.sh after test.sh: exit code $code"
cmp -s "$out" /tmp/first || wrong "quickstart.sh prints other text after test.sh"
echo "a fresh machine: both commands, in either order"
