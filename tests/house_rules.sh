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
# Who may include whom say CMake's lines: a folder includes what it links, and links nothing else of ours. "<name> <folders and links>".
libraries=$(for folder in common stage_worker coordinator; do
  tr '\n' ' ' <"$folder/CMakeLists.txt" | grep -oE 'stagecoach_(library|program)\([^)]*\)' |
    sed -E "s#stagecoach_program\(([a-z_]+)#\1_main $folder/main.cc#; s/stagecoach_library\(//; s/\)//; s/ +/ /g"
done)
[ -n "$libraries" ] || { echo "no libraries in CMake's files"; exit 2; }
declare -A library_of=([proto]=sc_proto)
while read -r name rest; do
  for word in $rest; do [[ $word == sc_* || $word == *::* || $word == *.cc ]] || library_of[$word]=$name; done
done <<<"$libraries"
for folder in $(grep -E "^(common|coordinator|stage_worker)/" <<<"$sources" | grep -v "/main\.cc$" | xargs -n1 dirname | sort -u); do
  [ -n "${library_of[$folder]+x}" ] || violation "$folder: is in no stagecoach_library of CMake's"
done
while read -r name rest; do
  own='' links=''
  for word in $rest; do
    case $word in
      sc_*) links+=" $word" ;;
      *::*) ;;
      *.cc) own+=" $word" ;;
      *) own+=" $(grep -E "^$word/[^/]*$" <<<"$sources" | grep -v '/main\.cc$' | tr '\n' ' ')" ;;
    esac
  done
  used=" $name "
  while IFS=: read -r file line include; do
    folder=${include#*\"} folder=${folder%/*}
    library=${library_of[$folder]:-none}
    used+="$library "
    [[ " $name$links " == *" $library "* ]] || violation "$file:$line: includes $folder, but CMake does not link $library to $name"
  done < <(xargs grep -HnoE '^#include "(common|coordinator|stage_worker|proto|tests)/[^"]+' /dev/null <<<"$own")
  for link in $links; do
    [[ $used == *" $link "* ]] || violation "$name: CMake links $link, which none of its files includes"
  done
done <<<"$libraries"

forbid '^stage_worker/' 'coordinator/' 'stage_worker never includes coordinator'
forbid '^coordinator/' 'stage_worker/' 'coordinator never includes stage_worker'
forbid '^(common|coordinator|stage_worker)/' 'tests/' 'the product never includes tests'

only_in '^(common/transport/mpi|tests)/' 'mpi\.h' '<mpi.h> lives in common/transport/mpi'
only_in '^stage_worker/kernels/' '(x86|imm|arm_neon|arm_sve)[a-z]*\.h' 'intrinsics live in stage_worker/kernels'
only_in '^(stage_worker/weights|common/parallel)/' '(tbb|oneapi)/' '<tbb/...> lives in stage_worker/weights and common/parallel'
only_in '^common/host/cpu_topology' 'hwloc' '<hwloc.h> lives in common/host/cpu_topology'
only_in "^(tests/unit/)?coordinator/(cli|doctor|perplexity|quantize|verify)/" 'CLI/' 'the command-line library lives with the verbs'
only_in '^coordinator/cli/chat/line_editor' '(histedit|editline/)' '<histedit.h> lives in coordinator/cli/chat/line_editor'

only_in '^common/json/' 'nlohmann/' '<nlohmann/...> lives in common/json'
only_in '^coordinator/serve/http/boost\.h$' 'boost/' '<boost/...> lives in coordinator/serve/http/boost.h'

# A library's messages name a job's fields; coordinator/cli turns them into flags, which a setting's declaration has. stage_worker's own
# check has arguments of its own, and mpirun has on its launch line.
flags=$(grep -hE '\.flags = |^    \{"' common/job/job_settings.h coordinator/cli/options/job_options.cc | grep -oE -- '--[a-z-]+' | sort -u | paste -sd'|')
[ "$(tr '|' '\n' <<<"$flags" | wc -l)" -gt 30 ] || { echo "few flags in common/job/job_settings.h and coordinator/cli/options/job_options.cc: $flags"; exit 2; }
while read -r hit; do violation "$hit: libraries speak of fields, the verbs of flags"; done < <(
  grep -vE '^(tests/|coordinator/(cli|doctor|perplexity|quantize|verify)/|common/job/job_settings\.h|coordinator/bench/bench_work\.cc|coordinator/launch/(launcher_backend|host_survey)\.cc|common/wire/host_report\.h|stage_worker/(main|usage|host_report|check/self_check)\.cc)' <<<"$sources" |
    xargs grep -HnE -- "\"[^\"]*($flags)([^a-z-]|\$)")

while read -r lines file; do
  [ "$file" = total ] && continue
  case $file in */unicode_tables.cc) continue ;; esac  # generated
  [ "$lines" -le 600 ] || violation "$file: $lines lines, at most 600"
done < <(xargs wc -l <<<"$sources")

# A room that holds more is two rooms.
while read -r files folder; do
  [ "$files" -le 20 ] || violation "$folder: $files files, at most 20"
done < <(find common coordinator deploy proto stage_worker tests -name __pycache__ -prune -o -type f -printf '%h\n' | sort | uniq -c)

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
