# Every kind of wrapper in every kind of macro (wrappers.py): the objects that stingify leaves alone
# are a golden, and the server behaves with dirty slots as before. Runs once with the functions that
# stingify writes, and once with those that --replace names. Sourced by run.

# wrapped NAME OPTION...: OPTION is for stingify
wrapped() {
	local name=$1 folder=$SCRATCH/$1 wrong= number stock patched
	shift
	command -v python3 > /dev/null && command -v patch > /dev/null || { skip "$name" "python3 or patch is not installed (setup/install test)"; return; }
	mkdir -p "$folder/src"
	python3 test/wrappers.py > "$folder/src/wrappers.c"
	cp "$folder/src/wrappers.c" "$folder/stock.c"
	database "$folder" "$folder/src/wrappers.c"
	"$MEMWALK" -p "$folder" --frames none -o "$folder/mem.json" && "$STINGYGEN" "$folder/mem.json" -o "$folder/new/gen" --l2 1M --default-bytes 64 --requests 4 > "$folder/said" 2>&1 || { cat "$folder/said"; verdict 1 "${name}_are_read"; return; }
	"$STINGIFY" -p "$folder" "$@" "$folder/mem.json" > "$folder/patch" 2> "$folder/refused"
	sed "s|$folder|FOLDER|g" "$folder/refused" > "$ACTUAL/$name.refused"
	golden wrappers.refused "$name.refused"
	patch -s -p1 -d "$folder/src" < "$folder/patch"
	verdict $? "patch_of_${name}_applies"
	[ $# = 0 ] || cp test/wrappers_replaced.h "$folder/new/gen/stingy_gen_replaced.h"
	local flags="-std=gnu11 -Wall -Wextra -Werror -O1 -g1" library=../runtime/build/libstingy.a sanitize=
	if [ -n "$(either '' long)" ] && [ -f ../runtime/build/asan/libstingy.a ]; then sanitize="-fsanitize=address,undefined -I../runtime/src" library=../runtime/build/asan/libstingy.a; fi
	# shellcheck disable=SC2086 # lists of options
	"${CC:-cc}" $flags $sanitize -o "$folder/stock" "$folder/stock.c" && "${CC:-cc}" $flags $sanitize -I../include -I"$folder/new/gen" -o "$folder/patched" "$folder/src/wrappers.c" "$folder/new/gen/stingy_gen.c" $library -pthread
	verdict $? "patched_${name}_compile_without_a_warning"
	export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path="$folder/asan" UBSAN_OPTIONS=halt_on_error=1 STINGY_DIRTY=1 STINGY_STATS="$folder/stats"
	"$folder/stock" > "$folder/stock.out" && "$folder/patched" > "$folder/patched.out" && { [ $# != 0 ] || diff "$folder/stock.out" "$folder/patched.out"; } && grep -q '"in_cache_slab":[1-9]' "$folder/stats" && [ -z "$(ls "$folder"/asan.* 2> /dev/null)" ]
	verdict $? "${name}_get_what_they_expect_of_dirty_slots"
	cat "$folder"/patched.out "$folder"/asan.* 2> /dev/null | grep -v xzalloc | head -20
	for number in 0 1 2 3 4 5 6 7 8 9; do
		"$folder/stock" $number 2> "$folder/stock.err"
		stock=$?
		"$folder/patched" $number 2> "$folder/patched.err"
		patched=$?
		{ [ $stock = $patched ] && [ $stock -ge 3 ] && [ $stock -le 5 ] && diff <(grep -v Sanitizer "$folder/stock.err") <(grep -v Sanitizer "$folder/patched.err"); } || wrong="$wrong $number:$stock:$patched"
	done
	[ -z "$wrong" ]
	verdict $? "${name}_end_as_before_without_memory$wrong"
}

wrappers() {
	STINGYGEN=$PWD/../generate/build/stingygen
	build -C ../generate BUILD=build all
	build -C ../runtime BUILD=build all $(either '' asan)
	! wanted wrappers || part wrappers wrapped wrappers
	! wanted wrappers_replaced || part wrappers_replaced wrapped wrappers_replaced --header stingy_gen_replaced.h --replace zalloc=zalloc_replaced,xzalloc=xzalloc_replaced
}
