# Sourced by test.sh: the table of its time. `part <name>` begins a part of the work and ends the one before it; the table shows
# for each how long it took, and how long its commands kept processors busy.

parts=()
part_wall_ms=()
part_cpu_ms=()
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
  part_begin_wall_ms=$(now_ms)
  part_begin_cpu_ms=$(children_cpu_ms)
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
}
