"""What was measured side by side, row by row: ratios, whether they count, which goals hold and why others do not, and the table of it."""
import collections
import dataclasses
import math
import statistics

from beside.accounts import Bounds, percent, reason
from beside.programs import Stagecoach, Test
from brackets import median_and_range

BEGIN, END = "<!-- side_by_side.py: begin -->", "<!-- side_by_side.py: end -->"
AT_THE_WALL = 0.9  # of the read bandwidth
CONFIDENCE = 0.75  # of the interval of a median: all of 3 to 5 turns, the middle 4 of 6
RATIOS = {"one": 1.0, "depth": 1.0, "prompt": 1.3, "batch": 1.3, "stages": 0.9}  # wanted, by the kind of goal
GOALS = {"one": "one sequence", "prompt": "prompt", "batch": "8 and 32 sequences", "stages": "two one-thread stages", "depth": "reading at depth"}


@dataclasses.dataclass(frozen=True)
class Model:
    shape: str
    layers: int
    type: str

    @property
    def name(self):
        return f"{self.shape}:{self.layers} {self.type}"

    @property
    def experts(self):
        return "-a3b" in self.shape or "gpt-oss" in self.shape

    @property
    def main_type(self):
        """As kernels name it; of a mixture, that of most weights."""
        return self.type.upper().removesuffix("_M")


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure of ours and those that it stands beside: the peers' of the same test, or our own of `beside`."""
    table: str
    line: str
    column: str
    model: Model
    test: Test
    kind: str  # of goal; "different": none
    beside: Test = None

    @property
    def name(self):
        return f"{self.table}: {self.line}: {self.column}"

    @property
    def kernel_rows(self):
        """That a matrix meets, about; an expert's, of those of a prompt. 256 are as fast as more."""
        return self.test.sequences if self.test.new else 32 if self.model.experts else 256


@dataclasses.dataclass
class Outcome:
    """A row under one instruction set."""
    row: Row
    isa: str
    judged: bool  # else its goals say nothing
    problem: str = ""  # why it does not count
    detail: str = ""  # of that, the figures
    ours: list = dataclasses.field(default_factory=list)  # tokens/s, by turn
    peers: dict = dataclasses.field(default_factory=dict)  # the same of each that has all turns
    why: list = dataclasses.field(default_factory=list)  # of each other one its name and what was wrong
    better: str = ""  # peer, by its median
    ratios: list = dataclasses.field(default_factory=list)  # to that one, by turn
    share: float = None  # of the read bandwidth; of a prompt, of the peak of its multiply-adds
    token_bytes: float = None  # that are read for one
    figures: list = dataclasses.field(default_factory=list)  # ours, by turn
    typical: dict = None  # of these that with the median
    typical_beside: dict = None  # one stage's of that turn
    bounds: Bounds = None  # of the typical one
    of_bound: tuple = ()  # of one sequence: what step and matrices reach of it, medians of the turns

    @property
    def better_share(self):
        return self.share / statistics.median(self.ratios) if self.ratios and self.share and self.row.test.new else None

    @property
    def ratio(self):
        return round(statistics.median(self.ratios), 2) if self.ratios else None

    @property
    def wanted(self):
        """Of the ratio; more of one sequence where the peer leaves bandwidth unused."""
        free = self.row.kind in ("one", "depth") and self.better_share is not None and self.better_share < AT_THE_WALL
        return 1.1 if free else RATIOS[self.row.kind]

    def goals(self):
        """Name, what is wanted, what there is, and whether it is met."""
        if self.problem or not self.judged:
            return []
        kind, found = self.row.kind, []
        if self.ratio is not None:
            found.append((GOALS["one" if kind == "depth" else kind], self.wanted, self.ratio, self.ratio >= self.wanted))
        if kind == "depth" and self.share is not None:
            found.append((GOALS["depth"], 0.8, self.share, self.share >= 0.8))
        return found


    @property
    def below(self):
        """Whether one sequence decodes slower than the wall."""
        return not self.problem and bool(self.of_bound) and self.of_bound[0] < AT_THE_WALL

    def reason(self):
        """In numbers of a typical turn's account, why a goal is missed; empty: none is."""
        if not self.typical or not (self.below or any(not met for *_, met in self.goals())):
            return ""
        return reason(self.row.kind, self.typical, self.typical_beside, self.bounds, self.row.model.main_type, self.row.kernel_rows)


def interval(values):
    """The narrowest two of the values, as far from the lowest as from the highest, that hold the median of what they are drawn from with
    CONFIDENCE, whatever its distribution: it lies beyond the k-th of n with the chance of at most k - 1 heads in n throws of a coin."""
    count, cut = len(values), 0
    while 2 * sum(math.comb(count, heads) for heads in range(cut + 2)) <= (1 - CONFIDENCE) * 2**count:
        cut += 1
    return sorted(values)[cut], sorted(values)[-1 - cut]


def outcome(row, isa, turns, peers, spread, judged=True):
    """turns: of each the figures (beside/programs.py) by program's label; `peers` are the labels of those to stand beside."""
    found = Outcome(row, isa, judged)
    ours = [turn[f"{Stagecoach.name} {isa}"] for turn in turns]
    if missing := [figure["why"] for figure in ours if "why" in figure]:
        found.problem = missing[0]
        return found
    found.figures, found.ours = ours, [figure["rate"] for figure in ours]
    for peer in peers:
        theirs = [turn[peer] for turn in turns]
        if missing := [figure["why"] for figure in theirs if "why" in figure]:
            found.why.append((peer, missing[0]))
        else:
            found.peers[peer] = [figure["rate"] for figure in theirs]
    if found.peers:
        found.better = max(found.peers, key=lambda peer: statistics.median(found.peers[peer]))
        found.ratios = [rate / other for rate, other in zip(found.ours, found.peers[found.better])]
    if shares := [figure["share"] for figure in ours if figure["share"]]:
        found.share = round(statistics.median(shares), 2)  # goals are judged on what is shown
    if read := [figure["gbps"] * 1e9 / figure["rate"] for figure in ours if figure["gbps"]]:
        found.token_bytes = statistics.median(read)
    found.typical, found.typical_beside = typical(ours, [turn.get("one stage") for turn in turns])
    low, high = interval(found.ratios or found.ours)
    decided = judged and found.ratios and (round(low, 2) >= found.wanted or round(high, 2) < found.wanted)
    if not all(figure["valid"] for figure in ours):
        found.problem = "the kernels were not checked, or did not agree with the scalar ones"
    elif len(turns) < 2:
        found.problem = "a single turn"
    elif high > spread * low and not decided:
        found.problem = f"the median may lie anywhere in more than {100 * (spread - 1):.0f} %"
        found.detail = f"{low:.2f}–{high:.2f}" if found.ratios else f"{low:.3g}–{high:.3g} tokens/s"
    return found


def typical(ours, beside):
    """The figures of the turn in which ours is the median."""
    middle = statistics.median_low(figure["rate"] for figure in ours)
    return next((figure, other) for figure, other in zip(ours, beside) if figure["rate"] == middle)


def bound(outcomes, kernels):
    """Finds out what bounds each, by what `kernels` measured."""
    for found in outcomes:
        if found.typical and found.typical.get("account") and found.row.kind != "stages":
            kernel, threads = kernels.of(found.typical["isa"], found.row.model.main_type, found.row.kernel_rows), found.row.test.threads
            found.bounds = Bounds(found.typical, threads, kernel)
            if found.row.kind == "one" and all(figure["probe"] for figure in found.figures):
                turns = [Bounds(figure, threads, kernel) for figure in found.figures]
                found.of_bound = tuple(round(statistics.median(of), 2) for of in zip(*((turn.step, turn.alone) for turn in turns)))


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def cell(found, peers):
    """Ours / each peer's, ratio (range), share; and a sign where it does not count or misses its goal."""
    if not found.ours:
        return "–"
    rates = [found.ours] + [found.peers.get(peer) for peer in peers]
    parts = [" / ".join(number(statistics.median(of)) if of else "–" for of in rates)]
    parts += [f"**{found.ratio:.2f}** ({min(found.ratios):.2f}–{max(found.ratios):.2f})"] if found.ratios else []
    shares = found.of_bound or [found.share]
    parts += [", ".join(map(percent, shares))] if found.share and not found.row.beside else []
    sign = " ~" if found.problem else " ✗" if any(not met for *_, met in found.goals()) else ""
    return ", ".join(parts) + sign


def verdict(outcomes):
    bad = [found for found in outcomes if found.problem]
    lines = [f"INVALID: {len(bad)} of {len(outcomes)} rows" if bad else f"VALID: all {len(outcomes)} rows"]
    return lines + [f"INVALID: {found.row.name}, {found.isa}: {found.problem}" + (f": {found.detail}" if found.detail else "") for found in bad]


def goal_lines(outcomes):
    """Of each goal how many rows meet it, and those that do not."""
    held = collections.defaultdict(list)
    for found in outcomes:
        for name, wanted, has, met in found.goals():
            held[name].append((f"{found.row.line}, {found.row.column}, {found.isa} {has:.2f} of {wanted}", met))
    lines = []
    for name, rows in held.items():
        missed = [text for text, met in rows if not met]
        lines.append(f"{name}: {len(rows) - len(missed)} of {len(rows)} hold" + ("; missed: " + "; ".join(missed) if missed else ""))
    one = [found for found in outcomes if found.of_bound and not found.problem]
    if one:
        lines.append(f"decoding one sequence at {percent(AT_THE_WALL)} or more of the smaller of the probe's read bandwidth and what the type's "
                     f"arithmetic allows for one row: {sum(not found.below for found in one)} of {len(one)}; its matrices alone: "
                     f"{sum(found.of_bound[1] >= AT_THE_WALL for found in one)}")
    return lines


def folded(outcomes):
    """A line for each way not to count."""
    rows = collections.defaultdict(list)
    for found in outcomes:
        if found.problem:
            rows[found.problem].append(f"{found.row.line}, {found.row.column}, {found.isa} {found.detail}".rstrip())
    return [f"* Does not count (~), {problem}: {'; '.join(names)}." for problem, names in rows.items()]


def section(outcomes, peers_of, heading):
    """Markdown: a table for each topic with a line for each file and instruction set, what does not count, and the goals."""
    lines = [heading, ""]
    for table in dict.fromkeys(found.row.table for found in outcomes):
        of = [found for found in outcomes if found.row.table == table]
        columns = list(dict.fromkeys(found.row.column for found in of))
        sizes = any(found.token_bytes and found.row.column.startswith("decode, 1 ") for found in of)
        lines += [f"| {table} | isa |" + (" MB a token |" if sizes else "") + "".join(f" {column} |" for column in columns),
                  "|---|---|" + ("--:|" if sizes else "") + "---|" * len(columns)]
        for line, isa in dict.fromkeys((found.row.line, found.isa) for found in of):
            cells = {found.row.column: found for found in of if (found.row.line, found.isa) == (line, isa)}
            first = next(iter(cells.values()))
            size = f" {first.token_bytes / 1e6:.0f} |" if first.token_bytes else " – |"
            peers = ["one stage"] if first.row.beside else peers_of(isa)[0]
            lines.append(f"| {line} | {isa} |" + (size if sizes else "") +
                         "".join(f" {cell(cells[column], peers) if column in cells else ''} |" for column in columns))
        lines.append("")
    why = collections.defaultdict(list)
    for found in outcomes:
        for peer, reason in found.why:
            why[peer, reason].append(f"{found.row.line}, {found.row.column}")
    lines += [f"* No figure of {peer}: {'; '.join(dict.fromkeys(rows))}: `{reason}`." for (peer, reason), rows in why.items()]
    lines += folded(outcomes) + [f"* {line[0].upper()}{line[1:]}." for line in goal_lines(outcomes)]
    if reasons := [f"* {found.row.line}, {found.row.column}, {found.isa}: {found.reason()}." for found in outcomes if found.reason()]:
        lines += ["", "Why, by the account of a step in the turn with the median, for each goal missed and each sequence below 90 %:", ""] + reasons
    return "\n".join(lines)


def replaced(text, made):
    """The text with `made` between the marks, which are added where there are none. ValueError: one without the other."""
    block = f"{BEGIN}\n{made}\n{END}"
    begin, end = text.find(BEGIN), text.find(END)
    if (begin < 0) != (end < 0) or end < begin:
        raise ValueError(f"expected both '{BEGIN}' and '{END}' in this order, or neither")
    if begin < 0:
        return (text.rstrip("\n") + "\n\n" if text.strip() else "") + block + "\n"
    return text[:begin] + block + text[end + len(END):]


def print_rows(outcomes):
    for found in outcomes:
        peers = ", ".join(f"{peer} {number(statistics.median(of))}" for peer, of in found.peers.items())
        goals = "; ".join(f"{name} {wanted}: {'met' if met else 'MISSED'}" for name, wanted, _, met in found.goals())
        print(f"{found.row.name}, {found.isa}: " + (number(statistics.median(found.ours)) if found.ours else "no figure") +
              (f" beside {peers}, {median_and_range(found.ratios)} times {found.better}" if found.ratios else "") +
              (f", {found.token_bytes / 1e6:.0f} MB a token" if found.token_bytes else "") +
              (f", {100 * found.share:.0f} % of the {'bandwidth' if found.row.test.new else 'peak'}" if found.share else "") +
              (f"; {goals}" if goals else "") + "".join(f"; {peer}: {reason}" for peer, reason in found.why) +
              (f"; INVALID: {found.problem}" if found.problem else "") +
              (f"\n    {found.reason()}" if found.reason() else ""))
