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
declare -A allowed
allow() {
  local hits
  allowed[$1]=$2
  hits=$(grep -E "^$1/[^/]*$" <<<"$sources" | xargs -r grep -HnE '^#include "(common|coordinator|stage_worker|proto|tests)/' /dev/null |
    grep -vE "#include \"($1|$2)/[^/]*\"")
  [ -z "$hits" ] || while read -r hit; do violation "$hit: $1 may include ${2:-nothing else of ours} only"; done <<<"$hits"
}

# The libraries of CMake: "<name> <folder> <libraries linked>" a line.
libraries=$(cat common/CMakeLists.txt coordinator/CMakeLists.txt stage_worker/CMakeLists.txt | tr '\n' ' ' |
  grep -oE 'stagecoach_library\([^)]*\)' | sed -E 's/stagecoach_library\(//; s/\)//; s/ +/ /g')
[ -n "$libraries" ] || { echo "no libraries in CMake's files"; exit 2; }
declare -A library_of folder_of
while read -r name folder _; do
  library_of[$folder]=$name
  folder_of[$name]=$folder
done <<<"$libraries"
library_of[proto]=sc_proto
folder_of[sc_proto]=proto
differences=$(mktemp)
trap 'rm -f "$differences"' EXIT

# The table: every folder of the three programs, and what it may include beside itself.
allow common/base ''
allow common/json 'common/base'
allow common/quant 'common/base'
allow common/step 'common/base'
allow common/job 'common/base'
allow common/gguf 'common/(base|quant)'
allow common/model 'common/(base|job|quant|gguf)'
allow common/parallel 'common/base'
allow common/obs 'common/(base|json|step)'
allow common/net 'common/base|proto'
allow common/wire 'common/(base|job|step)|proto'
allow common/transport 'common/(base|job|step|wire)|proto'
allow common/transport/mpi 'common/(base|step|wire|transport)|proto'

allow stage_worker/kernels 'common/(base|job|quant)'
allow stage_worker/exec 'common/base'
allow stage_worker/kv 'common/(base|step|model)|stage_worker/(exec|kernels)'
allow stage_worker/sample 'common/(base|step)|stage_worker/kernels'
allow stage_worker/weights 'common/(base|quant|gguf|model)|stage_worker/(exec|kernels)'
allow stage_worker/model 'common/(base|job|quant|gguf|model|step)|stage_worker/(exec|kernels|kv|sample|weights)'
allow stage_worker/check 'common/(base|job|quant)|stage_worker/(exec|kernels)'
allow stage_worker/stream 'common/(base|gguf|model|wire|transport)|proto'
allow stage_worker/probe 'common/(base|job|model|step)|stage_worker/(exec|model)'
allow stage_worker 'common/(base|job|model|net|step|wire|transport|transport/mpi)|proto|stage_worker/(check|exec|kernels|model|probe|stream)'

allow coordinator/text 'common/(base|gguf)'
allow coordinator/text/jinja 'common/(base|json)|coordinator/text'
allow coordinator/text/chat 'common/(base|json|gguf)|coordinator/text|coordinator/text/jinja'
allow coordinator/text/output 'common/(base|json)'
allow coordinator/request 'common/(base|step)'
allow coordinator/schedule/policy 'common/(base|job|step)'
allow coordinator/schedule 'common/(base|job|step)|coordinator/(request|schedule/policy)'
allow coordinator/plan 'common/(base|json|job|model|step|wire)|proto'
allow coordinator/pipeline 'common/(base|gguf|model|step|wire|transport)|proto|coordinator/plan'
allow coordinator/channel 'common/(base|step|wire)|proto'
allow coordinator/engine 'common/(base|job|obs|step|transport)|coordinator/(pipeline|request|schedule)'
allow coordinator/trace 'common/(base|json|obs|step)'
allow coordinator/job 'common/(base|job|model|obs|step|wire|transport)|proto|coordinator/(channel|engine|pipeline|plan|schedule|trace)'
allow coordinator/launch 'common/(base|job|net|wire)|proto|coordinator/channel'
allow coordinator/front 'common/(base|json|gguf|model|step|wire)|proto|coordinator/(channel|launch|request|text|text/output|trace)'
allow coordinator/http 'common/base|coordinator/request'
allow coordinator/bench 'common/(base|json|gguf|job|model|quant|step|wire)|proto|coordinator/(front|http|launch|request)'
allow coordinator/front/metrics 'common/(base|json|wire)|proto|coordinator/(front|text)'
allow coordinator/front/api 'common/(base|json|step)|proto|coordinator/(front|text|text/chat|text/output)'
allow coordinator/http/service 'common/(base|json|gguf|model|wire)|proto|coordinator/(front|front/api|front/metrics|http|text/chat|text/output)'
allow coordinator/sim 'common/(base|job|obs|step)|coordinator/(bench|engine|pipeline|plan|schedule|trace)'
allow coordinator/report 'common/(base|json)|coordinator/bench'
allow coordinator/cli/chat 'common/(base|json)|coordinator/(front|text|text/chat)'
allow coordinator/cli 'common/.*|proto|coordinator/.*'
allow coordinator 'common/(base|json|transport/mpi)|coordinator/(cli|front)'
for folder in $(grep -E '^(common|coordinator|stage_worker)/' <<<"$sources" | xargs -n1 dirname | sort -u); do
  [ -n "${allowed[$folder]+x}" ] || violation "$folder: has no line in the table of includes"
done

# CMake says the same: what a folder includes it links, what it links it may include.
while read -r name folder links; do
  for file in $(grep -E "^$folder/[^/]*$" <<<"$sources" | grep -v '/main\.cc$'); do
    grep -oE '^#include "(common|coordinator|stage_worker|proto)/[^"]*/?' "$file"
  done | sed -E 's/^#include "//; s#/[^/]*$##' | sort -u | while read -r included; do
    [ "$included" = "$folder" ] || [[ " $links " == *" ${library_of[$included]:-sc_${included##*/}} "* ]] ||
      echo "$folder: includes $included, but CMake does not link ${library_of[$included]:-its library} to $name"
  done
  for link in $links; do
    [ -n "${folder_of[$link]:-}" ] || continue
    grep -qxE "${allowed[$folder]:-}" <<<"${folder_of[$link]}" ||
      echo "$folder: CMake links $link to $name, but it may include ${allowed[$folder]:-nothing} only"
  done
done <<<"$libraries" >"$differences"
while read -r line; do violation "$line"; done <"$differences"

forbid '^stage_worker/' 'coordinator/' 'stage_worker never includes coordinator'
forbid '^coordinator/' 'stage_worker/' 'coordinator never includes stage_worker'
forbid '^(common|coordinator|stage_worker)/' 'tests/' 'the product never includes tests'

only_in '^(common/transport/mpi|tests)/' 'mpi\.h' '<mpi.h> lives in common/transport/mpi'
only_in '^stage_worker/kernels/' '(x86|imm|arm_neon|arm_sve)[a-z]*\.h' 'intrinsics live in stage_worker/kernels'
only_in '^(stage_worker/weights|common/parallel)/' '(tbb|oneapi)/' '<tbb/...> lives in stage_worker/weights and common/parallel'
only_in '^common/base/cpu_topology' 'hwloc' '<hwloc.h> lives in common/base/cpu_topology'
only_in "^(coordinator/cli|tests/unit/coordinator/cli)/" 'CLI/' 'the command-line library lives in coordinator/cli'
only_in '^coordinator/cli/chat/line_editor' '(histedit|editline/)' '<histedit.h> lives in coordinator/cli/chat/line_editor'

only_in '^common/json/' 'nlohmann/' '<nlohmann/...> lives in common/json'
only_in '^coordinator/http/boost\.h$' 'boost/' '<boost/...> lives in coordinator/http/boost.h'

# A library's messages name a job's fields; coordinator/cli turns them into flags, which a setting's declaration has. stage_worker's own
# check has arguments of its own, and mpirun has on its launch line.
flags=$(grep -hE '\.flags = |^    \{"' common/job/job_settings.h coordinator/cli/job_options.cc | grep -oE -- '--[a-z-]+' | sort -u | paste -sd'|')
[ "$(tr '|' '\n' <<<"$flags" | wc -l)" -gt 30 ] || { echo "few flags in common/job/job_settings.h and coordinator/cli/job_options.cc: $flags"; exit 2; }
while read -r hit; do violation "$hit: libraries speak of fields, coordinator/cli of flags"; done < <(
  grep -vE '^(tests/|coordinator/cli/|common/job/job_settings\.h|coordinator/bench/bench_work\.cc|coordinator/launch/(launcher_backend|host_survey)\.cc|common/wire/host_report\.h|stage_worker/(main|usage|host_report|check/self_check)\.cc)' <<<"$sources" |
    xargs grep -HnE -- "\"[^\"]*($flags)([^a-z-]|\$)")

while read -r lines file; do
  [ "$file" = total ] && continue
  case $file in */unicode_tables.cc) continue ;; esac  # generated
  [ "$lines" -le 600 ] || violation "$file: $lines lines, at most 600"
done < <(xargs wc -l <<<"$sources")

# What people read: a short front page, and no page that names a file which is not there.
pages=(README.md deploy/README.md deploy/docs/*.md deploy/docs/clients/*.md)
placeholders=$(grep -nE '@[A-Z_]+@' "${pages[@]}")
[ -z "$placeholders" ] || violation "a placeholder was left: $placeholders"
words=$(wc -w <README.md)
[ "$words" -le 1200 ] || violation "README.md: $words words, at most 1200"
for page in "${pages[@]}"; do
  while read -r target; do
    [ -e "$(dirname "$page")/${target%%#*}" ] || violation "$page: links to $target, which is not there"
  done < <(grep -oE '\]\([^)]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^(https?:|#)')
  while read -r file; do
    [ -e "$file" ] || violation "$page: names $file, which is not there"
  done < <(grep -oE '(common|coordinator|stage_worker|proto|tests|deploy)/[A-Za-z0-9_/.-]+\.(h|cc|proto|py|sh|sbatch|yaml|json)\b' "$page" | sort -u)
done

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
