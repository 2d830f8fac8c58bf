#!/usr/bin/env python3
"""Tests of the certificate's arithmetic and of kept results, with made-up finds."""
import importlib.machinery
import importlib.util
import math
import os
import random
import re
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(HERE, "../../testbed")]

import certificate  # noqa: E402
import drawing  # noqa: E402
import harness  # noqa: E402
import servers  # noqa: E402
from certificate import Find, Judgement  # noqa: E402
from run_tests import run_tests  # noqa: E402


def the_run():
    loader = importlib.machinery.SourceFileLoader("find_repeat_run", os.path.join(HERE, "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


RUN = the_run()


def made_up(n, spread, claimed, truth=100.0, bias=1.0, seed=1, server="workers"):
    """Finds that scatter by `spread` and claim intervals of `claimed` (standard deviations of logarithms)."""
    chosen, half = random.Random(seed), claimed * certificate.HALF_INTERVAL
    finds = []
    for number in range(n):
        estimate = truth * bias * math.exp(chosen.gauss(0, spread))
        finds.append(Find(server, number, estimate, estimate * math.exp(-half), estimate * math.exp(half), truth))
    return finds


def honest_intervals_cover_and_their_spread_is_the_one_they_claim():
    judged = Judgement("workers", made_up(4000, 0.03, 0.03))
    assert abs(judged.covered / judged.n - 0.95) < 0.01, judged.covered
    assert abs(judged.spread_ratio - 1) < 0.05 and abs(judged.cv - 0.03) < 0.002, vars(judged)
    assert all(is_met for *_, is_met in judged.goals()), judged.goals()


def intervals_that_claim_too_much_are_seen():
    judged = Judgement("workers", made_up(4000, 0.03, 0.01))
    assert judged.covered / judged.n < 0.6 and judged.spread_ratio > 2.8, vars(judged)
    seen = {name: is_met for name, _, _, is_met in judged.goals()}
    assert seen == {"covered": False, "median error": True, "variation": True, "spread / claimed": False}, seen


def a_bias_that_repeats_is_an_error_and_no_variation():
    judged = Judgement("bucket", made_up(10, 0.001, 0.01, bias=1.08, server="bucket"))
    assert judged.covered == 0 and abs(judged.median_error - 0.08) < 0.002 and judged.cv < 0.01, vars(judged)
    seen = {name: is_met for name, _, _, is_met in judged.goals()}
    assert seen["median error"] is False and seen["variation"] is True, seen
    assert {name: is_met for name, _, _, is_met in Judgement("growing", made_up(10, 0.001, 0.01, bias=1.08)).goals()}["median error"] is True


def an_end_that_is_absent_bounds_nothing_and_no_estimate_covers_nothing():
    assert Find("workers", 1, 8, 7, None, truth=100).covers()
    assert not Find("workers", 1, 8, 9, None, truth=8).covers()
    assert Find("workers", 1, 8, None, 9, truth=1).covers()
    assert Find("workers", 1, 8, 8, 9, truth=8).covers() and Find("workers", 1, 8, 7, 8, truth=8).covers()
    assert not Find("workers", 1, None, 7, 9, truth=8).covers()
    judged = Judgement("workers", [Find("workers", 1, 8, 7, None, 8), Find("workers", 2, None, None, None, 8)])
    assert (judged.covered, judged.n, judged.found, judged.unbounded) == (1, 2, 1, 1), vars(judged)
    assert judged.spread_ratio is None and judged.cv is None
    assert {name: is_met for name, _, _, is_met in judged.goals()}["variation"] is None, judged.goals()


def servers_of_other_parameters_are_compared_by_their_truths():
    finds = [Find("workers", number, truth * factor, truth * 0.9, truth * 1.1, truth)
             for number, (truth, factor) in enumerate([(4, 1.01), (40, 0.99), (400, 1.0)])]
    judged = Judgement("workers", finds)
    assert judged.covered == 3 and judged.cv < 0.011 and abs(judged.median_error - 0.01) < 1e-9, vars(judged)


def real_servers_have_variation_but_no_truth():
    finds = [Find("nginx", number, 3 + number / 100, 2.5, 3.5) for number in range(10)]
    judged = Judgement("nginx", finds)
    assert not judged.is_known and judged.median_error is None and judged.cv < 0.02
    assert [name for name, *_ in judged.goals()] == ["variation", "spread / claimed"]
    table = certificate.table([judged], False)
    assert "truth unknown" in table and "all of known truth" not in table, table


def a_miss_with_a_doubt_is_told_from_one_without():
    finds = made_up(8, 0.001, 0.01) + [Find("workers", 8, 150, 140, 160, 100, True), Find("workers", 9, 150, 140, 160, 100, False)]
    judged = Judgement("workers", finds)
    assert judged.covered == 8 and judged.undoubted_misses == 1, vars(judged)
    assert "1 of 2 missed without a doubt" in certificate.table([judged], True)
    assert "doubt" not in certificate.table([judged], False)


def nine_of_ten_and_46_of_fifty_are_enough_and_one_less_is_not():
    miss = Find("workers", 0, 150, 140, 160, 100)
    seen = lambda misses: Judgement("workers", made_up(10 - misses, 1e-6, 0.01) + [miss] * misses)
    met = lambda judged: {name: is_met for name, _, _, is_met in judged.goals()}["covered"]
    assert met(seen(1)) is True and met(seen(2)) is False
    five = lambda *misses: certificate.overall([seen(n) for n in misses])
    assert five(1, 1, 1, 1, 0) == {"covered": 46, "n": 50, "least": 46, "undoubted_misses": 4}
    assert "| 46 of 50 |" in certificate.table([seen(n) for n in (1, 1, 1, 1, 0)], False)
    assert "45 of 50 **missed**" in certificate.table([seen(1)] * 5, False)


def alarms_and_planted_losses_are_counted_against_their_goals():
    rows = [(False, number < 2) for number in range(20)] + [(True, number < 8) for number in range(10)]
    assert certificate.comparisons(rows) == {"alarms": 2, "same": 20, "most": 2, "found": 8, "planted": 10, "least": 8}
    assert certificate.comparisons([])["most"] == 0


def a_drawing_has_a_line_for_each_find_and_colours_the_misses():
    finds = made_up(9, 0.01, 0.02) + [Find("workers", 9, 150, 140, None, 100), Find("workers", 10, None, None, None, 100)]
    drawn = drawing.svg([("workers <k>", finds), ("none", []), ("nginx", [Find("nginx", 1, 3.0, 2.5, 3.5)])], "a & b")
    assert drawn.count("<circle") == 11 and drawn.count(drawing.MISSED) >= 2 and drawn.count(drawing.UNKNOWN) == 2, drawn
    assert "workers &lt;k&gt;" in drawn and "a &amp; b" in drawn
    assert not re.search(r"nan|inf", drawn)


def a_line_that_a_kill_cut_off_is_dropped_and_what_is_whole_is_kept():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "raw.csv")
        harness.Rows(path, ["server", "number"]).add({"server": "workers", "number": 1})
        with open(path, "a") as file:
            file.write("growi")
        again = harness.Rows(path, ["server", "number"])
        assert again.rows == [{"server": "workers", "number": "1"}], again.rows
        again.add({"server": "bucket", "number": None})
        with open(path) as file:
            assert file.read() == "server,number\nworkers,1\nbucket,\n"
        assert again.rows[1] == {"server": "bucket", "number": ""}


def results_under_other_conditions_or_with_other_columns_are_refused():
    def is_refused(call, *arguments):
        try:
            call(*arguments)
        except SystemExit:
            return True
        return False
    with tempfile.TemporaryDirectory() as folder:
        assert not any(is_refused(harness.same_conditions, folder, "this machine\n") for _ in range(2))
        assert is_refused(harness.same_conditions, folder, "another machine\n")
        path = os.path.join(folder, "raw.csv")
        harness.Rows(path, ["server"]).add({"server": "nginx"})
        assert not is_refused(harness.Rows, path, ["server"]) and is_refused(harness.Rows, path, ["server", "number"])


def estimates_are_read_from_what_find_writes_and_from_what_it_does_not_yet():
    point = lambda value: {"place": "within", "estimate": value, "low": value - 1, "high": None}
    read = servers.estimates({"connections": {"yield_point": point(9.4), "failure_point": point(70.0), "peak": {"load": 16.0, "per_sec": 1600.0,
                                                                                                       "low": 1590.0, "high": 1610.0}},
                              "rate": None})
    assert read["connections", "yield"] == (9.4, 8.4, None) and read["connections", "peak"] == (1600.0, 1590.0, 1610.0)
    assert read["connections", "knee"] == (None, None, None) and read["rate", "failure"] == (None, None, None)
    assert servers.estimates({"connections": {"knee": point(8.0), "peak": None}, "rate": {}})["connections", "knee"] == (8.0, 7.0, None)


def a_yield_point_that_is_the_knee_is_compared_with_the_knee():
    point = {"estimate": 8.1, "low": 7.9, "high": 8.3, "reason": "the line through the low loads meets the plateau there; no CPU is saturated"}
    read = servers.estimates({"connections": {"yield_point": point}, "rate": None})
    assert read["connections", "knee"] == (8.1, 7.9, 8.3) and read["connections", "yield"] == (None, None, None), read
    point["reason"] = "from here on doubling the connections raises throughput by less than 20 %"
    read = servers.estimates({"connections": {"yield_point": point}, "rate": None})
    assert read["connections", "yield"] == (8.1, 7.9, 8.3) and read["connections", "knee"] == (None, None, None), read

    class Finds:
        rows = [{"server": "workers", "connections_knee": "", "connections_yield": "9.4"}]
    assert RUN.quantity_of(servers.SERVERS["workers"], Finds) == ("connections", "yield")
    Finds.rows.append({"server": "workers", "connections_knee": "8.1", "connections_yield": ""})
    assert RUN.quantity_of(servers.SERVERS["workers"], Finds) == ("connections", "knee")
    Finds.rows = []
    assert RUN.quantity_of(servers.SERVERS["bucket"], Finds) == ("rate", "failure")


def a_summary_is_made_of_what_is_there():
    with tempfile.TemporaryDirectory() as folder:
        class Asked:
            out, neighbour, budget = folder, False, "40s"
        with open(os.path.join(folder, "versions.txt"), "w") as file:
            file.write("made up\n")
        finds, truths, pairs = (harness.Rows(os.path.join(folder, name), of)
                                for name, of in (("raw.csv", RUN.FINDS), ("truths.csv", RUN.TRUTHS), ("comparisons.csv", RUN.PAIRS)))
        assert "|" not in RUN.summary(Asked, finds, truths, pairs).split("made up")[1]
        for number, estimate in ((1, 9.5), (2, 12.0)):
            finds.add({name: "" for name in RUN.FINDS} | {"server": "workers", "number": number, "connections_yield": estimate,
                                                          "connections_yield_low": estimate - 0.5, "connections_yield_high": estimate + 0.5})
        truths.add({name: "" for name in RUN.TRUTHS} | {"server": "workers", "number": 1, "connections_yield": 9.43})
        truths.add({name: "" for name in RUN.TRUTHS} | {"server": "workers", "number": 2, "connections_yield": 9.43})
        pairs.add({name: "" for name in RUN.PAIRS} | {"kind": "same", "number": 0, "exit_code": 3})
        text = RUN.summary(Asked, finds, truths, pairs)
        assert "| workers | 2 | 1 of 2 **missed** |" in text and "- workers (yield connections), 2: 12 (11.5 to 12.5), truth 9.43, off by 27.3 %" in text, text
        assert "called worse | 1 of 1 **missed** | at most 0 |" in text, text
        assert os.path.exists(os.path.join(folder, "finds.svg"))


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
