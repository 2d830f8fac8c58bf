# Unusable input is refused with file, line and remedy, and never crashes the tools. Sourced by run.

# refused NAME STATUS PATTERN ARGUMENT...
refused() {
	local name=$1 status=$2 pattern=$3
	shift 3
	wanted "$name" || return 0
	timeout 60 "$MEMWALK" "$@" > "$SCRATCH/out" 2> "$SCRATCH/err"
	local got=$?
	if [ $got = "$status" ] && grep -q -- "$pattern" "$SCRATCH/err"; then verdict 0 "$name"; else
		echo "  status $got, wanted $status and /$pattern/:"
		head -3 "$SCRATCH/err"
		verdict 1 "$name"
	fi
}
toml() { printf '%b' "$1" > "$SCRATCH/bad.toml"; echo "$SCRATCH/bad.toml"; }

bad_databases() {
	refused no_folder_is_wrong_usage 2 'Name the folder of its compile_commands.json with -p'
	refused unknown_option_is_wrong_usage 2 'Unknown command line argument' -p . --no-such-option
	refused bad_cache_sizes_are_wrong_usage 2 'as 48,2048,32768' -p . --caches 48,x
	mkdir -p "$SCRATCH/empty"
	refused missing_database_says_how_to_make_one 1 'compile_commands.json: no such file. .*CMAKE_EXPORT' -p "$SCRATCH/empty"
	mkdir -p "$SCRATCH/broken" && echo '[{"directory": 3' > "$SCRATCH/broken/compile_commands.json"
	refused broken_database_is_named 1 'broken/compile_commands.json: ' -p "$SCRATCH/broken"
	mkdir -p "$SCRATCH/none" && echo '[]' > "$SCRATCH/none/compile_commands.json"
	refused database_without_files_is_named 1 'it names no C file' -p "$SCRATCH/none"
	database "$SCRATCH/gone" gone.c
	refused file_that_is_gone_is_named 1 'gone.c is named here and does not exist' -p "$SCRATCH/gone"
	database "$SCRATCH/error" "$TOOLS/test/bad/does_not_compile.c"
	refused code_that_does_not_compile_is_shown 1 'does_not_compile.c:5:.*error: .*undeclared' -p "$SCRATCH/error"
	refused code_that_does_not_compile_says_what_to_do 1 '1 of 1 files do not compile with Clang 19. Build the program first' -p "$SCRATCH/error"
	database "$SCRATCH/stageless" "$TOOLS/test/bad/no_stages.c"
	refused no_stages_says_which_keys_help 1 'no stages found: .*state = "structure.field"' -p "$SCRATCH/stageless"
}

bad_configurations() {
	database "$SCRATCH/plain" enum.c
	refused missing_configuration_is_named 1 'none.toml' -p "$SCRATCH/plain" --config "$SCRATCH/none.toml"
	refused syntax_of_toml 1 'bad.toml:2: ' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nstate = conn.state\n')"
	refused unknown_section 1 'bad.toml:1: there is no section `schedular`' -p "$SCRATCH/plain" --config "$(toml '[schedular]\n')"
	refused unknown_key 1 'bad.toml:2: .*no key `funktion`' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nfunktion = "x"\n')"
	refused wrong_type_of_key 1 'bad.toml:3: .*size must be a whole number' -p "$SCRATCH/plain" --config "$(toml '[[malloc]]\nfunction = "x"\nsize = "one"\n')"
	refused negative_argument 1 'bad.toml:3: .*must be a whole number' -p "$SCRATCH/plain" --config "$(toml '[[free]]\nfunction = "x"\npointer = -1\n')"
	refused table_where_a_list_is_wanted 1 'bad.toml:1: write \[\[malloc\]\]' -p "$SCRATCH/plain" --config "$(toml '[malloc]\nfunction = "x"\n')"
	refused missing_function 1 'bad.toml:2: the program has no function `run_loop`' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nfunction = "run_loop"\n')"
	refused missing_field 1 'bad.toml:2: the structure conn has no field `stat`' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nstate = "conn.stat"\n')"
	refused missing_structure 1 'bad.toml:2: the program has no structure `con`' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nstate = "con.state"\n')"
	refused field_without_structure 1 'bad.toml:2: .*must be structure.field' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nstate = "state"\n')"
	refused one_of_several_states_is_no_function 1 'bad.toml:2: conn.state holds no function' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nstate = ["conn.state", "conn.state"]\n')"
	refused missing_outside_function 1 'bad.toml:2: outside: the program has no function `start_\*`' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\noutside = ["start_*"]\n')"
	refused pool_without_its_end 1 'bad.toml:1: \[\[pool\]\] lacks the key `destroy`' -p "$SCRATCH/plain" --config "$(toml '[[pool]]\ncreate = "make"\n')"
	refused why_of_no_stage 1 'there is no stage `NOWHERE`' -p "$SCRATCH/plain" --why NOWHERE:free
	refused missing_request 1 'bad.toml:2: the program has no structure `request`' -p "$SCRATCH/plain" --config "$(toml '[scheduler]\nrequests = ["request"]\n')"
	refused missing_entry 1 'bad.toml:3: .*no function `nowhere` with a body\|bad.toml:1: .*no function `nowhere` with a body' -p "$SCRATCH/plain" --config "$(toml '[[stage]]\nname = "A"\nentry = "nowhere"\n')"
	refused missing_allocator 1 'neither has nor calls a function `pool_alloc`' -p "$SCRATCH/plain" --config "$(toml '[[malloc]]\nfunction = "pool_alloc"\nsize = 0\n')"
	refused missing_object 1 'there is no object `nothing`' -p "$SCRATCH/plain" --config "$(toml '[[object]]\nid = "nothing"\ntypical_bytes = 4\n')"
	refused malloc_and_free_contradict 1 'bad.toml:4: buy is named under \[\[malloc\]\] (line 1) and under \[\[free\]\]' -p "$SCRATCH/plain" --config "$(toml '[[malloc]]\nfunction = "buy"\nsize = 0\n[[free]]\nfunction = "buy"\npointer = 0\n')"
	refused stage_twice 1 'bad.toml:4: the stage A already exists in line 1' -p "$SCRATCH/plain" --config "$(toml '[[stage]]\nname = "A"\nentry = "x"\n[[stage]]\nname = "A"\nentry = "y"\n')"
	refused sizes_contradict 1 'typical_bytes is larger than max_bytes' -p "$SCRATCH/plain" --config "$(toml '[[object]]\nid = "conn_request"\ntypical_bytes = 10\nmax_bytes = 4\n')"
	refused size_contradicts_the_program 1 'conn_header is always 512 bytes' -p "$SCRATCH/plain" --config "$(toml '[[object]]\nid = "conn_header"\nmax_bytes = 100\n')"
	database "$SCRATCH/atoms_bad" atoms.c
	refused configuration_contradicts_annotation 1 'atoms.c:[0-9]*: add_tux_atom: the annotation contradicts .*bad.toml:1' -p "$SCRATCH/atoms_bad" --config "$(toml '[[queue_stage]]\nfunction = "add_tux_atom"\nrequest = 1\nstage = 0\n')"
	mkfifo "$SCRATCH/pipe" && ln -s elsewhere.json "$SCRATCH/link.json"
	cat "$SCRATCH/pipe" > "$SCRATCH/through" &
	"$MEMWALK" -p "$SCRATCH/plain" --frames none -o "$SCRATCH/pipe" 2> "$SCRATCH/err" && wait $! && [ -p "$SCRATCH/pipe" ] && grep -q '"stages"' "$SCRATCH/through" && "$MEMWALK" -p "$SCRATCH/plain" --frames none -o "$SCRATCH/link.json" 2> "$SCRATCH/err" && [ -L "$SCRATCH/link.json" ] && cmp -s "$SCRATCH/through" "$SCRATCH/elsewhere.json"
	verdict $? what_is_no_ordinary_file_is_written_and_not_replaced
	refused output_that_cannot_be_written 1 'No such file or directory. Name a file' -p "$SCRATCH/plain" --frames none -o "$SCRATCH/no/such/mem.json"
}

bad_input() {
	part bad_databases bad_databases
	part bad_configurations bad_configurations
}
