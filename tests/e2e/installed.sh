#!/usr/bin/env bash
# What `cmake --install` puts into an empty prefix: programs that run from there, from any directory, also when the prefix is moved;
# manual pages without a warning, one for every verb; completion of the real options in bash.
# Usage: installed.sh <build directory> <demo model>
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit
source "$here/../../deploy/last_words.sh"
build=$1 model=$2
work=$(mktemp -d)
at_the_end() { rm -rf "$work"; }

run cmake --install "$build" --prefix "$work/first" >"$work/log"
mkdir "$work/some where"
mv "$work/first" "$work/some where/else"
prefix=$work/"some where"/else
export PATH=$prefix/bin:$PATH
cd /

# ---- the programs --------------------------------------------------------------------------------------------------------------------

question=(-m "$model" --raw -p "In the beginning God created" -n 16 -t 1 -q)
run "$build/coordinator/coordinator" generate "${question[@]}" --pp 2 >"$work/expected" </dev/null
run coordinator generate "${question[@]}" --pp 2 >"$work/answer" </dev/null
cmp "$work/expected" "$work/answer" || stop 1 "the installed programs print other text than those of the build"
stage=$(coordinator generate "${question[@]}" --dry-run </dev/null)
[[ $stage == *"$prefix/bin/stage_worker"* ]] || stop 1 "the launch line has another stage_worker than the installed one: $stage"

# ---- manual pages --------------------------------------------------------------------------------------------------------------------

man=$prefix/share/man/man1
verbs=$(coordinator help | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<<"$verbs")" -ge 12 ] || stop 1 "coordinator help lists too few verbs: $verbs"
for page in coordinator stage_worker $(sed 's/^/coordinator-/' <<<"$verbs"); do
  [ -s "$man/$page.1" ] || stop 1 "no manual page $page.1"
done
for page in "$man"/*.1; do
  warnings=$(groff -ww -b -z -man -K utf8 -T utf8 "$page" 2>&1) || stop 1 "$page: $warnings"
  [ -z "$warnings" ] || stop 1 "$page: $warnings"
done
# The page of a verb has every option of its help.
for verb in $verbs; do
  [ "$verb" != help ] || continue
  page=$(groff -P-cbou -man -K utf8 -T utf8 "$man/coordinator-$verb.1")
  for option in $(coordinator "$verb" --help | grep -oE '^  -[-A-Za-z0-9,]+' | tr , ' '); do
    grep -qE -- "(^|[ ,])$option([ ,]|\$)" <<<"$page" || stop 1 "the page of $verb lacks $option"
  done
done

# ---- completion ----------------------------------------------------------------------------------------------------------------------

source "$prefix/share/bash-completion/completions/coordinator"
# completes <expected among the answers> <word>...: the last word is the one being typed.
completes() {
  COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
  _coordinator
  [[ " ${COMPREPLY[*]} " == *" $1 "* ]] || stop 1 "'${*:2}' is not completed to $1 but to: ${COMPREPLY[*]}"
}
completes generate coordinator gen
for verb in $verbs; do
  completes "$verb" coordinator "$verb"
  completes --help coordinator "$verb" --he
done
completes --hostfile coordinator batch --hostf
completes interleaved coordinator generate --policy ''
completes stream coordinator generate --weights = str
completes json coordinator bench -o ''
completes zsh coordinator completion ''
cd "$(dirname "$model")"
completes "${model##*/}" coordinator generate -m ''
completes summary coordinator trace ''
completes "${model##*/}" coordinator trace summary ''
[ -s "$prefix/share/zsh/site-functions/_coordinator" ] || stop 1 "no completion for zsh"
[ -s "$prefix/share/fish/vendor_completions.d/coordinator.fish" ] || stop 1 "no completion for fish"

# ---- examples ------------------------------------------------------------------------------------------------------------------------

examples=$(find "$prefix/share/doc" -path '*/examples/slurm/*.sbatch' | wc -l)
[ "$examples" -ge 3 ] || stop 1 "the examples for Slurm are not there"
echo "installed: $(find "$prefix" -type f | wc -l) files, the same text, $(wc -w <<<"$verbs") verbs with manual pages and completion"
