"""What was measured side by side, row by row: ratios, whether they count, which goals hold, and the table of it."""
import collections
import dataclasses
import statistics

from beside.programs import Stagecoach, Test
from brackets import median_and_range

BEGIN, END = "<!-- side_by_side.py: begin -->", "<!-- side_by_side.py: end -->"
AT_THE_WALL = 0.9  # of the read bandwidth
GOALS = {"one": "one sequence", "prompt": "prompt", "batch": "8 and 32 sequences", "stages": "two one-thread stages", "depth": "reading at depth"}


@dataclasses.dataclass(frozen=True)
class Model:
    shape: str
    layers: int
    type: str

    @property
    def name(self):
        return f"{self.shape}:{self.layers} {self.type}"


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure of ours and those that it stands beside: the peers' of the same test, or our own of `beside`."""
    table: str
    line: str
    column: str
    model: Model
    test: Test
    kind: str  # of goal
    beside: Test = None

    @property
    def name(self):
        return f"{self.table}: {self.line}: {self.column}"


@dataclasses.dataclass
class Outcome:
    """A row under one instruction set."""
    row: Row
    isa: str
    judged: bool  # else its goals say nothing
    problem: str = ""  # why it does not count
    ours: list = dataclasses.field(default_factory=list)  # tokens/s, by turn
    peers: dict = dataclasses.field(default_factory=dict)  # the same of each that has all turns
    why: list = dataclasses.field(default_factory=list)  # of each other one its name and what was wrong
    better: str = ""  # peer, by its median
    ratios: list = dataclasses.field(default_factory=list)  # to that one, by turn
    share: float = None  # of the read bandwidth; of a prompt, of the peak of its multiply-adds
    token_bytes: float = None  # that are read for one

    @property
    def better_share(self):
        return self.share / statistics.median(self.ratios) if self.ratios and self.share and self.row.test.new else None

    @property
    def ratio(self):
        return round(statistics.median(self.ratios), 2) if self.ratios else None

    def goals(self):
        """Name, what is wanted, what there is, and whether it is met."""
        if self.problem or not self.judged:
            return []
        kind, found = self.row.kind, []
        if self.ratio is not None:
            free = kind in ("one", "depth") and self.better_share is not None and self.better_share < AT_THE_WALL
            wanted = {"one": 1.1 if free else 1.0, "depth": 1.1 if free else 1.0, "prompt": 1.3, "batch": 1.3, "stages": 0.9}[kind]
            found.append((GOALS["one" if kind == "depth" else kind], wanted, self.ratio, self.ratio >= wanted))
        if kind == "depth" and self.share is not None:
            found.append((GOALS["depth"], 0.8, self.share, self.share >= 0.8))
        return found


def middle(values):
    """Without the lowest and the highest quarter."""
    cut = len(values) // 4
    return sorted(values)[cut:len(values) - cut]


def outcome(row, isa, turns, peers, spread, judged=True):
    """turns: of each the figures (beside/programs.py) by program's label; `peers` are the labels of those to stand beside."""
    found = Outcome(row, isa, judged)
    ours = [turn[f"{Stagecoach.name} {isa}"] for turn in turns]
    if missing := [figure["why"] for figure in ours if "why" in figure]:
        found.problem = missing[0]
        return found
    found.ours = [figure["rate"] for figure in ours]
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
    kept = middle(found.ratios or found.ours)
    if not all(figure["valid"] for figure in ours):
        found.problem = "the kernels were not checked, or did not agree with the scalar ones"
    elif len(turns) < 2:
        found.problem = "a single turn"
    elif max(kept) > spread * min(kept):
        what = f"{median_and_range(found.ratios)} times {found.better}" if found.ratios else f"{min(kept):.3g} to {max(kept):.3g} tokens/s"
        found.problem = f"turns differ by more than {100 * (spread - 1):.0f} %: {what}"
    return found


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def cell(found, peers):
    """Ours / each peer's, ratio (range), share; and a sign where it does not count or misses its goal."""
    if not found.ours:
        return "–"
    rates = [found.ours] + [found.peers.get(peer) for peer in peers]
    parts = [" / ".join(number(statistics.median(of)) if of else "–" for of in rates)]
    parts += [f"**{found.ratio:.2f}** ({min(found.ratios):.2f}–{max(found.ratios):.2f})"] if found.ratios else []
    parts += [f"{100 * found.share:.0f} %"] if found.share and not found.row.beside else []
    sign = " ~" if found.problem else " ✗" if any(not met for *_, met in found.goals()) else ""
    return ", ".join(parts) + sign


def verdict(outcomes):
    bad = [found for found in outcomes if found.problem]
    lines = [f"INVALID: {len(bad)} of {len(outcomes)} rows" if bad else f"VALID: all {len(outcomes)} rows"]
    return lines + [f"INVALID: {found.row.name}, {found.isa}: {found.problem}" for found in bad]


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
    read = [found.share for found in outcomes if found.row.kind == "one" and not found.problem and found.share]
    if read:
        lines.append(f"decoding one sequence at {100 * AT_THE_WALL:.0f} % of the probe's read bandwidth or more: "
                     f"{sum(share >= AT_THE_WALL for share in read)} of {len(read)}")
    return lines


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
    lines += [f"* Does not count (~): {found.row.line}, {found.row.column}, {found.isa}: {found.problem}." for found in outcomes if found.problem]
    lines += [f"* {line[0].upper()}{line[1:]}." for line in goal_lines(outcomes)]
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
              (f"; INVALID: {found.problem}" if found.problem else ""))
