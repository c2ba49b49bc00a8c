"""Measuring on a machine whose speed changes from one minute to the next: each measurement stands between two of a reference, counts
only where these two agree, and is taken again until enough of them count. Ratios are of a measurement to the mean of its two."""
import statistics


class Brackets:
    """Collects why something is no measurement in `problems`; none: everything that was asked for counts."""

    def __init__(self, spread, wanted, tries):
        """spread: of two rates that agree, larger to smaller. wanted: of `tries` measurements, how many have to count."""
        self.spread, self.wanted, self.tries, self.problems = spread, wanted, tries, []

    def agree(self, one, other):
        return max(one, other) <= self.spread * min(one, other)

    def take(self, name, reference, measure, rate=lambda result: result):
        """Pairs of what `measure` returned and the two references around it. rate: of a reference, by which two agree."""
        taken, rates, before = [], [], reference()
        for _ in range(self.tries):
            result, after = measure(), reference()
            rates.append(f"{rate(before):.3g} and {rate(after):.3g}")
            if self.agree(rate(before), rate(after)):
                taken.append((result, (before, after)))
            if len(taken) == self.wanted:
                break
            before = after
        if len(taken) < self.wanted:
            self.problems.append(f"{name}: the machine was steady around {len(taken)} of {self.tries} runs, {self.wanted} are needed; "
                                 f"the reference gave {', '.join(rates)}")
        return taken


def ratios(taken, of=lambda result: result):
    return [of(result) / statistics.mean(of(reference) for reference in around) for result, around in taken]


def median_and_range(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "not measured"
