# Altered inputs: stingy.toml for memwalk, mem.json for stingify. Sourced by run.
altered_configuration() {
	database "$SCRATCH/lists" lists.c
	python3 test/mutate.py "$1" test/programs/lists.toml "$MEMWALK" -p "$SCRATCH/lists" --config @ --frames none --report
	verdict $? altered_configuration_is_taken_or_refused
}
altered_map() {
	database "$SCRATCH/enum" enum.c
	"$MEMWALK" -p "$SCRATCH/enum" --frames none -o "$SCRATCH/fuzz.json"
	python3 test/mutate.py "$1" "$SCRATCH/fuzz.json" "$STINGIFY" -p "$SCRATCH/enum" @
	verdict $? altered_memory_map_is_taken_or_refused
}
fuzz() {
	wanted fuzz || return 0
	command -v python3 > /dev/null || { part fuzz skip fuzz "python3 is not installed (setup/install test)"; return; }
	part altered_configuration altered_configuration "$(either 8 250)"
	part altered_map altered_map "$(either 8 250)"
}
