#!/usr/bin/env bash
# Holds the rules of the house: which module may include which, the one home of every vendor header, and how long a file may be.
# Usage: house_rules.sh <source directory>. Prints every violation; exits 1 when there is one.
set -u
cd "$1" || exit 2
failures=0
violation() { echo "$1"; failures=$((failures + 1)); }

sources=$(find common coordinator stage_worker tests -name '*.h' -o -name '*.cc' | sort)
[ -n "$sources" ] || { echo "no sources below $1"; exit 2; }

# forbid <files' pattern> <pattern of the include> <why>
forbid() {
  local hits
  hits=$(grep -E "$1" <<<"$sources" | xargs -r grep -HnE "^#include [<\"]$2" /dev/null)
  [ -z "$hits" ] || while read -r hit; do violation "$hit: $3"; done <<<"$hits"
}
# only_in <home's pattern> <pattern of the include> <why>
only_in() {
  local hits
  hits=$(grep -vE "$1" <<<"$sources" | xargs -r grep -HnE "^#include [<\"]$2" /dev/null)
  [ -z "$hits" ] || while read -r hit; do violation "$hit: $3"; done <<<"$hits"
}
# allow <directory> <directories it may include, as a pattern>: of our own modules.
allow() {
  local hits
  hits=$(grep -E "^$1/[^/]*$" <<<"$sources" | xargs -r grep -HnE '^#include "(common|coordinator|stage_worker|proto|tests)/' /dev/null |
    grep -vE "#include \"($1|$2)/[^/]*\"")
  [ -z "$hits" ] || while read -r hit; do violation "$hit: $1 may include $2 only"; done <<<"$hits"
}

allow common/base 'common/base'
allow common/quant 'common/base'
allow common/step 'common/base'
allow common/gguf 'common/(base|quant)'
allow common/model 'common/(base|quant|gguf)'
allow common/wire 'common/(base|step)|proto'
allow common/transport 'common/(base|step|wire)|proto'
allow common/transport/mpi 'common/(base|step|wire|transport)|proto'
allow common/parallel 'common/base'
allow common/obs 'common/(base|step)'
allow coordinator/request 'common/(base|step)'
allow coordinator/schedule 'common/(base|step)|coordinator/request'
forbid '^stage_worker/' 'coordinator/' 'stage_worker never includes coordinator'
forbid '^coordinator/' 'stage_worker/' 'coordinator never includes stage_worker'
forbid '^(common|coordinator|stage_worker)/' 'tests/' 'the product never includes tests'

only_in '^(common/transport/mpi|tests)/' 'mpi\.h' '<mpi.h> lives in common/transport/mpi'
only_in '^stage_worker/kernels/' '(x86|imm|arm_neon|arm_sve)[a-z]*\.h' 'intrinsics live in stage_worker/kernels'
only_in '^(stage_worker/weights|common/parallel)/' '(tbb|oneapi)/' '<tbb/...> lives in stage_worker/weights and common/parallel'
only_in '^common/base/cpu_topology' 'hwloc' '<hwloc.h> lives in common/base/cpu_topology'
only_in '^(coordinator/cli|tests/unit/cli)/' 'CLI/' 'the command-line library lives in coordinator/cli'

while read -r lines file; do
  [ "$file" = total ] && continue
  case $file in */unicode_tables.cc) continue ;; esac  # generated
  [ "$lines" -le 600 ] || violation "$file: $lines lines, at most 600"
done < <(xargs wc -l <<<"$sources")

placeholders=$(grep -nE '@[A-Z_]+@' README.md)
[ -z "$placeholders" ] || violation "README.md: a placeholder was left: $placeholders"

for entry in * .[a-z]*; do
  case $entry in
    CMakeLists.txt | proto | stage_worker | coordinator | common | tests | deploy | README.md | LICENSE | CMakePresets.json) ;;
    build | build-*) ;;
    .*) ;;
    *) violation "$entry: does not belong to the top level" ;;
  esac
done

[ "$failures" -eq 0 ] && echo "the rules hold for $(wc -l <<<"$sources") files"
exit $((failures > 0))
