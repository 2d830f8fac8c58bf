#!/usr/bin/env python3
"""Tests of the benchmark's arithmetic on synthetic rows."""

import math
import os
import random
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "../../../bench"), os.path.join(HERE, "../../../testbed")]

import cachegrind  # noqa: E402
import failure  # noqa: E402
import record  # noqa: E402
from run_tests import run_tests  # noqa: E402

CHOSEN = random.Random(8)


def a_line_of_cachegrind_counts_for_the_layer_of_its_source_file():
    text = ("events: Ir D1mr DLmr D1mw DLmw\nfl=/x/toolkit/stingy/servers/tux/build/lwip/source/src/core/tcp_in.c\nfn=tcp_input\n1 10 2 1 4 3\n2 5\n"
            "fl=/x/toolkit/stingy/servers/tux/src/send.c\nfn=send\n7 1 1 1 1 1\nfl=./malloc/./malloc/malloc.c\nfn=free\n9 100 0 0 0 0\nsummary: 116 3 2 5 4\n")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        found = cachegrind.by_layer(file.name)
    assert found["lwIP"] == {"instructions": 15, "d1": 6, "lld": 4}, found
    assert found["server"] == {"instructions": 1, "d1": 2, "lld": 2} and found["C library"]["instructions"] == 100, found


def rounds_of(count, factors, noise=0.0, drift=0.0):
    """Returns rows of `cost`: versions with one factor each, in rounds whose level drifts."""
    rows = []
    for number in range(count):
        level = math.exp(CHOSEN.uniform(-drift, drift))
        rows += [{"run": 1, "round": number, "version": version, "cost": 10 * level * factor * math.exp(CHOSEN.gauss(0, noise))} for version, factor in factors.items()]
    return rows


def a_row_that_a_kill_cut_off_is_dropped_and_the_next_has_its_own_line():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        record.Rows(path, ["version", "cost"]).add({"version": "stock", "cost": "1.5"})
        with open(path, "a", encoding="ascii") as file:
            file.write("1,both,1.")
        again = record.Rows(path, ["version", "cost"])
        assert [row["version"] for row in again.rows] == ["stock"], again.rows
        again.add({"version": "both", "cost": "1.4"})
        with open(path, encoding="ascii") as file:
            assert file.read() == "run,version,cost\n1,stock,1.5\n2,both,1.4\n"


def a_row_is_in_the_file_before_the_next_is_measured():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        rows = record.Rows(path, ["cost"])
        for cost in range(3):
            rows.add({"cost": cost})
            with open(path, encoding="ascii") as file:
                assert file.read().endswith(f"1,{cost}\n")


def a_known_ratio_is_found_through_the_machines_drift():
    rows = rounds_of(8, {"stock": 1, "control": 1, "both": 0.8}, noise=0.01, drift=0.3)
    found = record.ratio(rows, "cost", "both", "stock")
    assert found.low < 0.8 < found.high and found.high - found.low < 0.04, str(found)


def stock_that_differs_from_stock_silences_every_ratio():
    rows = rounds_of(8, {"stock": 1, "control": 1.08, "both": 0.8}, noise=0.01)
    texts, _, why = record.against_stock(rows, "cost", ["stock", "control", "both"])
    assert texts["both"] == "not given" and "stock against stock gave 1.08" in why, (texts, why)


def stock_that_is_stock_lets_the_ratios_be_given():
    rows = rounds_of(8, {"stock": 1, "control": 1, "both": 0.8}, noise=0.01)
    texts, control, why = record.against_stock(rows, "cost", ["stock", "control", "both"])
    assert why is None and texts["both"].startswith("0.8") and control.is_one(), (texts, why)


def a_control_that_is_too_wide_or_of_two_rounds_shows_nothing():
    _, why = record.control(rounds_of(2, {"stock": 1, "control": 1}, noise=0.001), "cost")
    assert "too few" in why, why
    _, why = record.control(rounds_of(4, {"stock": 1, "control": 1}, noise=0.5), "cost")
    assert why is not None


def one_disturbed_round_moves_little():
    rows = rounds_of(9, {"stock": 1, "control": 1, "both": 0.8}, noise=0.01)
    next(row for row in rows if row["version"] == "both" and row["round"] == 4)["cost"] *= 1.6
    found = record.ratio(rows, "cost", "both", "stock")
    assert abs(found.middle - 0.8) < 0.015, str(found)


def placed(rows, near, far):
    """Puts even rounds on near CPUs, where everything costs less."""
    for row in rows:
        line = near if row["round"] % 2 == 0 else far
        row.update(line_before_ns=line, line_after_ns=line, cost=row["cost"] * (0.75 if line == near else 1))
    return rows


def what_was_measured_in_different_places_is_not_compared():
    rows = placed(rounds_of(8, {"stock": 1, "control": 1, "both": 0.8}, noise=0.005), 120, 460)
    for row in rows:
        if row["version"] == "both" and row["round"] < 7:
            row.update(line_before_ns=120, line_after_ns=120, cost=6.0)
    found = record.ratio(rows, "cost", "both", "stock")
    assert abs(found.middle - 0.8) < 0.01 and found.high - found.low < 0.03, str(found)


def what_the_host_moved_meanwhile_is_left_out_and_counted():
    rows = placed(rounds_of(6, {"stock": 1, "control": 1}), 120, 120)
    rows[0]["line_after_ns"] = 460
    assert record.ratio(rows, "cost", "control", "stock").count == 5
    assert "1 while they were moved" in record.places(rows), record.places(rows)


def step(phase, per_sec, verdict, answered_ratio=1.0):
    return {"phase": phase, "per_sec": str(per_sec), "verdict": verdict, "seconds": "0.1", "answered": str(int(per_sec * 0.1 * answered_ratio)), "server_busy": "1.0", "most_under_way": "9", "wrong": "0"}


def the_load_at_failure_is_the_last_that_held_and_at_recovery_the_first_that_holds_again():
    steps = [step("rise1", 100, "held"), step("rise1", 102, "held"), step("rise1", 104, "cpu"), *(step("rise1", rate, "failed", 0.9) for rate in (104, 106, 108)),
             step("fall1", 100, "failed", 0.9), step("fall1", 90, "held"), step("fall1", 90, "held")]
    found = failure.summary(steps)
    assert (found["failure_per_sec"], found["recovery_per_sec"], found["rises"], found["void_cpu"]) == ("102", "90", 1, 1), found


def a_rise_that_a_disturbance_ended_early_does_not_lower_the_load_at_failure():
    steps = [step(f"rise{number}", rate, verdict) for number, rates in ((1, (100, 102)), (2, (90, 92))) for rate, verdict in [*((rate, "held") for rate in rates), (110, "failed")]]
    assert failure.summary(steps)["failure_per_sec"] == "102"


def a_ramp_that_ran_out_of_time_tells_no_load():
    found = failure.summary([step("rise1", 100, "held"), step("rise1", 102, "held")])
    assert found["failure_per_sec"] == "" and found["recovery_per_sec"] == "", found


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
