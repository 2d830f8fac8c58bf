# Stack and globals in the memory map: what stingygen lays out, what the linker makes of it, where a program has them. Sourced by run.

# linked LABEL MAP OPTIONS...: the program of test/globals.c with a map and its linker script.
linked() {
	local label=$1 map=$MAPS/$2; shift 2
	"${LINK_CC:-$CC}" -std=c11 -O2 -g1 -Wall -Wextra -Werror -fdata-sections -I../include -I"$map" -o "$SCRATCH/placed-$label" test/placed.c test/globals.c "$map/stingy_gen.c" \
		"-Wl,-T,$map/stingy_globals.ld" "$@" "${LINK_LIBRARY:-../runtime/build/libstingy.a}" -pthread
}
# placed LABEL MAP GLOBALS OPTIONS...: links the program and runs it.
placed() {
	local label=$1 map=$2 globals=$3 said; shift 3
	if ! linked "$label" "$map" "$@" 2>&1; then
		verdict 1 "[$label] is_linked"
		return
	fi
	said=$("$SCRATCH/placed-$label" "$label" "$globals" 2>&1)
	echo "$said"
	[ "$(grep -c '^ok\|^FAILED' <<< "$said")" = 4 ] || verdict 1 "[$label] runs_to_its_end"
}
placed_sanitized() {
	# Redzones around globals make them larger than memwalk has them.
	mkdir "$MAPS/roomy" && "$GEN" test/overlay.json --l2 512K --stack auto --globals 64K -o "$MAPS/roomy" > "$MAPS/roomy/said" 2>&1
	# shellcheck disable=SC2086 # a list of options
	IS_SANITIZED=1 ASAN_OPTIONS=detect_leaks=0 LINK_LIBRARY=$LIBRARY placed sanitized roomy 6 $SANITIZE
}
placed_clang() { LINK_CC=clang-19 placed clang overlay-placed 6 -fPIE -pie; }
not_linked() {
	! linked whole overlay-placed -fno-data-sections > "$SCRATCH/whole" 2>&1 && grep -q 'compile it with -fdata-sections' "$SCRATCH/whole"
	verdict $? globals_without_sections_of_their_own_are_refused_by_the_linker
	! linked grown overlay-placed -DTABLE=2048 > "$SCRATCH/grown" 2>&1 && grep -q 'take more than the 4352 bytes that the map keeps free; give stingygen' "$SCRATCH/grown"
	verdict $? globals_that_have_grown_are_refused_by_the_linker
}
links_with_gnu_ld() { "$CC" -Wl,--version -o "$SCRATCH/version" -x c /dev/null 2> /dev/null | grep -q 'GNU ld'; }

scripts() {
	tried overlay-placed life > /dev/null
	"$SCRATCH/life" said 2>&1 | grep -q 'link with -Wl,-T,stingy_globals.ld'
	verdict $? a_program_without_the_linker_script_says_so_and_runs
	grep -q 'globals that stages touch and --globals has no room for: table 4096' "$MAPS/overlay-some/said" && ! grep -q 'months\|\.own\|table' "$MAPS/overlay-some/stingy_globals.ld"
	verdict $? globals_of_the_most_stages_are_placed_first
	mkdir "$SCRATCH/stale" && touch "$SCRATCH/stale/stingy_globals.ld" && "$GEN" test/overlay.json --l2 512K -o "$SCRATCH/stale" > "$SCRATCH/stale/said" 2>&1 && [ ! -e "$SCRATCH/stale/stingy_globals.ld" ]
	verdict $? a_map_without_globals_leaves_no_linker_script

	refused an_unknown_global_is_refused "there is no such global in test/overlay.json" test/overlay.json --l2 1M --globals auto --without-global nobody
	refused a_global_is_left_out_of_what_is_placed "which is not given" test/overlay.json --l2 1M --without-global hits
	refused a_wrong_size_of_globals_is_refused "--globals most: not a number such as" test/overlay.json --l2 1M --globals most
	refused a_slab_of_stack_and_globals_alone_is_refused "lower --stack or --globals, or raise --l2" test/overlay.json --l2 64K --stack 24K --globals 8K
	command -v python3 > /dev/null || return 0
	altered 'program["globals"][0]["name"] = "x) *(.text"'
	refused names_that_are_no_identifiers_do_not_reach_the_linker "is not a C identifier, nor FUNCTION.NAME" "$SCRATCH/altered.json" --l2 1M --globals auto
	altered 'program["globals"][1]["align"] = 48'
	refused an_alignment_that_is_none_is_refused "limit: align is not a power of two" "$SCRATCH/altered.json" --l2 1M --globals auto
	altered '[stage["stack"].update(bytes=0) for stage in program["stages"]]'
	refused a_stack_of_no_known_frames_is_refused "run memwalk with --frames compile, or give --stack SIZE" "$SCRATCH/altered.json" --l2 1M --stack auto
	altered 'program["stages"][2]["stack"].update(is_bound=False, why_not=["recursion: f -> f"])'
	"$GEN" "$SCRATCH/altered.json" --l2 512K --stack auto -o "$SCRATCH/stale" 2>&1 | grep -q -- '--stack auto: the stack has no bound (flush: recursion: f -> f)'
	verdict $? a_stack_without_a_bound_is_said
}
layouts() {
	command -v python3 > /dev/null || { skip stingygen-layouts "python3 is not installed"; return; }
	python3 test/layouts.py "$GEN" test/overlay.json "$1"
	verdict $? stack_globals_and_regions_share_no_place_of_the_cache_in_random_maps
}

# The case study with its stack and its globals placed answers as ever.
placed_tux() {
	local tux=$SCRATCH/placed-tux
	command -v patch > /dev/null && command -v python3 > /dev/null && links_with_gnu_ld || { skip stingygen-placed-tux "patch, python3 or GNU's linker is missing"; return; }
	answers_in_place() {
		STINGY_STACK=auto STINGY_GLOBALS=auto MEMWALK=none STINGIFY=none STINGYGEN=$GEN ../servers/tux/stingy/apply "$tux" > "$tux.said" 2>&1 &&
			$CC -std=c11 -O1 -Wall -Wextra -Werror -fdata-sections -I../include -I"$tux/gen" -o "$tux/tux" "$tux"/stingy/*.c "$tux/gen/stingy_gen.c" "-Wl,-T,$tux/gen/stingy_globals.ld" \
				../runtime/build/libstingy.a -pthread || { cat "$tux.said"; return 1; }
		STINGY_STATS=$tux/stats timeout -k 10 300 python3 ../servers/tux/test/conformance.py "tux, placed" "$tux/tux" > "$tux.said" 2>&1 || { sed 's/^/  /' "$tux.said"; return 1; }
		grep -q '"globals_bytes":[1-9].*"stack_peak_bytes":[1-9]' "$tux/stats" || { cat "$tux/stats"; return 1; }
	}
	answers_in_place
	verdict $? tux_serves_with_its_stack_and_globals_in_place
}

placement() {
	if links_with_gnu_ld; then
		part placed-pie placed pie overlay-placed 6 -fPIE -pie
		part placed-fixed placed fixed overlay-placed 6 -fno-pie -no-pie
		part placed-some placed some overlay-some 4
		[ -z "$SANITIZE" ] || part placed-sanitized placed_sanitized
		if command -v clang-19 > /dev/null; then part placed-clang placed_clang; else part placed-clang skip stingygen-clang "clang-19 is not installed"; fi
		part not-linked not_linked
	else
		part placed skip stingygen-placement "$CC links with another linker than GNU's"
	fi
	part scripts scripts
	part layouts layouts "$(either 15 60)"
}
