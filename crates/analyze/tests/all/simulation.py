"""Simulates closed and open stations with ciw, and prints means and standard errors as JSON."""

import json
import statistics
import sys

import ciw


def open_station(rate, service, servers, seconds, seed):
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate)],
        service_distributions=[service],
        number_of_servers=[servers],
    )
    ciw.seed(seed)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(seconds)
    records = [r for r in simulation.get_all_records() if r.arrival_date > seconds / 10]
    return statistics.fmean(r.exit_date - r.arrival_date for r in records)


def spread(means):
    return {"mean": statistics.fmean(means), "error": statistics.stdev(means) / len(means) ** 0.5, "n": len(means)}


def main():
    seconds, seeds = float(sys.argv[1]), range(12)
    # Gamma with shape 1/c2 has mean 1 and squared coefficient of variation c2.
    cases = {
        "M/M/1 at 0.7": (0.7, ciw.dists.Exponential(1.0), 1),
        "M/D/1 at 0.7": (0.7, ciw.dists.Deterministic(1.0), 1),
        "M/G/1 at 0.6, c2 4": (0.6, ciw.dists.Gamma(shape=0.25, scale=4.0), 1),
        "M/M/4 at 0.8": (3.2, ciw.dists.Exponential(1.0), 4),
    }
    found = {name: spread([open_station(*case, seconds, seed) for seed in seeds]) for name, case in cases.items()}
    print(json.dumps(found))


main()
