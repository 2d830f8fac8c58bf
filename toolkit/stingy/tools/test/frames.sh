# Stack bounds from a compiler's reports that are written here, so that they do not depend on the
# installed compiler.
frames_of_reports() {
	database "$SCRATCH/frames" enum.c
	cat > "$SCRATCH/frames/enum.su" <<'END'
enum.c:22:13:accept_conn	48	static
enum.c:36:13:read_request	1056	static
enum.c:50:13:send_header	16	static
enum.c:58:13:send_body.constprop.0	16	static
enum.c:66:13:close_conn	16	static
enum.c:66:13:close_conn.part.0	32	static
enum.c:78:13:handle	0	static
enum.c:96:5:main	80	static
this line is no report
END
	printf '[stack]\nexternal_bytes = 1000\n[[external]]\nfunction = "recv"\nstack_bytes = 2000\n' > "$SCRATCH/frames.toml"
	"$MEMWALK" -p "$SCRATCH/frames" --config "$SCRATCH/frames.toml" --frames su -o "$SCRATCH/frames.json" 2> "$SCRATCH/err"
	# main 80+8, handle 0+8, read_request 1056+8, recv 2000.
	stack_of() { python3 -c 'import json, sys; print([s["stack"]["bytes"] for s in json.load(open(sys.argv[1]))["stages"] if s["name"] == sys.argv[2]][0])' "$SCRATCH/frames.json" "$1"; }
	if command -v python3 > /dev/null; then
		[ "$(stack_of READ_REQUEST)" = 3160 ]; verdict $? stack_is_the_sum_of_frames_and_of_the_outside
		# main 88, handle 8, close_conn 24 and its part 40, free 1000.
		[ "$(stack_of DONE)" = 1160 ]; verdict $? stack_counts_a_part_and_its_function
		grep -q '1 of 1 units' "$SCRATCH/frames.json"; verdict $? stack_says_where_frames_come_from
	else
		skip frames "python3 is not installed (setup/install test)"
	fi
	database "$SCRATCH/old" enum.c
	"$MEMWALK" -p "$SCRATCH/old" --frames su --report --caches 48 > "$SCRATCH/out" && grep -q 'no stack frames are known for enum.c' "$SCRATCH/out"
	verdict $? missing_frames_are_a_doubt
	if command -v "${CC:-cc}" > /dev/null; then
		database "$SCRATCH/compile" recursion.c
		"$MEMWALK" -p "$SCRATCH/compile" --frames compile --report --caches 48 > "$SCRATCH/out" 2> "$SCRATCH/err"
		grep -q 'recursion: descend -> descend' "$SCRATCH/out"; verdict $? recursion_is_named
		grep -q 'dynamic stack (alloca or an array of variable length): list' "$SCRATCH/out"; verdict $? alloca_is_named
		[ -z "$(ls "$SCRATCH/compile" | grep -v compile_commands.json)" ]; verdict $? compiling_for_frames_leaves_nothing_in_the_build
	else
		skip frames_of_compiler "no C compiler"
	fi
}

frames() { ! wanted frames || part frames frames_of_reports; }
