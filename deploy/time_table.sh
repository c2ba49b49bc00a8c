# Sourced by test.sh: the table of its time. `part <name>` begins a part of the work and ends the one before it; the table shows
# for each how long it took, how long its commands kept processors busy, and of the tests that run_tests ran how many they were and
# which took longest; below it, what the compiler cache knew.

parts=()
part_wall_ms=()
part_cpu_ms=()
part_tests=() # by part, "seconds name" a line
part_begin_wall_ms=0
part_begin_cpu_ms=0

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# Of the commands of this shell that have ended, with their own commands, in user and system mode.
children_cpu_ms() {
  local fields
  read -r -a fields <<<"$(sed 's/.*) //' "/proc/$$/stat")"
  echo $(((fields[13] + fields[14]) * 1000 / $(getconf CLK_TCK)))
}

end_part() {
  [ ${#parts[@]} -gt ${#part_wall_ms[@]} ] || return 0
  part_wall_ms+=($(($(now_ms) - part_begin_wall_ms)))
  part_cpu_ms+=($(($(children_cpu_ms) - part_begin_cpu_ms)))
}

part() {
  end_part
  parts+=("$1")
  part_tests+=("")
  part_begin_wall_ms=$(now_ms)
  part_begin_cpu_ms=$(children_cpu_ms)
}

# run_tests <command>...: a ctest, whose tests count for this part.
run_tests() {
  local report code=0
  report=$(mktemp)
  "$@" --output-junit "$report" || code=$?
  part_tests[-1]+=$(sed -nE 's/.*<testcase name="([^"]*)".* time="([^"]*)".*/\2 \1/p' "$report")$'\n'
  rm "$report"
  [ "$code" -eq 0 ] || stop "$code" "\"$*\" failed with exit code $code"
}

# Of what was compiled by this script, how much ccache had compiled before, here or in another clone.
print_cache_hits() {
  [ -s "${CCACHE_STATSLOG-}" ] || return 0
  echo
  echo "ccache:"
  ccache --show-log-stats | sed -nE '/^(Cacheable|  Hits|  Misses)/p'
}

print_tests_of_parts() {
  local i lines count
  for i in "${!parts[@]}"; do
    lines=$(sed '/^$/d' <<<"${part_tests[i]}")
    [ -n "$lines" ] || continue
    count=$(wc -l <<<"$lines")
    echo
    echo "${parts[i]}: $count tests; longest, in seconds:"
    LC_ALL=C sort -rn <<<"$lines" | head -10 | LC_ALL=C awk '{printf "  %6.1f  %s\n", $1, $2}'
  done
}

table_row() { printf '%-18s %4d:%02d %4d:%02d%s\n' "$1" $(($2 / 60000)) $(($2 / 1000 % 60)) $(($3 / 60000)) $(($3 / 1000 % 60)) "${4-}"; }

# print_time_table <exit code of the script>
print_time_table() {
  end_part
  local i note wall=0 cpu=0
  echo
  printf '%-18s %7s %7s\n' "Time by part" wall CPU
  for i in "${!parts[@]}"; do
    note=
    [ "$1" -eq 0 ] || [ $((i + 1)) -lt ${#parts[@]} ] || note="  failed here"
    table_row "${parts[i]}" "${part_wall_ms[i]}" "${part_cpu_ms[i]}" "$note"
    wall=$((wall + part_wall_ms[i])) cpu=$((cpu + part_cpu_ms[i]))
  done
  table_row total "$wall" "$cpu"
  print_tests_of_parts
  print_cache_hits
}
