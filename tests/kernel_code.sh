#!/usr/bin/env bash
# Reads the machine code of the kernels: every unit keeps to its own instruction set, which its name says, and the inner
# loops of the matrix tiles keep their sums in registers. For x86-64, g++ and optimised builds.
# Usage: kernel_code.sh <objdump> <object file>... Prints every violation; exits 1 when there is one, 2 when nothing was
# read.
set -u
objdump=$1
shift
failures=0
units=0
tiles=0

# Instructions beyond AVX-512 F, BW, VL and DQ that compilers know. The dot instructions have units of their own.
beyond='vpdp(bu|ws)sds?|vdpbf16ps|vcvtne2?ps2?bf16|v?gf2p8|vperm([it]2)?b\s|vpmultishift|vp(compress|expand)[bw]'
beyond+='|vpsh[lr]dv?[wdq]|vpopcnt|vpshufbit|vpmadd52|vp2intersect|v?aes|v?pclmul|sha[0-9]|vpconflict|vplzcnt'
beyond+='|vpbroadcastm'

# forbid <name> <pattern> <why>: in the instructions on standard input, as "bytes<TAB>instruction".
forbid() {
  local hits
  hits=$(grep -P "$2" | head -3)
  [ -z "$hits" ] && return
  while read -r hit; do echo "$1: $3: $hit"; done <<<"$hits"
  return 1
}

for object in "$@"; do
  name=$(basename "$object")
  # "bytes<TAB>instruction", and the functions' names as they come.
  code=$("$objdump" -d -w -C --no-addresses "$object" | grep -vE '^$|file format|Disassembly')
  [ -n "$code" ] || { echo "$name: no code to read"; failures=$((failures + 1)); continue; }
  units=$((units + 1))
  instructions=$(grep -P '^\s+([0-9a-f]{2} )+\s*\t' <<<"$code" | sed -E 's/^\s+//; s/ +\t/\t/; s/\t\{(vex|evex)\} /\t/')
  vex_dots='^(c4|c5) .*\tvpdp'
  evex='^(6[4567] )*62 '
  case $name in
    *_avx2.cc.o) rules=("$evex" "an AVX-512 encoding" "%zmm|%k[0-7]" "an AVX-512 register" "\t($beyond)" "not AVX2") ;;
    *_avx512.cc.o) rules=("\t($beyond)" "not AVX-512 F, BW, VL or DQ") ;;
    *_avx512vnni.cc.o)
      rules=("$vex_dots" "AVX-VNNI, which other machines have" "\t(?!vpdpbusd\s)($beyond)" "not AVX-512 VNNI")
      ;;
    *_avx512bf16.cc.o) rules=("\t(?!vdpbf16ps\s)($beyond)" "not AVX-512 BF16") ;;
    *) rules=("\tv(?!er[rw])|%[yz]mm" "AVX in a unit for every machine") ;;
  esac
  for ((i = 0; i < ${#rules[@]}; i += 2)); do
    forbid "$name" "${rules[i]}" "${rules[i + 1]}" <<<"$instructions" || failures=$((failures + 1))
  done

  # The linker keeps one of the copies of a function that several units define, perhaps one that the machine cannot run.
  if [[ $name == *_avx* ]] && "$objdump" -t -C "$object" | grep -P '\sw\s+F'; then
    echo "$name: shares functions with other units"
    failures=$((failures + 1))
  fi

  # Between the first and the last dot of a tile's function no vector goes to the stack; where a dot takes several
  # instructions and registers, one for 32 of them at most.
  case $name in
    integer_avx512.cc.o) slack=32 ;;
    *_avx512*.cc.o) slack=0 ;;
    *) continue ;;
  esac
  report=$(awk -F'\t' -v slack=$slack '
    function above(a, b) { return length(a) != length(b) ? length(a) > length(b) : "x" a > "x" b }  # addresses, in hex
    function finish() {
      if (dots < 2) return
      tiles++
      if (spills > (slack ? dots / slack : 0)) print "spill\t" spills " vectors go to the stack between the dots of " fn
    }
    /^</ {
      finish(); fn = ($0 ~ /Tile|Run/ && $0 !~ /Attend/) ? $0 : ""; dots = 0; spills = 0; waiting = 0
      next
    }
    fn == "" { next }
    $3 ~ /^(vpdpbusd|vdpbf16ps|vpmaddwd|vfmadd[0-9]*ps) .*%zmm/ {
      if (dots > 0) spills += waiting
      dots++; waiting = 0; last_dot = $1; gsub(/[ :]/, "", last_dot); next
    }
    $3 ~ /^j[a-z]+ / && dots > 0 {  # what is stored at the end of a loop over dots goes there in each round
      split($3, jump, " +")
      if (!above(jump[2], last_dot)) { spills += waiting; waiting = 0 }
      next
    }
    /\tvmov[a-z0-9]+ +%[yz]mm[0-9]+,-?(0x[0-9a-f]+)?\(%r[sb]p\)/ { waiting++ }
    END { finish(); print "tiles\t" tiles + 0 }' <<<"$code")
  tiles=$((tiles + $(grep -P '^tiles\t' <<<"$report" | cut -f2)))
  spills=$(grep -P '^spill\t' <<<"$report" | cut -f2)
  [ -n "$spills" ] || continue
  while read -r spill; do
    echo "$name: $spill"
    failures=$((failures + 1))
  done <<<"$spills"
done

[ "$units" -gt 0 ] && [ "$tiles" -gt 0 ] || { echo "no kernels among $# object files"; exit 2; }
echo "$units units, $tiles tiles, $failures violations"
[ "$failures" -eq 0 ]
