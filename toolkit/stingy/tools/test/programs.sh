# Small programs, one for each way to write a server: report of each, graph and JSON of one. Sourced by run.

# read_program NAME
read_program() {
	local name=$1 options=()
	database "$SCRATCH/$name" "$name.c"
	[ -f "test/programs/$name.toml" ] && options=(--config "test/programs/$name.toml")
	if ! "$MEMWALK" -p "$SCRATCH/$name" "${options[@]}" --frames none --caches 48,2048,32768 -o "$ACTUAL/$name.json" --dot "$SCRATCH/dot" --report > "$ACTUAL/$name.txt" 2> "$SCRATCH/err"; then
		cat "$SCRATCH/err"
		verdict 1 "memwalk_reads_$name"
		return
	fi
	[ "$name" != enum ] || cat "$SCRATCH/dot" >> "$ACTUAL/$name.txt"
	golden "$name.txt"
	[ "$name" != enum ] || golden "$name.json"
	# The same program gives the same bytes, whatever addresses the allocator returns.
	[[ $(either "enum wrappers temporaries" "$name") == *$name* ]] || return 0
	shuffled 1 -p "$SCRATCH/$name" "${options[@]}" -j 1 -o "$SCRATCH/again.json" && cmp -s "$ACTUAL/$name.json" "$SCRATCH/again.json"
	verdict $? "output_of_${name}_is_reproducible"
}

# shuffled SEED ARGUMENT...: memwalk with its memory in another order.
shuffled() {
	local seed=$1
	shift
	LD_PRELOAD=$SHUFFLE SHUFFLE=$seed "$MEMWALK" --frames none "$@"
}

# If a build makes several programs, memwalk asks for one unless --program names it.
several() {
	local folder=$SCRATCH/several
	database "$folder" "$TOOLS"/test/several/{check,client,client_part,plugin,server,shared}.c
	"$MEMWALK" -p "$folder" --frames none --report > "$SCRATCH/out" 2>&1
	[ $? = 1 ] && grep -q '3 programs, with main in check.c, client.c, server.c. Which one is the server? --program' "$SCRATCH/out"
	verdict $? several_programs_are_asked_for
	"$MEMWALK" -p "$folder" --frames none --program server.c --report --caches 48 > "$SCRATCH/out" 2>&1 && grep -q '^Stages: 2, from conn.state. Read: 3 files' "$SCRATCH/out" && grep -q '3 files that only other programs of the build need were left out (main in check.c, client.c)' "$SCRATCH/out" && ! grep -q 'defines .* again' "$SCRATCH/out"
	verdict $? the_program_that_is_named_is_read_whole
	"$MEMWALK" -p "$folder" --frames none --program none.c 2>&1 | grep -q 'no file `none.c` of it defines main; main is in check.c, client.c, server.c'
	verdict $? a_program_that_is_not_there_is_refused
	# If each program compiles a file in its own way, the server's way is used, in which the file
	# allocates.
	folder=$SCRATCH/ways
	database "$folder" "$TOOLS"/test/several/{client,client_part,shared}.c
	sed -i 's/"-O2"/"-O2", "-DSTATIC_LINES"/; s/^]//' "$folder/compile_commands.json"
	database "$SCRATCH/server" "$TOOLS"/test/several/{server,shared}.c
	sed 's/^\[/,/' "$SCRATCH/server/compile_commands.json" >> "$folder/compile_commands.json"
	"$MEMWALK" -p "$folder" --frames none --program server.c --report --caches 48 > "$SCRATCH/out" 2>&1 && grep -q 'server.c:[0-9]* copy_line; freed' "$SCRATCH/out" && ! grep -q 'several ways' "$SCRATCH/out"
	verdict $? a_file_is_read_as_it_is_compiled_for_the_program
	"$MEMWALK" -p "$folder" --frames none --program client.c --report --caches 48 2>&1 | grep -q 'no stages found'
	verdict $? another_program_has_its_own_way
}

# For pointers in cycles, twice as many functions and blocks mean about twice the work, not four
# times.
ring() { # ring NUMBER: functions that hand what they get or allocate to the next
	local i
	echo '#include <stdlib.h>'
	echo 'struct conn { int state; void *held; };'
	for ((i = 0; i < $1; i++)); do echo "void *f$i(void *p);"; done
	for ((i = 0; i < $1; i++)); do echo "void *f$i(void *p) { return f$(((i + 1) % $1))(p ? p : malloc($i + 1)); }"; done
	echo 'void step(struct conn *c) { switch (c->state) { case 1: c->held = f0(0); c->state = 2; break; case 2: free(c->held); c->state = 1; } }'
}
growth() {
	local number
	for number in 200 400; do
		ring $number > "$SCRATCH/ring$number.c"
		database "$SCRATCH/ring$number" "$SCRATCH/ring$number.c"
		"$MEMWALK" -p "$SCRATCH/ring$number" --frames none --timings -o "$SCRATCH/ring.json" 2>&1 | sed -n 's/^memwalk: pointers: \([0-9]*\) targets passed on$/\1/p' > "$SCRATCH/passed$number"
	done
	echo "  $(cat "$SCRATCH/passed200") targets passed on with 200 functions, $(cat "$SCRATCH/passed400") with 400"
	[ "$(cat "$SCRATCH/passed200")" -gt 0 ] && [ "$(cat "$SCRATCH/passed400")" -le "$((5 * $(cat "$SCRATCH/passed200") / 2))" ]
	verdict $? work_on_pointers_that_go_round_grows_with_their_number
}

# Tests that every step is reported, in order.
timings() {
	database "$SCRATCH/timings" enum.c
	"$MEMWALK" -p "$SCRATCH/timings" --frames none --timings -o "$SCRATCH/timed.json" 2>&1 | sed -n 's/^memwalk: \(.*\): [0-9]* ms, at most [1-9][0-9]* MiB$/\1/p' | tr '\n' ';' > "$SCRATCH/parts"
	[ "$(cat "$SCRATCH/parts")" = 'read, compile and link;configuration, wrappers;pointers;stages;objects;lifetimes;stack frames;stack bounds;fields, globals;output;' ]
	verdict $? timings_name_every_part
}

# Without --caches, the caches are this machine's, as the kernel reports them to a shell.
own_caches() {
	local level expected= index
	for level in 1 2 3; do
		for index in /sys/devices/system/cpu/cpu0/cache/index*; do
			[ "$(cat "$index/level" 2> /dev/null)" = $level ] && [ "$(cat "$index/type")" != Instruction ] && expected+=" L$level $(tr -d K < "$index/size") KiB;"
		done
	done
	[ -n "$expected" ] || { skip own_caches "the kernel reports no caches of CPU 0"; return; }
	database "$SCRATCH/caches" enum.c
	"$MEMWALK" -p "$SCRATCH/caches" --frames none --report > "$SCRATCH/out"
	grep -F "Caches:" "$SCRATCH/out"
	grep -qF "Caches:$expected" "$SCRATCH/out"
	verdict $? caches_are_those_that_the_kernel_reports
}

# If two fields may be the state, the choice is reported before its consequences.
guessed() {
	cat > "$SCRATCH/guessed.c" <<- 'END'
		#include <stdlib.h>
		enum state { READ, SEND };
		enum phase { HELLO, TALK };
		struct conn { enum state state; int fd; };
		struct peer { enum phase phase; int fd; };
		static void talk(struct peer *p) { switch (p->phase) { case HELLO: p->phase = TALK; break; case TALK: free(p); break; } }
		static void handle(struct conn *c) { switch (c->state) { case READ: c->state = SEND; break; case SEND: free(c); break; } }
		int main(void) { struct conn *c = malloc(sizeof *c); struct peer *p = malloc(sizeof *p); c->state = READ; p->phase = HELLO; for (;;) { handle(c); talk(p); } }
	END
	database "$SCRATCH/guessed" "$SCRATCH/guessed.c"
	"$MEMWALK" -p "$SCRATCH/guessed" --frames none --report --caches 48 > "$SCRATCH/out"
	sed -n 2p "$SCRATCH/out" | grep 'Doubt: .* was taken as the field that holds a request.s stage; .* looks like one, too' && [ "$(grep -c 'was taken as' "$SCRATCH/out")" = 1 ]
	verdict $? a_guess_about_the_stages_is_said_first
}

# --sound adds targets by type: the stage then reaches functions that only share a type.
sound_option() {
	database "$SCRATCH/sound" function_pointer.c
	"$MEMWALK" -p "$SCRATCH/sound" --frames none --report --caches 48 | grep -q 'at most 4 targets' && "$MEMWALK" -p "$SCRATCH/sound" --frames none --sound --report --caches 48 | grep -q 'at most 5 targets'
	verdict $? sound_takes_every_function_of_the_type
}

# Tests the picture: it has every stage and every edge of the graph, as searchable text.
svg() {
	command -v dot > /dev/null || { skip svg "dot is not installed (Debian's graphviz; setup/install test)"; return; }
	database "$SCRATCH/svg" enum.c
	"$MEMWALK" -p "$SCRATCH/svg" --frames none --svg "$SCRATCH/enum.svg" --dot "$SCRATCH/enum.dot" && [ "$(grep -c 'class="edge"' "$SCRATCH/enum.svg")" = "$(grep -c -- '->' "$SCRATCH/enum.dot")" ] && grep -q '>READ_REQUEST \[nf=' "$SCRATCH/enum.svg" && [ -z "$(ls "$SCRATCH"/*.part 2> /dev/null)" ]
	verdict $? svg_shows_every_stage_and_edge
	(PATH=$SCRATCH/empty "$MEMWALK" -p "$SCRATCH/svg" --frames none --svg "$SCRATCH/none.svg") 2> "$SCRATCH/err"
	[ $? = 1 ] && grep -q 'install Graphviz' "$SCRATCH/err" && [ ! -e "$SCRATCH/none.svg" ]
	verdict $? without_graphviz_the_svg_is_refused
}

# Tests --why, the chain of calls by which a stage reaches a function.
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
	for name in own_caches guessed sound_option svg why several growth timings; do ! wanted $name || part $name $name; done
}
