# Runs the parts of a test suite side by side and sums them up. The suites' test/run, in bash, source it.
#
#   build ARGUMENT...         runs make before the parts, a job for each processor; if it fails, that is all. One make at a time works
#                             in a folder (`-C FOLDER`, which comes first, or this one): suites share what is built in others
#   part NAME COMMAND...      runs a function or a program in the background, with a separate folder $SCRATCH; at most $JOBS
#                             (default: two for each processor) run at a time
#   verdict STATUS NAME       prints `ok NAME`, or `FAILED NAME` if the status is not 0
#   skip NAME WHY             prints `SKIPPED NAME: WHY`
#   program LABEL COMMAND...  runs a test program, which prints `ok NAME` or `FAILED NAME` for each of its tests; if LABEL is not
#                             empty, it is added to the names. One that takes over 400 s (in make test-long: an hour) is ended and has failed
#   limited SECONDS COMMAND.. runs a command that is ended after so long, and when the suite is; its status, or 124
#   either SHORT LONG         prints LONG if $LONG is set (make test-long), else SHORT
#   sum_up                    waits for the parts, prints the output of each in the order in which they were started, then
#                             `time NAME SECONDS` for each that took over a second and `N passed, N failed, N skipped`; exits
#
# Counts the lines that begin with ok, FAILED and SKIPPED. A part that exits with another status than 0 and names no
# failure counts as one, and so does a part that was killed.
SCRATCH=$(mktemp -d) || exit 2
JOBS=${JOBS:-$((2 * $(nproc)))}
parts=()
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$SCRATCH"' EXIT

now_us() { echo "${EPOCHREALTIME//[!0-9]/}"; }
seconds() { echo "$(($1 / 1000000)).$(($1 / 100000 % 10))"; }

build_us=0
build() {
	local begin_us folder=.
	begin_us=$(now_us)
	[ "$1" != -C ] || folder=$2
	if ! flock "$folder" env -u MAKEFLAGS make --no-print-directory -j"$(nproc)" "$@" > "$SCRATCH/build" 2>&1; then
		tail -n 60 "$SCRATCH/build"
		echo "FAILED build: make $*"
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	fi
	build_us=$((build_us + $(now_us) - begin_us))
}

part() {
	local name=$1 folder=$SCRATCH/${#parts[@]}
	shift
	while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
	parts+=("$name")
	mkdir "$folder"
	{
		SCRATCH=$folder
		begin_us=$(now_us)
		"$@"
		echo $? > "$folder.status"
		took_us=$(($(now_us) - begin_us))
		[ $took_us -lt 1000000 ] || echo "time $name $(seconds $took_us)" > "$folder.time"
	} < /dev/null > "$folder.out" 2>&1 &
}

verdict() { if [ "$1" = 0 ]; then echo "ok $2"; else echo "FAILED $2"; fi; }
skip() { echo "SKIPPED $1: $2"; }
either() { if [ -n "${LONG-}" ]; then echo "$2"; else echo "$1"; fi; }

limited() {
	local child
	# In the background, so that its signals come here: timeout has a process group of its own, which those to the suite's do not reach.
	timeout -k 10 "$@" &
	child=$!
	trap 'kill $child; exit 143' INT TERM HUP
	wait "$child"
	set -- $?
	trap - INT TERM HUP
	return "$1"
}

program() {
	local label=${1:+[$1] } status
	shift
	limited "$(either 400 3600)" "$@" > "$SCRATCH/program.out" 2> "$SCRATCH/program.err"
	status=$?
	sed "s/^\(ok\|FAILED\) /\1 $label/" "$SCRATCH/program.out"
	tail -n 40 "$SCRATCH/program.err"
	if [ $status = 124 ]; then
		verdict 1 "${label}did not end"
	elif ! grep -q '^FAILED' "$SCRATCH/program.out" && { [ $status != 0 ] || ! grep -q '^[0-9]* passed, [0-9]* failed$' "$SCRATCH/program.out"; }; then
		verdict 1 "${label}ended with status $status"
	fi
}

sum_up() {
	wait
	local i failed status
	for i in "${!parts[@]}"; do
		status=$(cat "$SCRATCH/$i.status" 2> /dev/null || echo none)
		if [ "$status" = none ]; then
			echo "FAILED ${parts[i]}: was killed" >> "$SCRATCH/$i.out"
		elif [ "$status" != 0 ] && ! grep -q '^FAILED' "$SCRATCH/$i.out"; then
			echo "FAILED ${parts[i]}: ended with status $status" >> "$SCRATCH/$i.out"
		fi
		sed 's/^[0-9]* passed, /  &/' "$SCRATCH/$i.out"
	done
	[ $build_us -lt 1000000 ] || echo "time build $(seconds $build_us)"
	for i in "${!parts[@]}"; do cat "$SCRATCH/$i.time" 2> /dev/null; done
	count() { cat "$SCRATCH"/*.out | grep -c "^$1"; }
	failed=$(count FAILED)
	echo "$(count 'ok ') passed, $failed failed, $(count 'SKIPPED ') skipped"
	[ "$failed" = 0 ]
	exit
}
