# Small programs, one for each way to write a server: report and graph of each, JSON of some. Sourced by run.

# read_program NAME
read_program() {
	local name=$1 options=()
	database "$SCRATCH/$name" "$name.c"
	[ -f "test/programs/$name.toml" ] && options=(--config "test/programs/$name.toml")
	if ! "$MEMWALK" -p "$SCRATCH/$name" "${options[@]}" --frames none --caches 48,2048,32768 -o "$ACTUAL/$name.json" --dot "$ACTUAL/$name.dot" --report > "$ACTUAL/$name.txt" 2> "$SCRATCH/err"; then
		cat "$SCRATCH/err"
		verdict 1 "memwalk_reads_$name"
		return
	fi
	cat "$ACTUAL/$name.dot" >> "$ACTUAL/$name.txt"
	golden "$name.txt"
	case $name in enum | atoms | union | wrapper) golden "$name.json" ;; esac
	# The same program gives the same bytes.
	"$MEMWALK" -p "$SCRATCH/$name" "${options[@]}" --frames none -j 1 -o "$SCRATCH/again.json" && cmp -s "$ACTUAL/$name.json" "$SCRATCH/again.json"
	verdict $? "output_of_${name}_is_reproducible"
}

# --sound adds targets by type: the stage then reaches functions that only share a type.
sound_option() {
	database "$SCRATCH/sound" function_pointer.c
	"$MEMWALK" -p "$SCRATCH/sound" --frames none --report --caches 48 | grep -q 'at most 4 targets' && "$MEMWALK" -p "$SCRATCH/sound" --frames none --sound --report --caches 48 | grep -q 'at most 5 targets'
	verdict $? sound_takes_every_function_of_the_type
}

# The picture: every stage and every edge of the graph, in text that a reader of the picture can search.
svg() {
	command -v dot > /dev/null || { skip svg "dot is not installed (Debian's graphviz; setup/install test)"; return; }
	database "$SCRATCH/svg" enum.c
	"$MEMWALK" -p "$SCRATCH/svg" --frames none --svg "$SCRATCH/enum.svg" --dot "$SCRATCH/enum.dot" && [ "$(grep -c 'class="edge"' "$SCRATCH/enum.svg")" = "$(grep -c -- '->' "$SCRATCH/enum.dot")" ] && grep -q '>READ_REQUEST \[nf=' "$SCRATCH/enum.svg" && [ -z "$(ls "$SCRATCH"/*.part 2> /dev/null)" ]
	verdict $? svg_shows_every_stage_and_edge
	(PATH=$SCRATCH/empty "$MEMWALK" -p "$SCRATCH/svg" --frames none --svg "$SCRATCH/none.svg") 2> "$SCRATCH/err"
	[ $? = 1 ] && grep -q 'install Graphviz' "$SCRATCH/err" && [ ! -e "$SCRATCH/none.svg" ]
	verdict $? without_graphviz_the_svg_is_refused
}

# Why a stage reaches a function.
why() {
	database "$SCRATCH/why" function_pointer.c
	"$MEMWALK" -p "$SCRATCH/why" --why process:malloc > "$SCRATCH/said" 2>&1 && grep -q 'function_pointer.c:[0-9]*: process calls malloc' "$SCRATCH/said"
	verdict $? why_names_the_chain_of_calls
	"$MEMWALK" -p "$SCRATCH/why" --why process:qsort 2>&1 | grep -q 'process does not reach qsort'
	verdict $? why_says_that_there_is_none
}

schema() {
	python3 -c 'import jsonschema' 2> /dev/null || { skip schema "python3-jsonschema is not installed (setup/install test)"; return; }
	python3 test/validate.py ../schema/memwalk.schema.json ../schema/example.json "$ACTUAL"/*.json
	verdict $? every_output_and_the_example_fit_the_schema
}

programs() {
	local source name
	for source in test/programs/*.c; do
		name=$(basename "$source" .c)
		! wanted "$name" || part "read-$name" read_program "$name"
	done
	for name in sound_option svg why; do ! wanted $name || part $name $name; done
}
