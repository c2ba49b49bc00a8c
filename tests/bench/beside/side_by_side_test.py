#!/usr/bin/env python3
"""The parts of side_by_side.py that need no machine: what programs are told and how their answers are read, which turns count, goals, the
table and its place in a file."""
import argparse
import os
import shutil
import stat
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
import side_by_side  # noqa: E402
from beside.outcomes import BEGIN, END, Model, Row, cell, goal_lines, outcome, replaced, section, verdict  # noqa: E402
from beside.programs import Peer, Program, Stagecoach, Test, last_words  # noqa: E402

MODEL = Model("shape", 2, "q8_0")
DECODE, PROMPT = Test(new=24, threads=2), Test(prompt=512, threads=2)
BATCHES = [Test(new=24, sequences=count, threads=2) for count in (8, 32)]
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
CSV = """echo 'a line before'; echo 'build_commit,n_prompt,n_gen,{more},avg_ts'
case "$*" in *-gp*) echo 'abc,8192,24,tg24@pp8192,"50.5"';;
*'rtr 1'*) echo 'abc,512,0,{prompt},"700.0"'; echo 'abc,0,24,{decode},"60.0"';;
*) echo 'abc,512,0,{prompt},"500.0"'; echo 'abc,0,24,{decode},"80.0"';; esac"""
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
        before = len(self.words().splitlines())
        again = peer.measure("m", [DECODE, PROMPT], {test: figure["variant"] for test, figure in figures.items()})
        self.assertEqual(again, figures)
        self.assertEqual([(" -p 0 " in line, "-rtr 1" in line) for line in self.words().splitlines()[before:]], [(True, False), (False, True)])

    def test_a_crash_leaves_what_was_measured_before_it(self):
        figures = self.peer(ONE_HELP, "test", "pp512", "tg24").measure("m", BATCHES)
        self.assertEqual(figures[BATCHES[0]]["rate"], 149.85)
        self.assertEqual(figures[BATCHES[1]]["why"], "built.c:12: GGML_ASSERT(nodes < size) failed")
        self.assertRegex(self.words(), r"llama-batched-bench -m m -t 2 -ctk f16 -ctv f16 -fa 1 -wb -npp 1 -ntg 24 -npl 8,32 -c 1024")
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
        self.assertEqual(self.words(), "llama-bench -m m -t 2 -ctk f16 -ctv f16 -fa on -r 1 -o csv -p 512 -n 24 -d 8192\n")

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
        for start, took in ((0, 1), (8192, 1), (0, 1), (8192, 500000))[:0 if "demo" in words["-m"] else 4]:
            print(json.dumps({{"slices": [{{"start": start}}], "submit_us": 7, "confirm_us": 7 + took}}), file=log)
for prompt, new, sequences in ((int(words["-p"]), 0, 1), (0, 16, 1), (0, 16, 8)):
    print(json.dumps({{"build": "1.0", "isa": "avx2", "valid": True, "n_prompt": prompt, "n_gen": new, "n_depth": 0, "n_parallel": sequences,
                      "n_threads": 2, "n_stages": 1, "type_k": "f16", "avg_ts": 100.0 * sequences, "read_gbps": None if prompt else 40.0,
                      "read_share": None if prompt else 0.8, "peak_share": 0.5}}))
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
        tests = [Test(new=16, threads=2), PROMPT] + [Test(new=16, sequences=count, threads=2) for count in (8, 32)]
        figures = self.ours.measure("m", tests)
        self.assertEqual(self.words(), "bench -m m -q -o jsonl --pp 1 -t 2 --isa auto --kv-type f16 -d 0 -r 2 -p 512 -n 16 -b 1,8,32\n")
        self.assertEqual(figures[tests[0]], {"rate": 100.0, "valid": True, "isa": "avx2", "gbps": 40.0, "share": 0.8})
        self.assertEqual((figures[PROMPT]["gbps"], figures[PROMPT]["share"]), (None, 0.5))
        self.assertEqual((figures[tests[2]]["rate"], figures[tests[3]]), (800.0, {"why": "no figure"}))
        self.assertEqual(self.ours.version, "1.0 (avx2)")

    def test_a_prompt_on_top_of_context_is_the_last_step_of_a_longer_one(self):
        self.assertEqual(self.ours.measure("m", [DEEP[1]])[DEEP[1]]["rate"], 1024.0)
        self.assertRegex(self.words(), "--prefill-chunk 512 .* -d 0 -r 1 -p 8704 -n 0 -b 1\n")
        self.assertIn("no step", self.ours.measure("demo", [DEEP[1]])[DEEP[1]]["why"])

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


def turns(ours, share=0.8, valid=True, **peers):
    """Of tokens/s, one a turn; a peer's may be a reason."""
    made = []
    for number, rate in enumerate(ours):
        turn = {"Stagecoach auto": {"rate": rate, "valid": valid, "isa": "avx2", "gbps": rate / 10, "share": share}}
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
        self.assertIn("differ by more than 15 %: 1.00 (0.90 to 1.10) times one", judged("one", turns([90, 100, 110], one=[100] * 3)).problem)
        self.assertEqual(judged("one", turns([60, 100, 101, 150], one=[100] * 4)).problem, "")  # the outermost aside
        self.assertIn("kernels", judged("one", turns([100] * 3, valid=False, one=[100] * 3)).problem)
        self.assertEqual(judged("one", turns([100], one=[100])).problem, "a single turn")
        self.assertIn("80 to 120 tokens/s", judged("one", turns([80, 120], one="crashed")).problem)
        noisy = judged("one", turns([60, 100, 200], one=[100] * 3))
        self.assertEqual(noisy.goals(), [])
        self.assertEqual(verdict([noisy])[0], "INVALID: 1 of 1 rows")
        nothing = outcome(row(), "auto", [{"Stagecoach auto": {"why": "no memory"}}] * 3, [], 1.15)
        self.assertEqual((nothing.problem, cell(nothing, ["one"])), ("no memory", "–"))

    def test_a_cell(self):
        self.assertEqual(cell(judged("one", turns([95, 90.04, 100], one=[100] * 3, two="crashed"), ["one", "two"]), ["one", "two"]),
                         "95.0 / 100 / –, **0.95** (0.90–1.00), 80 % ✗")
        self.assertEqual(cell(judged("one", turns([95, 95], one="crashed")), ["one"]), "95.0 / –, 80 %")

    def test_a_section(self):
        decode = Row("Dense", MODEL.name, "decode, 1 thread", MODEL, DECODE, "one")
        batch = Row("Dense", MODEL.name, "8 sequences", MODEL, BATCHES[0], "batch")
        outcomes = [outcome(decode, "auto", turns([100] * 2, one=[100] * 2), ["one"], 1.15),
                    outcome(batch, "auto", turns([100] * 2, one="GGML_ASSERT"), ["one"], 1.15)]
        self.assertEqual(section(outcomes, lambda isa: (["one"], True), "Heading."), "\n".join([
            "Heading.", "", "| Dense | isa | MB a token | decode, 1 thread | 8 sequences |", "|---|---|--:|---|---|",
            "| shape:2 q8_0 | auto | 100 | 100 / 100, **1.00** (1.00–1.00), 80 % ✗ | 100 / –, 80 % |", "",
            "* No figure of one: shape:2 q8_0, 8 sequences: `GGML_ASSERT`.",
            "* One sequence: 0 of 1 hold; missed: shape:2 q8_0, decode, 1 thread, auto 1.00 of 1.1.",
            "* Decoding one sequence at 90 % of the probe's read bandwidth or more: 0 of 1."]))
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
