#!/usr/bin/env python3
"""Throughput and CPU per request of nginx with the sampler on at 997 Hz against off, in interleaved windows.

usage: bench/profiler-overhead/run.py --straingauge BINARY [--rounds 12] [--seconds 2] [--priority 0] [--out DIR]

Needs root, nginx, wrk and two CPUs: the server has CPU 0, client and profiler share CPU 1. Each round measures both arms
in random order; the profiler attaches before its window begins and reads its tables after it has ended. The server's CPU
time is the scheduler's (/proc/PID/schedstat). Null rounds measure "off" against "off": what the machine makes of nothing.
"""
import argparse, json, os, platform, random, re, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
SERVE = os.path.join(HERE, "..", "..", "testbed", "serve")
PORT = 18931


def cpu_ns(pids):
    return sum(int(open(f"/proc/{pid}/schedstat").read().split()[0]) for pid in pids)


def children(pid):
    text = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return [int(word) for word in text]


def window(args, workers, sampled):
    profiler = None
    if sampled:
        command = ["taskset", "-c", "1", args.straingauge, "profile", f":{PORT}", "-F", "997", "--json",
                   "-d", f"{args.seconds + 2.5}s"]
        profiler = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)
    before = cpu_ns(workers)
    client = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", "-c32", f"-d{args.seconds}s",
                             f"http://127.0.0.1:{PORT}/1k.bin"], capture_output=True, text=True, check=True)
    used = cpu_ns(workers) - before
    requests = int(re.search(r"(\d+) requests in", client.stdout).group(1))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", client.stdout).group(1))
    result = {"requests": requests, "requests_per_sec": rate, "cpu_us_per_request": used / 1000 / requests}
    if profiler:
        out, error = profiler.communicate(timeout=60)
        if profiler.returncode:
            sys.exit(f"the profiler failed: {error.decode()}")
        profile = json.loads(out)
        result["samples"] = sum(profile["samples"].values())
        result["cpu_check"] = profile["cpu_check"]
        parts = [row for row in profile["layers"] if row.get("part") == "measurement"]
        result["measurement_share"] = parts[0]["share_ratio"]["value"] if parts else 0.0
    return result


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q25": low, "q75": high, "n": len(values)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--straingauge", required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--priority", type=int, default=0, help="nice value of all three, for machines with other work")
    parser.add_argument("--out")
    args = parser.parse_args()
    os.nice(args.priority)
    state = tempfile.mkdtemp(prefix="profiler-overhead-")
    os.chmod(state, 0o755)
    server = subprocess.Popen(["taskset", "-c", "0", SERVE, "nginx", "--port", str(PORT), "--state", state],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rounds = []
    try:
        time.sleep(2)
        workers = children(server.pid)
        for number in range(args.rounds):
            arms = ["off", "on", "null"]
            random.Random(number).shuffle(arms)
            measured = {arm: window(args, workers, arm == "on") for arm in arms}
            measured["load_average"] = os.getloadavg()[0]
            rounds.append(measured)
            print(json.dumps(measured), flush=True)
    finally:
        server.terminate()
        server.wait()
    ratio = lambda key, arm: [row[arm][key] / row["off"][key] for row in rounds]
    summary = {
        "kernel": platform.release(),
        "throughput_ratio_on_off": quartiles(ratio("requests_per_sec", "on")),
        "throughput_ratio_null": quartiles(ratio("requests_per_sec", "null")),
        "cpu_per_request_ratio_on_off": quartiles(ratio("cpu_us_per_request", "on")),
        "cpu_per_request_ratio_null": quartiles(ratio("cpu_us_per_request", "null")),
        "cpu_us_per_request_off": quartiles([row["off"]["cpu_us_per_request"] for row in rounds]),
        "priority": args.priority,
        "load_average": quartiles([row["load_average"] for row in rounds]),
    }
    print(json.dumps(summary, indent=2))
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        with open(os.path.join(args.out, "rounds.jsonl"), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rounds)
        with open(os.path.join(args.out, "summary.json"), "w") as file:
            file.write(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
