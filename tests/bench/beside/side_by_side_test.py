#!/usr/bin/env python3
"""The parts of side_by_side.py that need no machine: what programs are told and how their answers are read, which turns count, goals, the
table and its place in a file."""
import argparse
import dataclasses
import os
import shutil
import stat
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
import side_by_side  # noqa: E402
from beside.accounts import account_of, read_bytes, spent  # noqa: E402
from beside.outcomes import BEGIN, END, Model, Row, bound, cell, goal_lines, interval, outcome, replaced, section, verdict  # noqa: E402
from beside.programs import Kernels, Peer, Program, Stagecoach, Test, last_words  # noqa: E402

MODEL = Model("shape", 2, "q8_0")
DECODE, PROMPT = Test(new=24, threads=2), Test(prompt=512, threads=2)
BATCHES = [Test(new=24, sequences=count, threads=2, equal=True) for count in (8, 32)]
DEEP = [Test(new=24, depth=8192, threads=2), Test(prompt=512, depth=8192, threads=2)]

# Two makes of the same programs. Each writes its words to `words`, and what it would measure.
ONE_HELP = """
  -p, --n-prompt <n>                  (default: 512)
  -gp <pp,tg>                         (default: )
  -fa, --flash-attn <0|1>             (default: 1)
  -rtr, --run-time-repack <0|1>       (default: 0)"""
OTHER_HELP = """
  -d, --n-depth <n>                   (default: 0)
  -fa, --flash-attn <on|off|auto>     (default: auto)
  -nr, --no-rtr                       mentions -rtr, and has none"""
BATCHED_HELP = """
  -fa, --flash-attn (auto|on|off|0|1)
                                  set Flash Attention (default: on)
  -rtr,   --run-time-repack       repack tensors if interleaved variant is available
  -wb,    --warmup-batch          run a warmup batch before measurement"""
PROGRAM = """#!/bin/sh
[ "$1" != --help ] || {{ cat <<'END'
{help}
END
exit 1; }}
echo "$(basename $0) $*" >> {words}
{then}
"""
CSV = """echo 'a line before'; echo 'build_commit,n_threads,n_prompt,n_gen,{more},avg_ts'
case "$*" in *-gp*) echo 'abc,2,8192,24,tg24@pp8192,"50.5"';;
*'rtr 1'*) echo 'abc,2,512,0,{prompt},"700.0"'; echo 'abc,2,0,24,{decode},"60.0"';;
*) echo 'abc,2,512,0,{prompt},"500.0"'; echo 'abc,2,0,24,{decode},"80.0"'; echo 'abc,1,0,24,{decode},"45.0"';; esac"""
TABLE = """cat <<'END'
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|     1 |     24 |    8 |    200 |    0.040 |   201.59 |    1.281 |   149.85 |    1.321 |   151.40 |
END
echo '/where/it/was/built.c:12: GGML_ASSERT(nodes < size) failed' >&2; echo '#1 0x0 in abort () from /lib/x' >&2; exit 134"""
SWEEP = """cat >&2 <<'END'
|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |      1 |   7680 |    0.954 |   536.68 |    0.223 |    71.75 |
|   512 |      1 |   8192 |    1.020 |   501.86 |    0.236 |    67.90 |
END"""


class InAFolder(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.words_path = os.path.join(self.work.name, "words")

    def words(self):
        with open(self.words_path) as file:
            return file.read()


class Peers(InAFolder):
    def program(self, name, help_text, then):
        path = os.path.join(self.work.name, name)
        with open(path, "w") as out:
            out.write(PROGRAM.format(help=help_text, words=self.words_path, then=then))
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def peer(self, bench_help, more, after_prompt, after_decode):
        self.program("llama-bench", bench_help, CSV.format(more=more, prompt=after_prompt, decode=after_decode))
        self.program("llama-batched-bench", BATCHED_HELP, TABLE)
        return Peer("other", self.work.name, self.work.name)

    def test_the_better_way_of_each_test_counts_and_is_taken_again(self):
        peer = self.peer(ONE_HELP, "test", "pp512", "tg24")
        figures = peer.measure("m", [DECODE, PROMPT])
        self.assertEqual((figures[DECODE], figures[PROMPT]), ({"rate": 80.0, "variant": "plain"}, {"rate": 700.0, "variant": "repacked"}))
        self.assertEqual(peer.version, "abc")
        self.assertEqual(peer.measure("m", [dataclasses.replace(DECODE, threads=1), DECODE], {DECODE: "plain"})[DECODE]["rate"], 80.0)
        self.assertIn(" -t 1,2 ", self.words())
        before = len(self.words().splitlines())
        again = peer.measure("m", [DECODE, PROMPT], {test: figure["variant"] for test, figure in figures.items()})
        self.assertEqual(again, figures)
        self.assertEqual([(" -p 0 " in line, "-rtr 1" in line) for line in self.words().splitlines()[before:]], [(True, False), (False, True)])

    def test_a_crash_leaves_what_was_measured_before_it(self):
        figures = self.peer(ONE_HELP, "test", "pp512", "tg24").measure("m", BATCHES)
        self.assertEqual(figures[BATCHES[0]]["rate"], 149.85)
        self.assertEqual(figures[BATCHES[1]]["why"], "built.c:12: GGML_ASSERT(nodes < size) failed")
        self.assertRegex(self.words(), r"llama-batched-bench -m m -ctk f16 -ctv f16 -fa 1 -wb -t 2 -npp 1 -ntg 24 -npl 8,32 -c 1024")
        self.assertRegex(self.words(), r"-fa 1 -rtr -wb")

    def test_context_before_a_test_by_what_the_program_has(self):
        peer = self.peer(ONE_HELP, "test", "pp512", "tg24")
        figures = peer.measure("m", DEEP)
        self.assertEqual(figures[DEEP[0]]["rate"], 50.5)
        self.assertIn("llama-sweep-bench", figures[DEEP[1]]["why"])
        self.program("llama-sweep-bench", ONE_HELP, SWEEP)
        self.assertEqual(Peer("other", self.work.name, self.work.name).measure("m", DEEP)[DEEP[1]]["rate"], 501.86)

    def test_a_make_with_depth_and_without_repacking(self):
        peer = self.peer(OTHER_HELP, "n_depth", "8192", "8192")
        figures = peer.measure("m", DEEP)
        self.assertEqual([figures[test]["rate"] for test in DEEP], [80.0, 500.0])
        self.assertEqual(self.words(), "llama-bench -m m -ctk f16 -ctv f16 -fa on -t 2 -r 1 -o csv -p 512 -n 24 -d 8192\n")

    def test_a_folder_without_the_programs(self):
        with self.assertRaisesRegex(FileNotFoundError, "--peer other: there is no program .*llama-bench"):
            Peer("other", self.work.name, self.work.name)

    def test_a_switch_has_the_value_that_the_help_names(self):
        self.program("one", "  -fa,   --flash-attn             enable Flash Attention", "")
        program = Program(self.work.name, "one")
        self.assertEqual((program.switched_on("-fa"), program.switched_on("-f")), (["-fa"], []))

    def test_last_words(self):
        self.assertEqual(last_words("loaded\nerror: no memory for /a/b\n#0 abort\n\n"), "error: no memory for b")
        self.assertEqual(last_words(""), "")


COORDINATOR = """#!/usr/bin/env python3
import json, sys
words = dict(zip(sys.argv[2:], sys.argv[3:]))
with open("{words}", "a") as out:
    print(*sys.argv[1:], file=out)
if "--step-log" in words:
    with open(words["--step-log"], "w") as log:
        print(json.dumps({{"slices": []}}), file=log)
        stage = {{"received_us": 8, "start_us": 9, "end_us": 9, "parts": [{{"part": "head", "bytes": 3}}]}}
        for start, took in ((0, 1), (8192, 1), (0, 1), (8192, 500000))[:0 if "demo" in words["-m"] else 4]:
            print(json.dumps({{"slices": [{{"start": start}}], "submit_us": 7, "confirm_us": 7 + took, "stages": [stage]}}), file=log)
account = {{"wall_ns": 1000, "stages": [{{"parts": [{{"part": "head", "bytes": 40000}}, {{"part": "delta rule", "bytes": 10000}}]}}]}}
for prompt, new, sequences in ((int(words["-p"]), 0, 1), (0, 16, 1), (0, 16, 8)):
    print(json.dumps({{"build": "1.0", "isa": "avx2", "valid": True, "n_prompt": prompt, "n_gen": new, "n_depth": 0, "n_parallel": sequences,
                      "equal_sequences": sequences > 1 and "--equal-sequences" in sys.argv, "n_threads": 2, "n_stages": 1, "type_k": "f16",
                      "avg_ts": 100.0 * sequences, "read_gbps": None if prompt else 40.0, "read_share": None if prompt else 0.8,
                      "peak_share": 0.5, "matrix_gops": 50.0, "account": account}}))
"""


KERNEL_BENCH = """#!/usr/bin/env python3
import json, sys
with open("{words}", "a") as out:
    print(sys.argv[1], file=out)
with open(sys.argv[2].split("=")[1], "w") as out:
    json.dump({{"benchmarks": [{{"name": "matmul/avx2/Q8_0/cached:1", "GB/s": 80.0, "GOP/s": 160.0, "%peak": 20.0, "%bw": 170}},
                               {{"name": "matmul/avx2/Q8_0/decode:1", "GB/s": 38.0, "GOP/s": 76.0, "%peak": 10.0, "%bw": 95}}]}}, out)
"""


class Ours(InAFolder):
    def setUp(self):
        super().setUp()
        path = os.path.join(self.work.name, "coordinator", "coordinator")
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as out:
            out.write(COORDINATOR.format(words=self.words_path))
        os.chmod(path, 0o755)
        self.ours = Stagecoach(self.work.name, "auto", self.work.name)

    def test_tests_of_one_kind_are_one_call(self):
        tests = [Test(new=16, threads=2), PROMPT] + [Test(new=16, sequences=count, threads=2, equal=True) for count in (8, 32)]
        figures = self.ours.measure("m", tests)
        self.assertEqual(self.words(), "".join(f"bench -m m -q -o jsonl --account --pp 1 -t 2 --isa auto --kv-type f16 -d 0 {words}\n" for words in (
            "-r 3 -p 0 -n 16 -b 1", "--equal-sequences -r 1 -p 512 -n 16 -b 8,32")))
        account = figures[tests[0]].pop("account")
        self.assertEqual(account["wall_ns"], 1000)
        self.assertEqual(figures[tests[0]], {"rate": 100.0, "valid": True, "isa": "avx2", "gbps": 45.0, "probe": 50.0, "share": 0.9, "ops": 5e8})
        self.assertEqual((figures[PROMPT]["gbps"], figures[PROMPT]["share"]), (None, 0.5))
        self.assertEqual((figures[tests[2]]["rate"], figures[tests[3]]), (800.0, {"why": "no figure"}))
        different = dataclasses.replace(tests[2], equal=False)
        self.assertEqual(self.ours.measure("m", [tests[2], different])[different]["rate"], 800.0)
        self.assertEqual(["--equal-sequences" in line for line in self.words().splitlines()[2:]], [True, False])
        self.assertEqual(self.ours.version, "1.0 (avx2)")

    def test_a_prompt_on_top_of_context_is_the_last_step_of_a_longer_one(self):
        self.assertEqual(self.ours.measure("m", [DEEP[1]])[DEEP[1]]["rate"], 1024.0)
        self.assertRegex(self.words(), "--prefill-chunk 512 .* -d 0 -r 1 -p 8704 -n 0 -b 1\n")
        self.assertIn("no step", self.ours.measure("demo", [DEEP[1]])[DEEP[1]]["why"])

    def test_kernels_are_measured_once_for_a_build(self):
        path = os.path.join(self.work.name, "tests", "bench", "kernel_bench")
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as out:
            out.write(KERNEL_BENCH.format(words=self.words_path))
        os.chmod(path, 0o755)
        for _ in range(2):
            kernels = Kernels(self.work.name, self.work.name)
            kernels.measure({"avx2"}, {"Q8_0", "Q4_0"})
            self.assertEqual(kernels.of("avx2", "Q8_0", 1), (80.0, 160.0, 0.2, 0.95))
        self.assertEqual(self.words(), "--benchmark_filter=^matmul/(avx2)/(Q4_0|Q8_0)/(cached:1|cached:32|cached:8|decode:1|prefill:256)$\n")

    def test_files_and_figures_have_a_folder_of_their_own(self):
        os.mkdir(os.path.join(self.work.name, "stage_worker"))
        shutil.copy(self.ours.programs.coordinator, self.ours.programs.stage_worker)
        theirs = os.path.join(self.work.name, "theirs.gguf")
        with open(theirs, "w") as file:
            os.truncate(file.fileno(), int(side_by_side.MOST_BYTES))
        options = argparse.Namespace(build=self.work.name, cache=self.work.name, isa=["auto"], peer=[], rows="", fresh=False)
        comparison = side_by_side.Comparison(options)
        side_by_side.Files(comparison.programs, comparison.cache).make_room()
        self.assertTrue(os.path.exists(theirs))
        self.assertNotEqual(os.path.realpath(comparison.cache), os.path.realpath(self.work.name))
        options.isa = ["auto", "auto"]
        with self.assertRaisesRegex(ValueError, "two have one name"):
            side_by_side.Comparison(options)


def row(kind="one", test=DECODE, beside=None):
    return Row("Table", MODEL.name, "column", MODEL, test, kind, beside)


PARTS = [{"part": "gate, up", "busy_ns": 6e6, "wait_ns": 1e6, "bytes": 6e7}, {"part": "attention", "busy_ns": 1e6, "wait_ns": 0, "bytes": 1e7},
         {"part": "delta rule", "busy_ns": 0, "wait_ns": 0, "bytes": 2e7}, {"part": "RoPE, KV store", "busy_ns": 1e6, "wait_ns": 0, "bytes": 0}]
ACCOUNT = {"wall_ns": 1e7, "hops_ns": 4e5, "coordinator_ns": 1e5, "stages": [{"queue_ns": 2e5, "compute_ns": 9.3e6, "outside_ns": 3e5, "parts": PARTS}]}


class OneKernel:
    """In place of Kernels."""

    def of(self, isa, type, rows):
        return 20.0, 200.0, 0.5, 0.97


def turns(ours, share=0.8, valid=True, **peers):
    """Of tokens/s, one a turn; a peer's may be a reason."""
    made = []
    for number, rate in enumerate(ours):
        turn = {"Stagecoach auto": {"rate": rate, "valid": valid, "isa": "avx2", "gbps": rate / 10, "share": share, "probe": rate / 10 / share,
                                    "ops": 1e9, "account": ACCOUNT}}
        for peer, rates in peers.items():
            turn[peer] = {"why": rates} if isinstance(rates, str) else {"rate": rates[number]}
        made.append(turn)
    return made


def judged(kind, taken, peers=("one",), test=DECODE, **more):
    return outcome(row(kind, test), "auto", taken, list(peers), 1.15, **more)


class Outcomes(unittest.TestCase):
    def test_ratios_are_of_a_turn_and_to_the_peer_with_the_higher_median(self):
        found = judged("one", turns([100, 200, 150], one=[100, 190, 140], two=[50, 300, 60]), ["one", "two"])
        self.assertEqual((found.better, found.ratio, found.problem), ("one", 1.05, ""))
        self.assertEqual(found.token_bytes, 1e8)

    def test_goal_of_one_sequence_depends_on_where_the_peer_reads(self):
        free = judged("one", turns([108] * 3, share=0.9, one=[100] * 3))
        self.assertEqual(free.goals(), [("one sequence", 1.1, 1.08, False)])
        at_the_wall = judged("one", turns([100] * 3, share=0.9, one=[100] * 3))
        self.assertEqual(at_the_wall.goals(), [("one sequence", 1.0, 1.0, True)])

    def test_other_goals(self):
        self.assertEqual(judged("prompt", turns([129] * 2, one=[100] * 2), test=PROMPT).goals(), [("prompt", 1.3, 1.29, False)])
        self.assertEqual(judged("batch", turns([130] * 2, one=[100] * 2)).goals(), [("8 and 32 sequences", 1.3, 1.3, True)])
        self.assertEqual(judged("stages", turns([90] * 2, one=[100] * 2)).goals(), [("two one-thread stages", 0.9, 0.9, True)])
        self.assertEqual(judged("depth", turns([120] * 2, one=[100] * 2, share=0.79)).goals(),
                         [("one sequence", 1.1, 1.2, True), ("reading at depth", 0.8, 0.79, False)])
        self.assertEqual(judged("batch", turns([130] * 2, one=[100] * 2), judged=False).goals(), [])

    def test_what_does_not_count(self):
        wide = judged("one", turns([90, 100, 110], one=[100] * 3))
        self.assertEqual((wide.problem, wide.detail), ("the median may lie anywhere in more than 15 %", "0.90–1.10"))
        self.assertEqual(judged("one", turns([60, 100, 101, 102, 103, 150], one=[100] * 6)).problem, "")  # the outermost aside
        met, missed = judged("batch", turns([130, 200, 300], one=[100] * 3)), judged("batch", turns([60, 100, 129], one=[100] * 3))
        self.assertEqual([found.goals()[0][3] for found in (met, missed)], [True, False])  # wherever the median lies
        self.assertIn("kernels", judged("one", turns([100] * 3, valid=False, one=[100] * 3)).problem)
        self.assertEqual(judged("one", turns([100], one=[100])).problem, "a single turn")
        self.assertEqual("80–120 tokens/s", judged("one", turns([80, 120], one="crashed")).detail)
        noisy = judged("one", turns([60, 100, 200], one=[100] * 3))
        self.assertEqual(noisy.goals(), [])
        self.assertEqual(verdict([noisy])[0], "INVALID: 1 of 1 rows")
        nothing = outcome(row(), "auto", [{"Stagecoach auto": {"why": "no memory"}}] * 3, [], 1.15)
        self.assertEqual((nothing.problem, cell(nothing, ["one"])), ("no memory", "–"))

    def test_the_interval_of_a_median(self):
        self.assertEqual([interval(range(count)) for count in (1, 3, 5, 6, 8, 9)], [(0, 0), (0, 2), (0, 4), (1, 4), (1, 6), (2, 6)])

    def test_a_missed_goal_has_its_reason(self):
        slow, fast = judged("one", turns([90] * 3, share=0.5, one=[100] * 3)), judged("batch", turns([200] * 3, one=[100] * 3), test=BATCHES[0])
        prompt = judged("prompt", turns([100] * 3, one=[100] * 3), test=PROMPT)
        bound([slow, fast, prompt], OneKernel())
        self.assertEqual((slow.of_bound, slow.below, fast.reason()), ((0.5, 0.56), True, ""))
        spent_so = "10.0 ms a step: matrices 60 %, barriers 10 %, attention 10 %, other parts 10 %, hops and coordinator 10 %"
        self.assertEqual(slow.reason(), f"{spent_so}; matrices read 10.0 GB/s where the probe reads 18.0 and Q8_0's arithmetic allows 40: 56 % (their "
                         "kernel by itself 97 % of its probe), the step 50 %")
        self.assertIn("matrices do 167 GOP/s, 42 % of Q8_0's kernel with 256 rows in a cache and 21 % of the peak", prompt.reason())
        slower_arithmetic = judged("one", turns([600] * 3, share=0.6, one=[100] * 3))
        bound([slower_arithmetic], OneKernel())
        self.assertEqual(slower_arithmetic.of_bound, (1.5, 0.25))  # of 40 GB/s, not of 100

    def test_accounts(self):
        self.assertEqual(read_bytes(ACCOUNT), 8e7)
        step = {"submit_us": 0, "confirm_us": 100, "stages": [{"received_us": 10, "start_us": 20, "end_us": 90, "parts": [
            {"part": "head", "busy_ns": 40000, "bytes": 5}, {"part": "waking threads", "busy_ns": 10000}]}]}
        self.assertEqual(spent(account_of(step)), "0.10 ms a step: matrices 40 %, barriers 10 %, hops and coordinator 50 %")

    def test_stages_tell_what_they_read(self):
        taken = turns([80] * 2, one=[100] * 2)
        for turn in taken:
            turn["one stage"] = turn["Stagecoach auto"] | {"rate": 100, "gbps": 5.0}
        found = outcome(row("stages", dataclasses.replace(DECODE, stages=2), DECODE), "auto", taken, ["one stage"], 1.15)
        self.assertIn("100.0 MB a token beside one stage's 50.0, read at 80 % of the probe beside 80 %; 10.0 ms a step", found.reason())

    def test_a_cell(self):
        self.assertEqual(cell(judged("one", turns([95, 90.04, 100], one=[100] * 3, two="crashed"), ["one", "two"]), ["one", "two"]),
                         "95.0 / 100 / –, **0.95** (0.90–1.00), 80 % ✗")
        self.assertEqual(cell(judged("one", turns([95, 95], one="crashed")), ["one"]), "95.0 / –, 80 %")

    def test_a_section(self):
        decode = Row("Dense", MODEL.name, "decode, 1 thread", MODEL, DECODE, "one")
        batch = Row("Dense", MODEL.name, "8 sequences", MODEL, BATCHES[0], "batch")
        outcomes = [outcome(decode, "auto", turns([100] * 2, one=[100] * 2), ["one"], 1.15),
                    outcome(batch, "auto", turns([100] * 2, one="GGML_ASSERT"), ["one"], 1.15),
                    outcome(batch, "avx2", [{"Stagecoach avx2": {"why": "no memory"}}], ["one"], 1.15)]
        bound(outcomes, OneKernel())
        self.assertEqual(section(outcomes, lambda isa: (["one"], True), "Heading."), "\n".join([
            "Heading.", "", "| Dense | isa | MB a token | decode, 1 thread | 8 sequences |", "|---|---|--:|---|---|",
            "| shape:2 q8_0 | auto | 100 | 100 / 100, **1.00** (1.00–1.00), 80 %, 80 % ✗ | 100 / –, 80 % |",
            "| shape:2 q8_0 | avx2 | – |  | – |", "",
            "* No figure of one: shape:2 q8_0, 8 sequences: `GGML_ASSERT`.",
            "* Does not count (~), no memory: shape:2 q8_0, 8 sequences, avx2.",
            "* One sequence: 0 of 1 hold; missed: shape:2 q8_0, decode, 1 thread, auto 1.00 of 1.1.",
            "* Decoding one sequence at 90 % or more of the smaller of the probe's read bandwidth and what the type's arithmetic allows for one "
            "row: 0 of 1; its matrices alone: 0.", "",
            "Why, by the account of a step in the turn with the median, for each goal missed and each sequence below 90 %:", "",
            f"* shape:2 q8_0, decode, 1 thread, auto: {outcomes[0].reason()}."]))
        self.assertEqual(goal_lines([]), [])

    def test_a_section_takes_the_place_of_the_last(self):
        text = replaced("# Title\n\nWords.\n", "one")
        self.assertEqual(text, f"# Title\n\nWords.\n\n{BEGIN}\none\n{END}\n")
        self.assertEqual(replaced(text + "\nMore.\n", "two"), f"# Title\n\nWords.\n\n{BEGIN}\ntwo\n{END}\n\nMore.\n")
        self.assertEqual(replaced("", "one"), f"{BEGIN}\none\n{END}\n")
        for broken in (BEGIN, END, f"{END}\n{BEGIN}\n"):
            with self.assertRaisesRegex(ValueError, "expected both"):
                replaced(broken, "one")


class Kept(unittest.TestCase):
    def test_rounds_of_the_same_programs_are_found_again_and_the_latest_counts(self):
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "rounds.jsonl")
            names = lambda tests: ["us"]
            rounds = side_by_side.Rounds(path, "stamp", names)
            rounds.add(MODEL, 0, {"us": {DECODE: {"rate": 1}, PROMPT: {"rate": 2}}}, {"us": "1.0"})
            rounds.add(MODEL, 0, {"us": {DECODE: {"rate": 3}}}, {})
            again = side_by_side.Rounds(path, "stamp", names)
            self.assertEqual(again.of(MODEL, 0, [DECODE])["us"][DECODE], {"rate": 3})
            self.assertEqual(again.of(MODEL, 0, [DECODE, PROMPT])["us"][DECODE], {"rate": 1})
            self.assertIsNone(again.of(MODEL, 1, [DECODE]))
            self.assertEqual(again.versions, {"us": "1.0"})
            self.assertIsNone(side_by_side.Rounds(path, "other programs", names).of(MODEL, 0, [DECODE]))
            with open(path, "a") as file:
                file.write('{"stamp": "sta')  # killed, or no room
            rounds.add(MODEL, 1, {"us": {DECODE: {"why": "crashed"}}}, {})
            self.assertIsNotNone(side_by_side.Rounds(path, "stamp", names).of(MODEL, 1, [DECODE]))
            self.assertIsNone(side_by_side.Rounds(path, "stamp", names, ["us"]).of(MODEL, 1, [DECODE]))

    def test_every_row_has_a_name_of_its_own(self):
        for threads in (1, 2, 8):
            rows = side_by_side.all_rows(threads)
            self.assertEqual(len({row.name for row in rows}), len(rows))
            self.assertEqual(any(row.beside for row in rows), threads > 1)


if __name__ == "__main__":
    unittest.main()
