# Altered inputs: stingy.toml for memwalk, mem.json for stingify. Sourced by run.
if wanted fuzz; then
	if command -v python3 > /dev/null; then
		database "$SCRATCH/fuzz" enum.c
		database "$SCRATCH/fuzz_lists" lists.c
		python3 test/mutate.py 60 test/programs/lists.toml "$MEMWALK" -p "$SCRATCH/fuzz_lists" --config @ --frames none --report
		verdict $? altered_configuration_is_taken_or_refused
		"$MEMWALK" -p "$SCRATCH/fuzz" --frames none -o "$SCRATCH/fuzz.json"
		python3 test/mutate.py 60 "$SCRATCH/fuzz.json" "$STINGIFY" -p "$SCRATCH/fuzz" @
		verdict $? altered_memory_map_is_taken_or_refused
	else
		skip fuzz "python3 is not installed (setup/install test)"
	fi
fi
