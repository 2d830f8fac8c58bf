# What toolkit/stingy/servers/tux keeps is what the tools make of it: memwalk's result (but for bytes of stack, which are the compiler's), the
# generated map and stingify's patch. Sourced by run.
tux_is_kept() {
	local tux=$TOOLS/../servers/tux/stingy out=$SCRATCH/tux file
	[ -x "$TOOLS/../generate/build/stingygen" ] || { skip tux "stingygen is not built (make -C toolkit/stingy/generate)"; return; }
	for file in patch python3; do command -v $file > /dev/null || { skip tux "$file is not installed (setup/install test)"; return; }; done
	if ! MEMWALK=$MEMWALK STINGIFY=$STINGIFY STINGYGEN=$TOOLS/../generate/build/stingygen STINGY_KEPT='' "$tux/apply" "$out" > "$SCRATCH/log" 2>&1; then
		tail -5 "$SCRATCH/log"
		verdict 1 the_tools_make_tux_stingy
		return
	fi
	for file in "$tux/mem.json" "$out/mem.json"; do
		python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
for stage in found["stages"]:
    del stage["stack"]
json.dump(found, sys.stdout, indent=1)' "$file" > "$SCRATCH/$(basename "$(dirname "$file")").mem"
	done
	diff -u "$SCRATCH/stingy.mem" "$SCRATCH/tux.mem" | head -40
	cmp -s "$SCRATCH/stingy.mem" "$SCRATCH/tux.mem"
	verdict $? tux_is_kept_as_memwalk_finds_it
	diff -ru "$tux/gen" "$out/gen"
	verdict $? tux_is_kept_as_stingygen_makes_it
	diff -u "$tux/allocations.patch" "$out/allocations.patch"
	verdict $? tux_is_kept_as_stingify_rewrites_it
}

# What tux does is never more than memwalk's bounds.
sound_tux() {
	local out=$SCRATCH/sound_tux source=$TOOLS/../servers/tux
	for file in python3 addr2line; do command -v $file > /dev/null || { skip sound_tux "$file is not installed (setup/install test)"; return; }; done
	mkdir -p "$out"
	(cd "$source/src" && for file in *.c; do "${CC:-cc}" -std=c11 -O2 -g1 -fno-pie -fstack-usage -c -o "$out/${file%.c}.o" "$file" || exit 1; done) &&
		"${CC:-cc}" -no-pie -pthread -o "$out/tux" "$out"/*.o && "${CC:-cc}" -O1 -shared -fPIC -o "$out/trace.so" test/sound/trace.c -ldl || { verdict 1 tux_is_built_to_be_traced; return; }
	{
		printf '['
		local comma=
		for file in "$source"/src/*.c; do
			printf '%s{"directory": "%s", "file": "%s", "arguments": ["cc", "-std=c11", "-O2", "-c", "-o", "%s", "%s"]}' "$comma" "$source/src" "$(basename "$file")" "$out/$(basename "$file" .c).o" "$(basename "$file")"
			comma=,
		done
		printf ']'
	} > "$out/compile_commands.json"
	"$MEMWALK" -p "$out" --config "$source/stingy/stingy.toml" --frames su -o "$out/mem.json" || { verdict 1 memwalk_reads_tux_with_frames; return; }
	timeout 300 python3 test/sound/tux.py "$out/tux" "$out/trace.so" "$out/trace" && python3 test/sound/bounds.py "$out/trace" "$out/tux" "$out/mem.json" 8
	verdict $? tux_stays_within_the_bounds
}

tux() {
	! wanted tux || part tux_is_kept tux_is_kept
	! wanted sound_tux || part sound_tux sound_tux
}
