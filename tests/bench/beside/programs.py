"""Stagecoach and programs of llama.cpp's make, each asked for the tokens/s of the same tests: what to call, and how to read the answer."""
import collections
import csv
import dataclasses
import functools
import hashlib
import io
import json
import os
import re
import subprocess
import tempfile

from beside.accounts import account_of, read_bytes
from served import MPI_AS_ROOT, Programs

MOST_SECONDS = 600  # of one call
BATCH = 512  # rows of a prompt that are computed at once, everywhere


@dataclasses.dataclass(frozen=True, order=True)
class Test:
    """What a figure is of: a prompt of `prompt` tokens, or `new` tokens of each of `sequences`, after `depth` tokens of context.
    Equal sequences have the same tokens, as llama-batched-bench's have, and so choose the same experts."""
    prompt: int = 0
    new: int = 0
    depth: int = 0
    sequences: int = 1
    threads: int = 1  # of a stage
    stages: int = 1
    kv: str = "f16"
    equal: bool = False

    @property
    def one(self):
        """Whether it decodes one sequence without much context, which takes so little time that starting a program takes more."""
        return self.new > 0 and self.sequences == 1 and not self.depth

    @property
    def together(self):
        """What is alike in this is measured by all programs before the next."""
        return self.depth, self.kv, self.one or self.threads * self.stages

    @property
    def different(self):
        return self.sequences > 1 and not self.equal

    @property
    def ours_alone(self):
        return self.stages > 1 or self.different


# A figure is a dictionary: "rate", tokens/s, and what else the program says, or "why" there is none.


def lacking(tests, why):
    return {test: {"why": why} for test in tests}


def threads_of(tests):
    return ",".join(map(str, sorted({test.threads for test in tests})))


def repetitions(test):
    return "3" if test.one else "1"


def groups(tests, *fields):
    """Those that are alike in these fields, in the order of the first of each."""
    found = collections.defaultdict(list)
    for test in tests:
        found[tuple(getattr(test, field) for field in fields)].append(test)
    return found.values()


class Answer:
    """What a program wrote, and in `why` why it did not end well; "" where it did."""

    def __init__(self, command, folder):
        """Programs of other make leave their logs in `folder`."""
        self.out = self.err = ""
        try:
            done = subprocess.run(command, env=os.environ | MPI_AS_ROOT, cwd=folder, capture_output=True, text=True, errors="replace",
                                  timeout=MOST_SECONDS, stdin=subprocess.DEVNULL)
        except OSError as error:
            self.why = f"cannot run {os.path.basename(command[0])}: {error.strerror}"
        except subprocess.TimeoutExpired:
            self.why = f"took more than {MOST_SECONDS} s"
        else:
            self.out, self.err = done.stdout, done.stderr
            self.why = "" if done.returncode == 0 else last_words(self.err + self.out) or f"exit code {done.returncode}"


def last_words(text):
    """The last line that tells of a failure, without the folders in it: where a program was built is nobody's business."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]  # nor a stack
    for pattern in ("assert", "error|abort|fail", ""):
        if telling := [line for line in lines if re.search(pattern, line, re.IGNORECASE)]:
            return re.sub(r"\S*/", "", telling[-1])
    return ""


def hash_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


class Stagecoach:
    name = "Stagecoach"

    def __init__(self, build, isa, folder):
        self.programs, self.isa, self.folder = Programs(build), isa, folder
        self.label = f"{self.name} {isa}"
        self.version, self.splits = "", {}

    def files(self):
        return [self.programs.coordinator, self.programs.stage_worker]

    def measure(self, model, tests, _=None):
        figures = {}
        for test in tests:
            if test.prompt and test.depth:
                figures[test] = self.prompt_at_depth(model, test)
        for group in groups([test for test in tests if test not in figures], "together", "stages", "different"):
            figures |= self.bench(model, group)
        return figures

    def prompt_at_depth(self, model, test):
        """The last step of a longer prompt, by the step log, from its submission to its result."""
        whole = dataclasses.replace(test, prompt=test.depth + test.prompt, depth=0)
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
            figure = self.bench(model, [whole], ["--prefill-chunk", str(test.prompt), "--step-log", log.name])[whole]
            if "why" not in figure:
                last = [step for step in map(json.loads, log) if step["slices"] and step["slices"][0]["start"] == test.depth]
                if not last:
                    return {"why": "its step log has no step of the prompt"}
                account = account_of(last[-1])
                figure |= {"rate": test.prompt / account["wall_ns"] * 1e9, "share": None, "account": account}
        return figure

    def bench(self, model, tests, more=()):
        of = tests[0]
        command = [self.programs.coordinator, "bench", "-m", model, "-q", "-o", "jsonl", "--account", *self.stages(tests), *more, "-d", str(of.depth),
                   *(["--equal-sequences"] if any(test.equal for test in tests) else []), "-r", repetitions(of)]
        command += ["-p", str(max(test.prompt for test in tests)), "-n", str(max(test.new for test in tests))]
        command += ["-b", ",".join(str(sequences) for sequences in sorted({test.sequences for test in tests if test.new}) or [1])]
        if of.stages > 1:
            try:
                command += ["--layer-split", self.split(model, of, max(test.sequences for test in tests))]
            except RuntimeError as error:
                return lacking(tests, str(error))
        answer = Answer(command, self.folder)
        figures = lacking(tests, answer.why or "no figure")
        for record in map(json.loads, answer.out.splitlines()):
            self.version = f"{record['build']} ({record['isa']})"
            test = Test(record["n_prompt"], record["n_gen"], record["n_depth"], record["n_parallel"], record["n_threads"],
                        record["n_stages"], record["type_k"], record["equal_sequences"])
            if test in figures:
                figures[test] = figure_of(record)
        return figures

    def stages(self, tests):
        return ["--pp", str(tests[0].stages), "-t", threads_of(tests), "--isa", self.isa, "--kv-type", tests[0].kv]

    def split(self, model, test, sequences):
        """The layers of each stage as `coordinator plan` has them for this load from a probe of the host. RuntimeError."""
        if (model, sequences) not in self.splits:
            with tempfile.TemporaryDirectory() as work:
                profile = os.path.join(work, "profile.json")
                asked = ["-m", model, *self.stages([test])]
                answer = Answer([self.programs.coordinator, "probe", "-q", "-o", profile, *asked], self.folder)
                if not answer.why:
                    answer = Answer([self.programs.coordinator, "plan", "--profile", profile, "--json", "--max-num-seqs", str(sequences),
                                     "--prompt-tokens", "1", "--output-tokens", str(test.new), *asked], self.folder)
            if answer.why:
                raise RuntimeError(answer.why)
            stages = json.loads(answer.out)["stages"]
            self.splits[model, sequences] = ",".join(str(stage["last_layer"] - stage["first_layer"]) for stage in stages)
        return self.splits[model, sequences]


def figure_of(record):
    """Of a line of `coordinator bench --account -o jsonl`. What is read is what the account has counted."""
    figure = {"rate": record["avg_ts"], "valid": record["valid"], "isa": record["isa"], "account": record["account"], "gbps": None,
              "probe": None, "share": record["peak_share"], "ops": record["matrix_gops"] * 1e9 / record["avg_ts"]}  # a token's
    if record["n_gen"]:
        figure["gbps"] = read_bytes(record["account"]) / record["account"]["wall_ns"]
        figure["probe"] = record["read_gbps"] / record["read_share"] if record["read_share"] else None
        figure["share"] = figure["gbps"] / figure["probe"] if figure["probe"] else None
    return figure


class Kernels:
    """What the kernels do on one thread with weights that its cache holds, and of one row from memory (0), by kernel_bench: measured once for
    a build, and kept."""
    SHAPES = {0: "decode:1", 1: "cached:1", 8: "cached:8", 32: "cached:32", 256: "prefill:256"}  # by rows

    def __init__(self, build, folder):
        self.program, self.folder = Programs(build).kernel_bench, folder
        self.figures = {}

    def measure(self, isas, types):
        """RuntimeError: why it could not."""
        wanted = "^matmul/({})/({})/({})$".format(*("|".join(sorted(words)) for words in (isas, types, self.SHAPES.values())))
        what = hashlib.sha256((hash_of([self.program]) + wanted).encode()).hexdigest()[:16]
        kept = os.path.join(self.folder, f"kernels-{what}.json")
        if not os.path.exists(kept):
            answer = Answer([self.program, f"--benchmark_filter={wanted}", f"--benchmark_out={kept}.new", "--benchmark_out_format=json"],
                            self.folder)
            if answer.why:
                raise RuntimeError(f"kernel_bench: {answer.why}")
            os.rename(kept + ".new", kept)
        with open(kept) as file:
            self.figures = {entry["name"]: entry for entry in json.load(file)["benchmarks"]}

    def of(self, isa, type, rows):
        """Of one thread GB/s, GOP/s, the share of the peak of its multiply-adds, and what it reads from memory of its bandwidth for one row."""
        entry, from_memory = (self.figures[f"matmul/{isa}/{type}/{self.SHAPES[of]}"] for of in (rows, 0))
        return entry.get("GB/s"), entry["GOP/s"], entry["%peak"] / 100, from_memory["%bw"] / 100


class Program:
    """One of other make, and what its --help says about it."""

    def __init__(self, folder, name):
        self.path = os.path.join(os.path.realpath(folder), name)
        self.there = os.access(self.path, os.X_OK)

    @functools.cached_property
    def help(self):
        done = subprocess.run([self.path, "--help"], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              cwd=tempfile.gettempdir())
        return done.stdout + done.stderr

    def line_of(self, flag):
        return next((line for line in self.help.splitlines() if re.match(rf"\s*(-\S+,\s*)*{re.escape(flag)}(?![\w-])", line)), "")

    def switched_on(self, flag):
        """The words that switch it on; none where there is no such flag."""
        line = self.line_of(flag)
        if not line:
            return []
        choices = re.match(r"\s*(?:-[\w-]+,?\s+)+[<(\[]([\w|]+)[>)\]]", line)
        return [flag] + ([] if not choices else ["1"] if "1" in choices[1].split("|") else ["on"])

    def files(self):
        """It and the libraries that are not the system's."""
        listed = subprocess.run(["ldd", self.path], capture_output=True, text=True).stdout
        return [self.path] + [path for path in re.findall(r"=> (/\S+)", listed) if not re.match(r"/(usr/)?lib", path)]


class Peer:
    """A folder of programs as llama.cpp builds them: llama-bench and llama-batched-bench, and llama-sweep-bench where there is one."""

    def __init__(self, name, path, folder):
        self.name = self.label = name
        self.folder = folder
        names = ("llama-bench", "llama-batched-bench", "llama-sweep-bench")
        self.bench, self.batched, self.sweep = (Program(path, program) for program in names)
        for program in (self.bench, self.batched):
            if not program.there:
                raise FileNotFoundError(f"--peer {name}: there is no program '{program.path}'; give the folder that llama-bench and "
                                        "llama-batched-bench are in")
        self.version = ""

    def files(self):
        return [file for program in (self.bench, self.batched, self.sweep) if program.there for file in program.files()]

    @functools.cached_property
    def variants(self):
        """Ways to run it, of which the better one counts: weights as in the file, and packed anew where it has that as a choice."""
        return ["plain"] + (["repacked"] if self.bench.switched_on("-rtr") else [])

    def words(self, program, model, test, variant):
        return [program.path, "-m", model, "-ctk", test.kv, "-ctv", test.kv, *program.switched_on("-fa"),
                *(program.switched_on("-rtr") if variant == "repacked" else [])]

    def measure(self, model, tests, variants=None):
        """The better figure of each test's variants, with the variant; of all where `variants` has none of it."""
        best = lacking(tests, "no figure")
        for variant in self.variants:  # behind much context, where attention decides, the last one alone
            asked = [test for test in tests if (variants or {}).get(test, variant) == variant and (not test.depth or variant == self.variants[-1])]
            for test, figure in self.of_variant(model, asked, variant).items():
                if figure.get("rate", -1) >= best[test].get("rate", -1):
                    best[test] = figure | {"variant": variant}
        return best

    def of_variant(self, model, tests, variant):
        figures = {}
        for group in groups(tests, "together"):
            deep = group[0].depth > 0 and not self.bench.line_of("--n-depth")
            kinds = {"batch": [test for test in group if test.sequences > 1]}
            kinds["swept"] = [test for test in group if test.prompt and deep]
            kinds["one"] = [test for test in group if test not in kinds["batch"] + kinds["swept"]]
            for kind, ask in (("one", self.one), ("swept", self.swept), ("batch", self.batch)):
                if kinds[kind]:
                    figures |= ask(model, kinds[kind], variant)
        return figures

    def one(self, model, tests, variant):
        """llama-bench, which has context before a test either for all tests (-d) or for decoding alone (-gp)."""
        of, prompt, new = tests[0], max(test.prompt for test in tests), max(test.new for test in tests)
        command = self.words(self.bench, model, of, variant) + ["-t", threads_of(tests), "-r", repetitions(of), "-o", "csv"]
        if not of.depth:
            command += ["-p", str(prompt), "-n", str(new)]
        elif self.bench.line_of("--n-depth"):
            command += ["-p", str(prompt), "-n", str(new), "-d", str(of.depth)]
        elif self.bench.line_of("-gp"):
            command += ["-p", "0", "-n", "0", "-gp", f"{of.depth},{new}"]
        else:
            return lacking(tests, "its llama-bench has no context before a test")
        answer = Answer(command, self.folder)
        figures = lacking(tests, answer.why or "no figure")
        for record in records_of_csv(answer.out):
            self.version = record.get("build_commit", self.version)
            after = re.search(r"@pp(\d+)", record.get("test", ""))
            depth = int(after[1] if after else record.get("n_depth") or 0)
            test = dataclasses.replace(of, prompt=0 if after else int(record["n_prompt"]), new=int(record["n_gen"]), depth=depth,
                                       threads=int(record["n_threads"]))
            if test in figures:
                figures[test] = {"rate": float(record["avg_ts"])}
        return figures

    def swept(self, model, tests, variant):
        """A prompt on top of context: llama-sweep-bench computes one after the other and says what each took."""
        if not self.sweep.there:
            return lacking(tests, "no prompt on top of context without llama-sweep-bench")
        of = tests[0]
        answer = Answer(self.words(self.sweep, model, of, variant) +
                        ["-t", threads_of(tests), "-c", str(of.depth + of.prompt), "-b", str(of.prompt), "-ub", str(of.prompt), "-n", "1"], self.folder)
        figures = lacking(tests, answer.why or "no figure")
        for row in rows_of_table(answer.out + answer.err):  # some write it with their log
            test = dataclasses.replace(of, prompt=int(row["PP"]), depth=int(row["N_KV"]))
            if test in figures:
                figures[test] = {"rate": float(row["S_PP t/s"])}
        return figures

    def batch(self, model, tests, variant):
        of, counts = tests[0], sorted(test.sequences for test in tests)
        context = -(-counts[-1] * (of.new + 8) // 256) * 256
        answer = Answer(self.words(self.batched, model, of, variant) + self.batched.switched_on("-wb") +
                        ["-t", threads_of(tests), "-npp", "1", "-ntg", str(of.new), "-npl", ",".join(map(str, counts)), "-c", str(context), "-ub", str(BATCH)], self.folder)
        figures = lacking(tests, answer.why or "no figure")
        for row in rows_of_table(answer.out + answer.err):  # some write it with their log
            test = dataclasses.replace(of, sequences=int(row["B"]))
            if test in figures:
                figures[test] = {"rate": float(row["S_TG t/s"])}
        return figures


def records_of_csv(text):
    """Whole rows of CSV that other lines may stand before."""
    lines = text.splitlines()
    begin = next((number for number, line in enumerate(lines) if "avg_ts" in line), len(lines))
    return [record for record in csv.DictReader(io.StringIO("\n".join(lines[begin:]))) if record.get("avg_ts")]


def rows_of_table(text):
    """Rows of a Markdown table by the names in its head; cells are right-aligned, other lines may stand around it."""
    head, rows = None, []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []
        if "PP" in cells:
            head = cells
        elif head and len(cells) == len(head) and re.fullmatch(r"\d+", cells[0]):
            rows.append(dict(zip(head, cells)))
    return rows
