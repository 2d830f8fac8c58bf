"""Rows of raw data, and the ratios computed from them."""

import math
import statistics

import harness

# Student's t, 95 % two-sided, by degrees of freedom.
T95 = [math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]
# The same at 99 %, for controls: a run has dozens of them, and at 95 % one in twenty would be wrong by chance.
T99 = [math.nan, 63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17, 3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86, 2.85]
# An interval that excludes 1.00 by less than this shows no difference.
SAME = 0.01
# A control with a wider interval than this, to either side, shows nothing.
WIDE = 0.10
# A measurement further than this many median absolute deviations from its expected value gets a smaller weight, so that a disturbed one has
# little influence.
FAR = 3 * 1.4826


def as_numbers(row):
    """Converts counts to numbers; leaves all other values as written."""
    return {key: int(value) if str(value).lstrip("-").isdigit() else value for key, value in row.items()}


class Rows(harness.Rows):
    """Rows with the number of their run, which is one more than that of the previous run."""

    def __init__(self, path, columns):
        super().__init__(path, ["run", *columns])
        self.run = 1 + max((row["run"] for row in self.rows), default=0)

    read = staticmethod(as_numbers)

    def add(self, row):
        super().add({**row, "run": self.run})


# If a cache line between the CPUs takes this many times longer, the host has moved one of them to another cache.
MOVED = 1.6


def place(rows):
    """A function of a row: the place of this machine's CPUs on the host during the measurement; None if the host moved them meanwhile.

    If the CPUs were sometimes near each other and sometimes far apart, the times of line.c before and after fall into two groups; the
    border is the largest gap. Measurements of different places are not compared."""
    times = sorted(row[name] for row in rows for name in ("line_before_ns", "line_after_ns") if row.get(name))
    gaps = [(high / low, math.sqrt(high * low)) for low, high in zip(times, times[1:])]
    width, border = max(gaps, default=(1, 0))

    def of(row):
        before, after = row.get("line_before_ns"), row.get("line_after_ns")
        if not before or not after:
            return "one"
        if max(before, after) > MOVED * min(before, after):
            return None
        return "one" if width < MOVED else "near" if before < border else "far"
    return of


def places(rows):
    """The number of measurements in each place, for a table."""
    where = place(rows)
    found = [where(row) for row in rows]
    times = lambda name: [row["line_before_ns"] for row, own in zip(rows, found) if own == name]
    return "; ".join([*(f"{len(times(name))} with the CPUs {'' if name == 'one' else name + ', '}{statistics.median(times(name))} ns apart (a line there and back)"
                        for name in ("one", "near", "far") if times(name) and rows[0].get("line_before_ns")), *([f"{found.count(None)} while they were moved, left out"] if None in found else [])])


class Ratio:
    """A ratio of two versions with its interval. `count` is the smaller of their numbers of measurements."""

    def __init__(self, count=0, log=math.nan, error=math.nan, quantile=math.nan):
        self.count, self.middle = count, math.exp(log)
        self.low, self.high = math.exp(log - quantile * error), math.exp(log + quantile * error)

    def is_one(self):
        """Whether the interval permits a ratio of 1."""
        return self.low <= 1 <= self.high or abs(self.middle - 1) < SAME

    def __str__(self):
        if self.count == 0:
            return "not measured"
        return f"{self.middle:.2f} (n = {self.count})" if math.isnan(self.low) else f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})"


def fit(points):
    """Fits ln(value) = version + round + place + residual, as docs/zones.md fits load and repeat: by alternating weighted means with Huber
    weights. `points`: (log, (version, round, place)). Returns the versions' levels, and the residuals' deviation and degrees of freedom."""
    levels = [{key[factor]: 0.0 for _, key in points} for factor in range(3)]
    weights = [1.0] * len(points)
    residuals = []
    for _ in range(60):
        for factor in range(3):
            sums = {name: [0.0, 0.0] for name in levels[factor]}
            for (log, key), weight in zip(points, weights):
                rest = log - sum(levels[other][key[other]] for other in range(3) if other != factor)
                sums[key[factor]][0] += weight * rest
                sums[key[factor]][1] += weight
            levels[factor] = {name: total / weight for name, (total, weight) in sums.items()}
        residuals = [log - sum(levels[factor][key[factor]] for factor in range(3)) for log, key in points]
        reach = max(FAR * statistics.median(abs(residual) for residual in residuals), SAME)
        weights = [min(1.0, reach / abs(residual)) if residual else 1.0 for residual in residuals]
    free = len(points) - sum(len(level) - 1 for level in levels) - 1
    deviation = math.sqrt(sum(weight * residual ** 2 for weight, residual in zip(weights, residuals)) / free) if free > 0 else math.nan
    return levels[0], deviation, free


def ratio(rows, value, version, other, quantiles=T95):
    """The ratio of `value` (a column, or a function of a row), version to other, from all measurements at this load: the effects of round
    and place, which all versions share, cancel. Stock and control count as one version, except against each other."""
    read = value if callable(value) else lambda row: float(row[value])
    where, is_control = place(rows), "control" in (version, other)
    name = lambda row: "stock" if row["version"] == "control" and not is_control else row["version"]
    points = [(math.log(read(row)), (name(row), (row["run"], row["round"]), where(row))) for row in rows if read(row) > 0 and where(row)]
    counts = [sum(key[0] == wanted for _, key in points) for wanted in (version, other)]
    if min(counts) == 0:
        return Ratio()
    levels, deviation, free = fit(points)
    error = deviation * math.sqrt(1 / counts[0] + 1 / counts[1])
    return Ratio(min(counts), levels[version] - levels[other], error, quantiles[min(free, len(quantiles) - 1)] if free > 0 else math.nan)


def control(rows, value):
    """Returns the ratio of stock to stock, and the reason why no other ratio may be given, or None."""
    found, usual = ratio(rows, value, "control", "stock", T99), ratio(rows, value, "control", "stock")
    if found.count < 3:
        return found, "too few rounds for a control"
    if not found.is_one():
        return found, f"stock against stock gave {found}"
    return found, f"stock against stock is too imprecise, {found}" if max(usual.high - 1, 1 - usual.low) > WIDE else None


def against_stock(rows, value, known):
    """Returns {version: text of its ratio to stock} and the control. Ratios are given only if the control is 1.00."""
    found, why = control(rows, value)
    texts = {version: "not given" if why else str(ratio(rows, value, version, "stock")) for version in known}
    return {**texts, "stock": "1", "control": f"**{found}**"}, found, why


def middle(rows, value, version):
    """Returns the median in the place with the most measurements."""
    read, where = value if callable(value) else lambda row: float(row[value]), place(rows)
    found = [where(row) for row in rows if where(row)]
    usual = statistics.mode(found) if found else None
    values = [read(row) for row in rows if row["version"] == version and where(row) == usual]
    return statistics.median(values) if values else math.nan


def sources(rows, value, table):
    """Returns the lines of a table that divides a gain into steps, each with its ratio to the step before it."""
    lines = []
    for name, version, other, what in table:
        found = ratio(rows, value, version, other)
        if found.count > 1:
            seen = "no difference seen" if found.is_one() else f"{(found.middle - 1) * 100:+.0f} %"
            lines.append(f"| {name} | `{version}` to `{other}` | {found} | {seen} | {what} |")
    return ["| of it | ratio of | | | |", "|---|---|---|---|---|", *lines] if lines else []
