# Tests stingify: patches are goldens, they apply, and the result compiles without a warning.
# Sourced by run.

# stand_in_header MEM.JSON: prints a header like stingygen's
stand_in_header() {
	printf '#pragma once\n#include <stingy/runtime.h>\n'
	sed -n 's/^   "id": "\(.*\)",$/enum { STINGY_OBJ_\1 = __COUNTER__ };/p' "$1"
}

# rewritten SOURCE [ARGUMENT...]
rewritten() {
	local source=$1 name folder=$SCRATCH/rewritten
	name=$(basename "$source" .c)
	shift
	mkdir -p "$folder/src" && cp "$source" "$folder/src/"
	database "$folder" "$folder/src/$name.c"
	local options=()
	# shellcheck disable=SC2046 # words
	[ -f "${source%.c}.arguments" ] && set -- $(cat "${source%.c}.arguments")
	[ -f "test/programs/$name.toml" ] && options=(--config "test/programs/$name.toml")
	"$MEMWALK" -p "$folder" "${options[@]}" --frames none -o "$folder/mem.json" || { verdict 1 "memwalk_for_stingify_$name"; return; }
	"$STINGIFY" -p "$folder" "$@" "$folder/mem.json" > "$folder/patch" 2> "$folder/refused"
	{ cat "$folder/patch"; sed "s|$folder|FOLDER|g" "$folder/refused"; } > "$ACTUAL/stingify_$name.patch"
	golden "stingify_$name.patch"
	[ -s "$folder/patch" ] || return 0
	if ! command -v patch > /dev/null; then skip "stingify_$name" "patch is not installed (setup/install test)"; return; fi
	patch -s -p1 -d "$folder/src" < "$folder/patch"
	verdict $? "patch_of_${name}_applies"
	stand_in_header "$folder/mem.json" > "$folder/stingy_gen.h"
	# The program must not depend on the contents of a new block, which differ from malloc's.
	"${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -Wno-maybe-uninitialized -O2 -I"$folder" -I../include -c -o "$folder/out.o" "$folder/src/$name.c"
	verdict $? "patched_${name}_compiles_without_a_warning"
	# Every call of the C library's allocator for these objects is replaced or refused. A function with
	# two copies has one left.
	if ! grep -q 'left alone' "$folder/refused" && ! grep -q 'for an object of the Stingy allocator' "$folder/patch"; then
		! grep -qE '[^_a-z](malloc|calloc|realloc|strdup|strndup|free) ?\(' <(grep -v '^#define' "$folder/src/$name.c")
		verdict $? "nothing_of_${name}_is_left_with_malloc"
	fi
}

# rewritten_units NAME SOURCE...: a program of several files.
rewritten_units() {
	local name=$1 folder=$SCRATCH/$1 source
	shift
	mkdir -p "$folder/src" && cp "test/rewrites/$name"/* "$folder/src/"
	database "$folder" "${@/#/$folder/src/}"
	"$MEMWALK" -p "$folder" --frames none -o "$folder/mem.json" || { verdict 1 "memwalk_for_stingify_$name"; return; }
	"$STINGIFY" -p "$folder" "$folder/mem.json" > "$folder/patch" 2> "$folder/refused"
	{ cat "$folder/patch"; sed "s|$folder|FOLDER|g" "$folder/refused"; } > "$ACTUAL/stingify_$name.patch"
	golden "stingify_$name.patch"
	if ! command -v patch > /dev/null; then skip "stingify_$name" "patch is not installed (setup/install test)"; return; fi
	stand_in_header "$folder/mem.json" > "$folder/stingy_gen.h"
	patch -s -p1 -d "$folder/src" < "$folder/patch"
	verdict $? "patch_of_${name}_applies"
	for source; do
		"${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O2 -I"$folder" -I../include -c -o "$folder/out.o" "$folder/src/$source"
		verdict $? "patched_${name}_${source%.c}_compiles_without_a_warning"
	done
}

# Blocks that a macro of another program's header frees are left alone, because the patch is only
# for this program.
outside() {
	local folder=$SCRATCH/outside
	mkdir -p "$folder/src" "$folder/other"
	echo '#define RELEASE(pointer) do { free(pointer); (pointer) = 0; } while (0)' > "$folder/other/release.h"
	sed 's|#include <stdlib.h>|&\n#include "../other/release.h"|; s|free(c)|RELEASE(c)|' test/rewrites/late_include.c > "$folder/src/outside.c"
	database "$folder" "$folder/src/outside.c"
	"$MEMWALK" -p "$folder" --frames none -o "$folder/mem.json" && "$STINGIFY" -p "$folder" "$folder/mem.json" > "$folder/patch" 2> "$folder/refused"
	[ $? = 1 ] && [ ! -s "$folder/patch" ] && grep -q 'conn is left alone: outside.c:[0-9]*: the macro around the call lies outside of' "$folder/refused"
	verdict $? a_macro_of_another_program_is_left_alone
}

# A call of free through a pointer may get any object.
unknown_by_pointer() {
	local folder=$SCRATCH/by_pointer
	mkdir -p "$folder/src"
	sed 's/^struct conn/static void (*release)(void *) = free;\n&/; s/free(text)/release(text)/' test/rewrites/unknown_free.c > "$folder/src/by_pointer.c"
	database "$folder" "$folder/src/by_pointer.c"
	"$MEMWALK" -p "$folder" --frames none -o "$folder/mem.json" && "$STINGIFY" -p "$folder" "$folder/mem.json" > "$folder/patch" 2> "$folder/refused"
	[ $? = 1 ] && [ ! -s "$folder/patch" ] && grep -q 'conn is left alone: by_pointer.c:[0-9]*: free is called through a pointer here, and what it gets' "$folder/refused"
	verdict $? what_is_freed_unseen_through_a_pointer_may_be_any_object
}

stingify_errors() {
	database "$SCRATCH/stingify" enum.c
	refused_by_stingify() { # NAME PATTERN ARGUMENT...
		local name=$1 pattern=$2
		shift 2
		timeout 60 "$STINGIFY" "$@" > "$SCRATCH/out" 2> "$SCRATCH/err"
		local got=$?
		{ [ $got = 1 ] || [ $got = 2 ]; } && [ ! -s "$SCRATCH/out" ] && grep -q -- "$pattern" "$SCRATCH/err"
		verdict $? "$name"
	}
	echo '{' > "$SCRATCH/bad.json"
	echo '{"memwalk": 1, "objects": [{"id": "a b"}], "shared_objects": []}' > "$SCRATCH/odd.json"
	"$MEMWALK" -p "$SCRATCH/stingify" --frames none -o "$SCRATCH/good.json"
	sed 's/"line": 28,/"line": 29,/' "$SCRATCH/good.json" > "$SCRATCH/stale.json"
	refused_by_stingify stingify_without_arguments_is_wrong_usage 'usage: stingify -p BUILD mem.json'
	refused_by_stingify stingify_says_how_to_make_mem_json 'memwalk -p BUILD -o' -p "$SCRATCH/stingify" "$SCRATCH/no.json"
	refused_by_stingify stingify_refuses_broken_json 'bad.json: ' -p "$SCRATCH/stingify" "$SCRATCH/bad.json"
	refused_by_stingify stingify_refuses_other_json 'this is not what memwalk writes' -p "$SCRATCH/stingify" "$SCRATCH/stingify/compile_commands.json"
	refused_by_stingify stingify_wants_two_names_to_replace 'is not OLD=NEW' -p "$SCRATCH/stingify" --replace xcalloc "$SCRATCH/good.json"
	refused_by_stingify stingify_refuses_ids_that_are_no_identifiers 'Run memwalk again' -p "$SCRATCH/stingify" "$SCRATCH/odd.json"
	refused_by_stingify stingify_names_objects_that_do_not_exist 'has no object `nothing`' -p "$SCRATCH/stingify" --objects nothing "$SCRATCH/good.json"
	refused_by_stingify stingify_sees_that_the_source_changed 'has the source changed? Run memwalk again' -p "$SCRATCH/stingify" --objects conn "$SCRATCH/stale.json"
}

stingify() {
	local source name
	for source in test/programs/{enum,define,realloc,function_pointer,if_chain,wrapper,atoms,macro_states,union,two_requests,through_argument}.c test/rewrites/*.c; do
		name=stingify_$(basename "$source" .c)
		! wanted "$name" || part "$name" rewritten "$source"
	done
	# Wrappers in a separate unit, declared in a header.
	! wanted stingify_units || part stingify_units rewritten_units units memory.c server.c
	# An inline function that a stage and the start-up use.
	! wanted stingify_inline || part stingify_inline rewritten_units inline config.c server.c
	# Headers under conditions, after what they need, and text that is included in the middle of a declaration.
	! wanted stingify_headers || part stingify_headers rewritten_units headers server.c
	! wanted stingify_outside || part stingify_outside outside
	! wanted stingify_by_pointer || part stingify_by_pointer unknown_by_pointer
	! wanted stingify_errors || part stingify_errors stingify_errors
}
