#!/usr/bin/env bash
# Clients that people use, at the versions of package-lock.json, against a real server.
# Usage: run.sh <build directory>. Exit code 77 says loudly that they could not be had here.
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/last_words.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
skip() {
  echo "SKIPPED: the clients of other people were NOT tried against the server: $*" >&2
  exit 77
}

command -v npm >/dev/null || skip "npm is not installed"
clients=$build/clients
mkdir -p "$clients"
cp "$here"/package.json "$here"/package-lock.json "$here"/.npmrc "$clients"
if ! cmp -s "$clients/package-lock.json" "$clients/installed"; then
  timeout 300 npm ci --prefix "$clients" >"$clients/npm.log" 2>&1 ||
    skip "npm could not install them: $(tail -n 3 "$clients/npm.log" | tr '\n' ' ')"
  cp "$clients/package-lock.json" "$clients/installed"
fi
node=$clients/node_modules/.bin/node # that of the lock file: Debian's is too old for some of them
"$node" --version >/dev/null || skip "the Node.js of the lock file does not run on this machine"
cp "$here"/*.mjs "$here"/*.jinja "$clients" # beside node_modules, where imports are looked for
export STAGECOACH_COORDINATOR=$build/coordinator/coordinator STAGECOACH_MODEL=$here/../../deploy/models/demo-q8_0.gguf
export STAGECOACH_SCRIPTED_SERVER=$build/tests/e2e/scripted_server
tests=("$here"/*.test.mjs)
run "$node" --test --test-concurrency=1 --test-reporter=spec "${tests[@]/#"$here"/$clients}"
