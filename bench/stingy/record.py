"""Rows of raw data, kept as they are measured, and the ratios that are read from them."""

import csv
import math
import os
import statistics

# Student's t, 95 % two-sided, by degrees of freedom.
T95 = [math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]
# The same at 99 %: a run has dozens of controls, of which at 95 % one in twenty would be off by chance.
T99 = [math.nan, 63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17, 3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86, 2.85]
# Where an interval is so narrow that it leaves 1.00 out by less than this, that is no difference.
SAME = 0.01
# A control whose interval is wider than this, to either side, shows nothing.
WIDE = 0.10
# A round further from the median than this many median absolute deviations is drawn in to there: one disturbed round moves little.
FAR = 3 * 1.4826


def as_numbers(row):
    """Counts as numbers; all else stays as it was written."""
    return {key: int(value) if str(value).lstrip("-").isdigit() else value for key, value in row.items()}


class Rows:
    """A CSV file that grows by a row at a time: a crash, Ctrl-C or kill loses what is being measured, and nothing before it."""

    def __init__(self, path, columns):
        self.path, self.columns = path, ["run", *columns]
        self.rows = self.read()
        self.run = 1 + max((row["run"] for row in self.rows), default=0)

    def read(self):
        """What is there. A row that a kill cut off is dropped, also from the file."""
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="ascii", newline="") as file:
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        if whole != text:
            write_whole(self.path, whole)
        return [as_numbers(row) for row in csv.DictReader(whole.splitlines()) if None not in row.values() and None not in row]

    def add(self, row):
        row = as_numbers(dict(row, run=self.run))
        is_new = not os.path.exists(self.path) or os.path.getsize(self.path) == 0
        with open(self.path, "a", encoding="ascii", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(row)


def write_whole(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


# A line between the CPUs that takes so many times longer: the host has moved one of them to another cache.
MOVED = 1.6


def place(rows):
    """A function of a row: where the host had this machine's CPUs while it was measured. None: it moved them meanwhile.

    What line.c measured before and after falls into two heaps, if the CPUs were near each other at times and far at others; the border
    is the largest gap. Measurements of different places are not compared."""
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
    """How many measurements were made where; for a table."""
    where = place(rows)
    found = [where(row) for row in rows]
    times = lambda name: [row["line_before_ns"] for row, own in zip(rows, found) if own == name]
    return "; ".join([*(f"{len(times(name))} with the CPUs {'' if name == 'one' else name + ', '}{statistics.median(times(name))} ns apart (a line there and back)"
                        for name in ("one", "near", "far") if times(name) and rows[0].get("line_before_ns")), *([f"{found.count(None)} while they were moved, left out"] if None in found else [])])


def drawn_in(logs):
    if len(logs) < 5:
        return logs
    centre = statistics.median(logs)
    reach = max(FAR * statistics.median(abs(log - centre) for log in logs), SAME)
    return [min(max(log, centre - reach), centre + reach) for log in logs]


class Ratio:
    """Of two versions, taken within rounds: the geometric mean and its interval (Student's t over the logarithms)."""

    def __init__(self, logs, quantiles=T95):
        self.count = len(logs)
        logs = drawn_in(logs)
        self.middle = self.low = self.high = math.nan
        if logs:
            mean = statistics.fmean(logs)
            self.middle = math.exp(mean)
            if len(logs) > 1:
                degrees = min(len(logs) - 1, len(quantiles) - 1)
                half = quantiles[degrees] * statistics.stdev(logs) / math.sqrt(len(logs))
                self.low, self.high = math.exp(mean - half), math.exp(mean + half)

    def is_one(self):
        """That the two are the same is not contradicted."""
        return self.count > 1 and (self.low <= 1 <= self.high or abs(self.middle - 1) < SAME)

    def __str__(self):
        if self.count == 0:
            return "not measured"
        return f"{self.middle:.2f} ({self.low:.2f}-{self.high:.2f})" if self.count > 1 else f"{self.middle:.2f} (n = 1)"


def ratio(rows, value, version, other, quantiles=T95):
    """Of `value` (a column, or a function of a row), version to other, in the rounds that have both (in one place). Stock is the mean of
    stock and control where a round has both, as they are the same; except against each other."""
    read = value if callable(value) else lambda row: float(row[value])
    wanted = {name: [name] if "control" in (version, other) or name != "stock" else ["stock", "control"] for name in (version, other)}
    rounds, where = {}, place(rows)
    for row in rows:
        for name, members in wanted.items():
            if row["version"] in members and read(row) > 0 and where(row):
                rounds.setdefault((row["run"], row["round"], where(row)), {}).setdefault(name, []).append(math.log(read(row)))
    return Ratio([statistics.fmean(pair[version]) - statistics.fmean(pair[other]) for pair in rounds.values() if len(pair) == 2], quantiles)


def control(rows, value):
    """Stock against stock, and why no ratio may be told (None: it may)."""
    found, usual = ratio(rows, value, "control", "stock", T99), ratio(rows, value, "control", "stock")
    if found.count < 3:
        return found, "too few rounds for a control"
    if not found.is_one():
        return found, f"stock against stock gave {found}"
    return found, f"stock against stock is known too badly, {found}" if max(usual.high - 1, 1 - usual.low) > WIDE else None


def against_stock(rows, value, known):
    """{version: text of its ratio to stock}, and the control. Without a control that is 1.00 no ratio is told."""
    found, why = control(rows, value)
    texts = {version: "not told" if why else str(ratio(rows, value, version, "stock")) for version in known}
    return {**texts, "stock": "1", "control": f"**{found}**"}, found, why


def middle(rows, value, version):
    """The median, of the place that most were measured in."""
    read, where = value if callable(value) else lambda row: float(row[value]), place(rows)
    found = [where(row) for row in rows if where(row)]
    usual = statistics.mode(found) if found else None
    values = [read(row) for row in rows if row["version"] == version and where(row) == usual]
    return statistics.median(values) if values else math.nan


def sources(rows, value, table):
    """Lines that say where a gain came from: each step's ratio to the step before it."""
    lines = []
    for name, version, other, what in table:
        found = ratio(rows, value, version, other)
        if found.count > 1:
            seen = "no difference seen" if found.is_one() else f"{(found.middle - 1) * 100:+.0f} %"
            lines.append(f"| {name} | `{version}` to `{other}` | {found} | {seen} | {what} |")
    return ["| of it | ratio of | | | |", "|---|---|---|---|---|", *lines] if lines else []
