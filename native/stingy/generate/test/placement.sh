# Stack and globals in the memory map: what stingygen lays out, what the linker makes of it, where a program has them. Sourced by run.
generated overlay-placed "room life" test/overlay.json --l2 512K --share 100% --stack auto --globals auto
generated overlay-some "room" test/overlay.json --l2 512K --layout frame --stack 5000 --globals 256 --without-global months

# linked LABEL MAP OPTIONS...: the program of test/globals.c with a map and its linker script; what the linker says is kept.
linked() {
	local label=$1 map=$SCRATCH/$2; shift 2
	"${LINK_CC:-$CC}" -std=c11 -O2 -g -Wall -Wextra -Werror -fdata-sections -I../include -I"$map" -o "$SCRATCH/placed-$label" test/placed.c test/globals.c "$map/stingy_gen.c" \
		"-Wl,-T,$map/stingy_globals.ld" "$@" ${LINK_LIBRARY:-../runtime/build/libstingy.a} -pthread 2> "$SCRATCH/linked-$label"
}
# placed LABEL MAP GLOBALS OPTIONS...: links the program and runs it.
placed() {
	local label=$1 map=$2 globals=$3 said; shift 3
	if ! linked "$label" "$map" "$@"; then
		cat "$SCRATCH/linked-$label"
		verdict 1 "[$label] is_linked"
		return
	fi
	said=$("$SCRATCH/placed-$label" "$label" "$globals" 2>&1)
	echo "$said"
	passed=$((passed + $(grep -c '^ok' <<< "$said")))
	failed=$((failed + $(grep -c '^FAILED' <<< "$said")))
	[ "$(grep -c '^ok\|^FAILED' <<< "$said")" = 4 ] || verdict 1 "[$label] runs_to_its_end"
}

if "$CC" -Wl,--version -o /dev/null -x c /dev/null 2> /dev/null | grep -q 'GNU ld'; then
	placed pie overlay-placed 6 -fPIE -pie
	placed fixed overlay-placed 6 -fno-pie -no-pie
	placed some overlay-some 4
	if [ -n "$SANITIZE" ]; then
		# Redzones around globals make them larger than memwalk has them.
		mkdir "$SCRATCH/roomy" && "$GEN" test/overlay.json --l2 512K --stack auto --globals 64K -o "$SCRATCH/roomy" > "$SCRATCH/roomy/said" 2>&1
		# shellcheck disable=SC2086 # lists of options and files
		IS_SANITIZED=1 ASAN_OPTIONS=detect_leaks=0 LINK_LIBRARY=$LIBRARY placed sanitized roomy 6 $SANITIZE
	fi
	if command -v clang-19 > /dev/null; then LINK_CC=clang-19 placed clang overlay-placed 6 -fPIE -pie; else skipped=$((skipped + 1)); echo "SKIPPED stingygen-clang: clang-19 is not installed"; fi
	! linked whole overlay-placed -fno-data-sections && grep -q 'compile it with -fdata-sections' "$SCRATCH/linked-whole"
	verdict $? globals_without_sections_of_their_own_are_refused_by_the_linker
	! linked grown overlay-placed -DTABLE=2048 && grep -q 'take more than the 4352 bytes that the map keeps free; give stingygen' "$SCRATCH/linked-grown"
	verdict $? globals_that_have_grown_are_refused_by_the_linker
else
	skipped=$((skipped + 1))
	echo "SKIPPED stingygen-placement: $CC links with another linker than GNU's"
fi
"$SCRATCH/overlay-placed/life" said 2>&1 | grep -q 'link with -Wl,-T,stingy_globals.ld'
verdict $? a_program_without_the_linker_script_says_so_and_runs

grep -q 'globals that stages touch and --globals has no room for: table 4096' "$SCRATCH/overlay-some/said" && ! grep -q 'months\|\.own\|table' "$SCRATCH/overlay-some/stingy_globals.ld"
verdict $? globals_of_the_most_stages_are_placed_first
mkdir "$SCRATCH/stale" && touch "$SCRATCH/stale/stingy_globals.ld" && "$GEN" test/overlay.json --l2 512K -o "$SCRATCH/stale" > "$SCRATCH/stale/said" 2>&1 && [ ! -e "$SCRATCH/stale/stingy_globals.ld" ]
verdict $? a_map_without_globals_leaves_no_linker_script

refused an_unknown_global_is_refused "there is no such global in test/overlay.json" test/overlay.json --l2 1M --globals auto --without-global nobody
refused a_global_is_left_out_of_what_is_placed "which is not given" test/overlay.json --l2 1M --without-global hits
refused a_wrong_size_of_globals_is_refused "--globals most: not a number such as" test/overlay.json --l2 1M --globals most
refused a_slab_of_stack_and_globals_alone_is_refused "lower --stack or --globals, or raise --l2" test/overlay.json --l2 64K --stack 24K --globals 8K
if command -v python3 > /dev/null; then
	altered 'program["globals"][0]["name"] = "x) *(.text"'
	refused names_that_are_no_identifiers_do_not_reach_the_linker "is not a C identifier, nor FUNCTION.NAME" "$SCRATCH/altered.json" --l2 1M --globals auto
	altered 'program["globals"][1]["align"] = 48'
	refused an_alignment_that_is_none_is_refused "limit: align is not a power of two" "$SCRATCH/altered.json" --l2 1M --globals auto
	altered '[stage["stack"].update(bytes=0) for stage in program["stages"]]'
	refused a_stack_of_no_known_frames_is_refused "run memwalk with --frames compile, or give --stack SIZE" "$SCRATCH/altered.json" --l2 1M --stack auto
	altered 'program["stages"][2]["stack"].update(is_bound=False, why_not=["recursion: f -> f"])'
	"$GEN" "$SCRATCH/altered.json" --l2 512K --stack auto -o "$SCRATCH/stale" 2>&1 | grep -q -- '--stack auto: the stack has no bound (flush: recursion: f -> f)'
	verdict $? a_stack_without_a_bound_is_said
	python3 test/layouts.py "$GEN" test/overlay.json 60
	verdict $? stack_globals_and_regions_share_no_place_of_the_cache_in_random_maps
fi

# The case study with its stack and its globals placed answers as ever.
if command -v patch python3 > /dev/null && [ -x "$SCRATCH/placed-pie" ]; then
	placed_tux() {
		local tux=$SCRATCH/placed-tux
		STINGY_STACK=auto STINGY_GLOBALS=auto MEMWALK=none STINGIFY=none STINGYGEN=$GEN ../../../testbed/tux/stingy/apply "$tux" > "$tux.said" 2>&1 &&
			$CC -std=c11 -O2 -g -Wall -Wextra -Werror -fdata-sections -I../include -I"$tux/gen" -o "$tux/tux" "$tux"/stingy/*.c "$tux/gen/stingy_gen.c" "-Wl,-T,$tux/gen/stingy_globals.ld" \
				../runtime/build/libstingy.a -pthread || { cat "$tux.said"; return 1; }
		STINGY_STATS=$tux/stats timeout -k 10 300 python3 ../../../testbed/tux/test/conformance.py "tux, placed" "$tux/tux" > "$tux.said" 2>&1 || { grep -v '^ok' "$tux.said"; return 1; }
		grep -q '"globals_bytes":[1-9].*"stack_peak_bytes":[1-9]' "$tux/stats" || { cat "$tux/stats"; return 1; }
	}
	placed_tux
	verdict $? tux_serves_with_its_stack_and_globals_in_place
else
	skipped=$((skipped + 1))
	echo "SKIPPED stingygen-placed-tux: patch or python3 is not installed, or the program cannot be linked (see above)"
fi
