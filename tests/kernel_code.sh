#!/usr/bin/env bash
# Reads the machine code of the kernels: every unit keeps to its own instruction set, which its name says, the inner
# loops of the matrix tiles keep their sums in registers, and the loops that measure a peak really multiply in every
# round. For x86-64, g++ and optimised builds.
# Usage: kernel_code.sh <objdump> <object file>... Prints every violation; exits 1 when there is one, 2 when nothing was
# read.
set -u
export LC_ALL=C
objdump=$1
shift
failures=0
units=0
tiles=0
peaks=0

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

# Reads lines of objdump; prints "tiles<TAB>number", "peaks<TAB>number" and "violation<TAB>what" for each.
loops='
  function place(address) { gsub(/[ :]/, "", address); return sprintf("%16s", address) }  # compared as text
  # The loops of a function that hold a dot, by their first instruction: end[i] is the last one.
  function find_loops(   i, j, target) {
    loops = 0
    for (i = 1; i <= n; i++) {
      if (text[i] !~ /^j[a-z]+ +[0-9a-f]+ </) continue
      split(text[i], word, " +")
      target = place(word[2])
      if (target > at[i] || target < at[1]) continue
      for (j = i; at[j] > target; j--) {}
      if (!(j in end)) first[++loops] = j
      end[j] = i
    }
  }
  function count(pattern, from, to,   i, found) {
    for (i = from; i <= to; i++) found += text[i] ~ pattern
    return found + 0
  }
  function check_tile(   i, j, inner, dots, spills) {
    if (fn ~ /CodeFormat\)7/) return  # unpacks digits to a buffer on the stack
    for (i = 1; i <= loops; i++) {
      if (!count(dot, first[i], end[first[i]])) continue
      inner = 1
      for (j = 1; j <= loops; j++) {
        if (j != i && first[j] >= first[i] && end[first[j]] <= end[first[i]] && count(dot, first[j], end[first[j]])) inner = 0
      }
      if (!inner) continue
      tiles++
      dots = count(dot, first[i], end[first[i]])
      spills = count(to_stack, first[i], end[first[i]])
      if (spills > (slack ? dots / slack : 0)) {
        print "violation\t" spills " vectors go to the stack in a loop of " dots " dots of " fn
      }
    }
  }
  function check_peak(   i, inside, outside) {
    outside = count(multiply, 1, n)
    for (i = 1; i <= loops; i++) inside += count(multiply, first[i], end[first[i]])
    outside -= inside
    peaks++
    if (inside < 10 || outside > 0) print "violation\t" inside + 0 " products in the loop and " outside " before it: " fn
  }
  function finish() {
    if (fn == "") return
    find_loops()
    if (fn ~ /Peak/) check_peak(); else check_tile()
  }
  BEGIN {
    dot = "^(vpdpbusd|vdpbf16ps|vpmaddubsw|vpmaddwd|vfmadd[0-9]*ps) "
    multiply = "^(vpdpbusd|vdpbf16ps|vpmaddubsw|vfmadd[0-9]*ps) "
    to_stack = "^vmov[a-z0-9]+ +%[xyz]mm[0-9]+,-?(0x[0-9a-f]+)?\\(%r[sb]p\\)"
  }
  /^[0-9a-f]+ </ {
    finish()
    fn = ($0 ~ /Tile|Run|Peak(Int8|F32|Bf16)/ && $0 !~ /Attend/) ? $0 : ""
    n = 0; delete at; delete text; delete end; delete first
    next
  }
  fn != "" && NF >= 3 { n++; at[n] = place($1); text[n] = $3; sub(/^\{[a-z]+\} /, "", text[n]) }
  END { finish(); print "tiles\t" tiles + 0; print "peaks\t" peaks + 0 }'

for object in "$@"; do
  name=$(basename "$object")
  code=$("$objdump" -d -w -C "$object" | grep -vE '^$|file format|Disassembly')
  [ -n "$code" ] || { echo "$name: no code to read"; failures=$((failures + 1)); continue; }
  units=$((units + 1))
  # "bytes<TAB>instruction"
  instructions=$(grep -P '^ *[0-9a-f]+:\t([0-9a-f]{2} )+ *\t' <<<"$code" | cut -f2- |
    sed -E 's/ +\t/\t/; s/\t\{(vex|evex)\} /\t/')
  vex_dots='^(c4|c5) .*\tvpdp'
  evex='^(6[4567] )*62 '
  case $name in
    *_avx2.cc.o) rules=("$evex" "an AVX-512 encoding" "%zmm|%k[0-7]" "an AVX-512 register" "\t($beyond)" "not AVX2") ;;
    *_avxvnni.cc.o)
      rules=("$evex" "an AVX-512 encoding" "%zmm|%k[0-7]" "an AVX-512 register" "\t(?!vpdpbusd\s)($beyond)" "not AVX-VNNI")
      ;;
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

  # A loop over dots that holds no other such loop: no vector goes to the stack in it, but for the tiles that would need
  # more registers than there are: with AVX2 the float sums of four columns once a block, and weights of two panels times two
  # columns; with AVX-512 one vector of eight columns of Q6_K. The dots of a peak are all in its loop.
  case $name in
    integer_avx2.cc.o | integer_avxvnni.cc.o | float_avx2.cc.o) slack=5 ;;
    integer_avx512*.cc.o) slack=80 ;;
    *_avx*.cc.o) slack=0 ;;
    *) continue ;;
  esac
  report=$(awk -F'\t' -v slack=$slack "$loops" <<<"$code")
  tiles=$((tiles + $(grep -P '^tiles\t' <<<"$report" | cut -f2)))
  peaks=$((peaks + $(grep -P '^peaks\t' <<<"$report" | cut -f2)))
  wrong=$(grep -P '^violation\t' <<<"$report" | cut -f2)
  [ -n "$wrong" ] || continue
  while read -r violation; do
    echo "$name: $violation"
    failures=$((failures + 1))
  done <<<"$wrong"
done

[ "$units" -gt 0 ] && [ "$tiles" -gt 0 ] && [ "$peaks" -gt 0 ] || { echo "no kernels among $# object files"; exit 2; }
echo "$units units, $tiles loops of tiles, $peaks of peaks, $failures violations"
[ "$failures" -eq 0 ]
