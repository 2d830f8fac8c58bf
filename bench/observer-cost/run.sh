#!/bin/sh
# What watching costs, against reading /proc/net/tcp, ss, /proc/PID/* and ps: after Table 4 of Almeida, Almeida and Yates (1996), at
# 100, 1,000 and 10,000 connections. Needs root (BPF, a network namespace of its own),
# iproute2 and procps. Usage: bench/observer-cost/run.sh [OUT_DIR [ROUNDS]]
set -eu
cd "$(dirname "$0")/../.."
out=${1:-bench/runs/$(date +%Y-%m-%d)-observer-cost}
rounds=${2:-25}
for program in ss ps; do
    command -v "$program" >/dev/null || { echo "$program is missing: apt install iproute2 procps" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "run it as root: it makes a network namespace of its own" >&2; exit 1; }
mkdir -p "$out"
cargo build --release -p straingauge-observe --example reading_cost

{
    echo "command: bench/observer-cost/run.sh, $rounds rounds"
    echo "date: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "kernel: $(uname -r)"
    echo "cpu: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs"
    echo "load average before: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "$(ss -V), $(ps --version)"
    echo "revision: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
} >"$out/versions.txt"
"${CARGO_TARGET_DIR:-target}/release/examples/reading_cost" "$out" "$rounds" | tee "$out/summary.md"
