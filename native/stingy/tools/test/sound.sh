# What a real server does is never more than memwalk's bounds: the stack's watermark of memcached's threads, and the sizes of
# its allocations. Sourced by run after servers.sh.
sound_memcached() {
	local folder out=$SCRATCH/memcached-trace file
	folder=$(ls -d "$SOURCES"/memcached-[0-9]*/ 2> /dev/null)
	[ -n "$folder" ] && [ -f "$folder/database/compile_commands.json" ] || { skip sound_memcached "there is no configured source of memcached (see above)"; return; }
	folder=${folder%/}
	command -v addr2line > /dev/null || { skip sound_memcached "addr2line is not installed (Debian's binutils)"; return; }
	mkdir -p "$out"
	if [ ! -x "$folder/traced" ]; then
		# The frames that are reported are those of the program that runs.
		(cd "$folder" && printf '%s\n' $memcached_files | xargs -P 2 -I @ "${CC:-cc}" -O2 -g -fno-pie -w -fstack-usage -DHAVE_CONFIG_H -DNDEBUG -I. -pthread -c -o @.o @.c &&
			"${CC:-cc}" -no-pie -pthread -o traced $(printf '%s.o ' $memcached_files) -levent) > "$out/log" 2>&1 || { skip sound_memcached "memcached cannot be built here: $(tail -n 1 "$out/log")"; return; }
	fi
	"${CC:-cc}" -O1 -shared -fPIC -o "$out/trace.so" test/sound/trace.c -ldl || { verdict 1 the_trace_library_compiles; return; }
	"$MEMWALK" -p "$folder/database" --config test/servers/memcached.toml --frames su -o "$out/mem.json" || { verdict 1 memwalk_reads_memcached_with_frames; return; }
	timeout 120 python3 test/sound/memcached.py "$folder/traced" "$out/trace.so" "$out/mem.json"
	verdict $? memcached_stays_within_the_bounds
}
if wanted sound_memcached; then sound_memcached; fi
