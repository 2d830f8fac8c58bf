#!/bin/sh
# Measures how late the engine sends in an open loop: actual minus intended time at 10,000 requests/s, on CPU 0,
# against the never-sleeping sink on CPU 1. Prints every round; the machine's other work affects the results.
#
# bench/load-vs-peers/schedule-lag.sh [ROUNDS] [RATE]
#
# Rows: `sleep` waits in epoll_pwait2 with 1 ns timer slack at normal priority; `precise` sleeps until 30 us before a
# send, then polls, under SCHED_FIFO where that is permitted.
set -eu
here=$(dirname "$0")
root=$here/../..
engine=${CARGO_TARGET_DIR:-$root/target}/release/examples/closed_loop
[ -x "$engine" ] || { echo "build it first: cargo build --release -p straingauge-load --examples" >&2; exit 2; }
rounds=${1:-5} rate=${2:-10000}
folder=$(mktemp -d)
cc -O2 -o "$folder/sink" "$here/sink.c"
"$folder/sink" 18083 1 &
sink=$!
trap 'kill $sink; rm -r "$folder"' EXIT
trap 'exit 143' INT TERM
sleep 0.3
echo "mode,round,load_average,lag_p50_us,lag_p99_us,lag_max_us,sent,cpu_utilisation"
round=0
while [ $round -lt "$rounds" ]; do
	for mode in sleep precise; do
		timeout 20 "$engine" 127.0.0.1:18083 200 2 0 "$rate" 0 $mode >"$folder/out"
		value() { sed -n "s/^client\.$1 = Some(\([0-9.]*\)).*/\1/p" "$folder/out"; }
		printf '%s,%s,%s,%s,%s,%s,%s,%s\n' $mode $round "$(cut -d' ' -f1 /proc/loadavg)" "$(value lag_p50_us)" \
			"$(value lag_p99_us)" "$(value lag_max_us)" "$(sed -n 's/.*{ sent: \([0-9]*\),.*/\1/p' "$folder/out")" \
			"$(value cpu_utilisation_ratio)"
	done
	round=$((round + 1))
done
