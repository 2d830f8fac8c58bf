"""Judges the intervals that `find` prints by repeated finds: coverage, error and spread, each with its goal. It
runs no measurement.

A find is an estimate with an interval, and the truth if known. Spreads are computed from logarithms, because
loads are ratios.

"""
import math
import statistics

# Goals: nine of ten finds and 46 of fifty cover the truth; the others are shares of the truth or of the mean.
COVERED_SHARE = 0.9
COVERED_OVERALL_SHARE = 0.92
ERROR = {"bucket": 0.05}
ERROR_OTHERS = 0.10
CV_TRUTH, CV_REAL = 0.05, 0.10
SPREAD_RATIO = (0.5, 1.3)
# Half a 95 % interval of a normal distribution, in standard deviations.
HALF_INTERVAL = 1.959964


class Find:
    """One find, with None for missing values. `is_doubted` says that a doubt blames other work or the client."""

    def __init__(self, server, number, estimate, low, high, truth=None, is_doubted=False):
        self.server, self.number = server, number
        self.estimate, self.low, self.high = estimate, low, high
        self.truth, self.is_doubted = truth, is_doubted

    def covers(self):
        """Whether the truth lies in the interval. A missing end does not limit it; without an estimate the truth
        is not covered."""
        if self.estimate is None or self.truth is None:
            return False
        return (self.low is None or self.low <= self.truth) and (self.high is None or self.truth <= self.high)

    def is_bounded(self):
        return self.estimate is not None and self.low is not None and self.high is not None

    def ratio(self):
        """The estimate as a share of the truth."""
        return self.estimate / self.truth if self.estimate is not None and self.truth else None


def claimed_spread(finds):
    """The standard deviation (of logarithms) that the intervals claim, over all finds; None if no interval has
    both ends."""
    claimed = [math.log(find.high / find.low) / (2 * HALF_INTERVAL) for find in finds if find.is_bounded() and find.low > 0]
    return math.sqrt(statistics.fmean([spread ** 2 for spread in claimed])) if claimed else None


def spread(values):
    """The standard deviation of the logarithms; None for fewer than two values."""
    return statistics.stdev([math.log(value) for value in values]) if len(values) > 1 else None


def coefficient_of_variation(values):
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else None


class Judgement:
    """The finds of one server, as counts and figures; None if there are too few."""

    def __init__(self, server, finds):
        self.server, self.n = server, len(finds)
        self.is_known = any(find.truth is not None for find in finds)
        found = [find for find in finds if find.estimate is not None]
        # Without a truth the estimates are compared with each other.
        values = [find.ratio() for find in found] if self.is_known else [find.estimate for find in found]
        self.found = len(found)
        self.unbounded = sum(not find.is_bounded() for find in found)
        self.covered = sum(find.covers() for find in finds)
        self.undoubted_misses = sum(not find.covers() and not find.is_doubted for find in finds)
        self.median_error = statistics.median([abs(value - 1) for value in values]) if self.is_known and values else None
        self.median = statistics.median(values) if values else None
        self.cv = coefficient_of_variation(values)
        between, claimed = spread(values), claimed_spread(found)
        self.spread_ratio = between / claimed if between is not None and claimed else None

    def goals(self):
        """Name, observed value, goal as text, and whether it is met (None if unknown)."""
        goals = []
        if self.is_known:
            least = math.ceil(COVERED_SHARE * self.n - 1e-9)
            goals.append(("covered", f"{self.covered} of {self.n}", f"at least {least}", self.covered >= least))
            limit = ERROR.get(self.server, ERROR_OTHERS)
            goals.append(("median error", percent(self.median_error), f"at most {percent(limit)}", within(self.median_error, 0, limit)))
        limit = CV_TRUTH if self.is_known else CV_REAL
        goals.append(("variation", percent(self.cv), f"at most {percent(limit)}", within(self.cv, 0, limit)))
        low, high = SPREAD_RATIO
        goals.append(("spread / claimed", number(self.spread_ratio), f"{low} to {high}", within(self.spread_ratio, low, high)))
        return goals


def within(value, low, high):
    return None if value is None else low <= value <= high


def overall(judgements):
    """Coverage of all servers of known truth: covered, finds, minimum; and the misses that no doubt announces."""
    known = [judgement for judgement in judgements if judgement.is_known]
    n = sum(judgement.n for judgement in known)
    return {"covered": sum(judgement.covered for judgement in known), "n": n, "least": math.ceil(COVERED_OVERALL_SHARE * n - 1e-9),
            "undoubted_misses": sum(judgement.undoubted_misses for judgement in known)}


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value):
    return "-" if value is None else f"{value:.2f}"


def mark(is_met):
    return {True: "", False: " **missed**", None: " unknown"}[is_met]


def table(judgements, is_disturbed):
    """Markdown table with a line for each server, goals in the head, and marks at misses."""
    lines = ["| server | n | truth in the interval | median error | variation between finds | spread / claimed spread |", "|---|---|---|---|---|---|",
             f"| *goal* | | *9 of 10, 46 of 50 overall* | *{percent(ERROR_OTHERS)}, bucket {percent(ERROR['bucket'])}* "
             f"| *{percent(CV_TRUTH)}, real servers {percent(CV_REAL)}* | *{SPREAD_RATIO[0]} to {SPREAD_RATIO[1]}* |"]
    for judgement in judgements:
        seen = {name: text + mark(is_met) for name, text, _, is_met in judgement.goals()}
        if not judgement.is_known:
            seen["covered"], seen["median error"] = "truth unknown", ""
        if is_disturbed and judgement.is_known and judgement.covered < judgement.n:
            seen["covered"] += f"; {judgement.undoubted_misses} of {judgement.n - judgement.covered} missed without a doubt"
        without = f"; {judgement.n - judgement.found} without an estimate" if judgement.found < judgement.n else ""
        open_ended = f"; {judgement.unbounded} open" if judgement.unbounded else ""
        lines.append(f"| {judgement.server} | {judgement.n} | {seen['covered']}{without}{open_ended} | {seen['median error']} "
                     f"| {seen['variation']} | {seen['spread / claimed']} |")
    total = overall(judgements)
    if total["n"]:
        is_met = total["covered"] >= total["least"] or (is_disturbed and not total["undoubted_misses"])
        lines.append(f"| all of known truth | {total['n']} | {total['covered']} of {total['n']}{mark(is_met)} | | | |")
    return "\n".join(lines) + "\n"
