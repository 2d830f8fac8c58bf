# Real servers, from Debian's source packages, which this repository does not contain. The report
# without stack frames, whose bytes depend on the compiler, is a golden: the whole one for
# memcached, a brief one for the larger servers. nginx, lighttpd and the trace of memcached belong
# to the long run. The short run has the trace of tux, and toolkit/stingy/servers/lighttpd reads
# lighttpd. Sourced by run.
SOURCES=${SOURCES:-$TOOLS/../../../target/sources}
SERVERS=$TOOLS/$BUILD/servers

# server NAME VERSION PREPARE-FUNCTION [upstream]
server() {
	local name=$1 version=$2 prepare=$3 folder=$SERVERS/$1 source
	command -v python3 > /dev/null || { skip "server_$name" "python3 is not installed (setup/install test)"; return; }
	if [ ! -f "$folder/.is_configured" ]; then
		source=$("$TOOLS/../source" "$name" "$SOURCES" ${4:+"$4"} 2> "$SCRATCH/why") || { skip "server_$name" "$(tail -n 1 "$SCRATCH/why")"; return; }
		if [ "${source##*-}" != "$version" ]; then skip "server_$name" "the goldens are of version $version, here is ${source##*-}"; return; fi
		rm -rf "$folder"
		mkdir -p "$SERVERS"
		cp -a "$source" "$folder"
		(cd "$folder" && "$prepare") > "$SCRATCH/log" 2>&1 || { skip "server_$name" "it cannot be configured here: $(tail -n 1 "$SCRATCH/log")"; return; }
		touch "$folder/.is_configured"
	fi
	if ! "$MEMWALK" -p "$folder/database" --config "test/servers/$name.toml" --frames none --caches 48,2048,32768 -o "$ACTUAL/server_$name.json" --report > "$ACTUAL/server_$name.txt" 2> "$SCRATCH/err"; then
		head -5 "$SCRATCH/err"
		verdict 1 "memwalk_reads_$name"
		return
	fi
	if [ "$name" = "$(either memcached nginx)" ]; then
		shuffled 2 -p "$folder/database" --config "test/servers/$name.toml" -o "$SCRATCH/again.json" && diff "$ACTUAL/server_$name.json" "$SCRATCH/again.json" | head -20 && cmp -s "$ACTUAL/server_$name.json" "$SCRATCH/again.json"
		verdict $? "output_of_${name}_is_reproducible"
	fi
	[ "$name" = memcached ] || { awk -f test/servers/brief.awk "$ACTUAL/server_$name.txt" > "$SCRATCH/brief" && mv "$SCRATCH/brief" "$ACTUAL/server_$name.txt"; }
	golden "server_$name.txt"
	if python3 -c 'import jsonschema' 2> /dev/null; then python3 test/validate.py ../schema/memwalk.schema.json "$ACTUAL/server_$name.json"; verdict $? "output_of_${name}_fits_the_schema"; fi
}

memcached_files='assoc authfile base64 bipbuffer cache crawler crc32c daemon extstore hash items itoa_ljust jenkins_hash logger memcached murmur3_hash proto_bin proto_text restart slab_automove slab_automove_extstore slabs stats_prefix storage thread util'
prepare_memcached() {
	./configure --disable-docs --disable-dependency-tracking && python3 "$TOOLS/test/servers/database.py" "$PWD/database" "$PWD" -O2 -DHAVE_CONFIG_H -DNDEBUG -I. -pthread -- $(printf '%s.c ' $memcached_files)
}
lighttpd_files='base64 buffer burl log http_header http_kv keyvalue chunk http_chunk fdevent fdevent_fdnode gw_backend stat_cache http_etag array algo_md5 algo_sha1 algo_splaytree algo_xxhash configfile-glue http-header-glue http_cgi http_date request sock_addr rand fdlog_maint fdlog sys-setjmp ck server response connections h2 reqpool sock_addr_cache fdevent_impl http_range network network_write data_config configfile configparser mod_rewrite mod_redirect mod_access mod_alias mod_indexfile mod_staticfile mod_setenv mod_expire mod_simple_vhost mod_evhost mod_fastcgi mod_scgi plugin'
prepare_lighttpd() {
	./configure --without-pcre2 --without-pcre --without-zlib --without-brotli --without-zstd --without-bzip2 --disable-dependency-tracking && touch src/versionstamp.h &&
		(cd src && ls $(printf '%s.c ' $lighttpd_files) ls-hpack/lshpack.c > /dev/null && python3 "$TOOLS/test/servers/database.py" "$PWD/../database" "$PWD" -O2 -DHAVE_CONFIG_H -DHAVE_VERSION_H '-DLIBRARY_DIR="/usr/lib"' '-DSBIN_DIR="/sbin"' -D_GNU_SOURCE -I.. -I. -- $(printf '%s.c ' $lighttpd_files) ls-hpack/lshpack.c)
}
# The mirror may lack the newest patches of a security update; then nginx is built without them.
# Only modules of a file server are built, and no library is needed that a machine may lack.
nginx_without='pcre http_charset_module http_gzip_module http_ssi_module http_userid_module http_access_module http_auth_basic_module http_mirror_module http_autoindex_module http_geo_module http_map_module http_split_clients_module http_referer_module http_rewrite_module http_proxy_module http_fastcgi_module http_uwsgi_module http_scgi_module http_grpc_module http_memcached_module http_limit_conn_module http_limit_req_module http_empty_gif_module http_browser_module http_upstream_hash_module http_upstream_ip_hash_module http_upstream_least_conn_module http_upstream_random_module http_upstream_keepalive_module http_upstream_zone_module http-cache'
prepare_nginx() {
	./configure $(printf -- '--without-%s ' $nginx_without) &&
		python3 "$TOOLS/test/servers/database.py" "$PWD/database" "$PWD" -O -Isrc/core -Isrc/event -Isrc/event/modules -Isrc/os/unix -Iobjs -Isrc/http -Isrc/http/modules -- $(grep -oE '^\s+(src/[a-z0-9_/]*|objs/ngx_modules)\.c' objs/Makefile | sort -u)
}

# A real server stays within memwalk's bounds: the stack depth of memcached's threads, and the sizes
# of its allocations.
sound_memcached() {
	local folder=$SERVERS/memcached
	command -v addr2line > /dev/null || { skip sound_memcached "addr2line is not installed (Debian's binutils)"; return; }
	if [ ! -x "$folder/traced" ]; then
		# -fstack-usage reports the frames of the program that runs.
		(cd "$folder" && printf '%s\n' $memcached_files | xargs -P 2 -I @ "${CC:-cc}" -O2 -g -fno-pie -w -fstack-usage -DHAVE_CONFIG_H -DNDEBUG -I. -pthread -c -o @.o @.c &&
			"${CC:-cc}" -no-pie -pthread -o traced $(printf '%s.o ' $memcached_files) -levent) > "$SCRATCH/log" 2>&1 || { skip sound_memcached "memcached cannot be built here: $(tail -n 1 "$SCRATCH/log")"; return; }
	fi
	"${CC:-cc}" -O1 -shared -fPIC -o "$SCRATCH/trace.so" test/sound/trace.c -ldl || { verdict 1 the_trace_library_compiles; return; }
	"$MEMWALK" -p "$folder/database" --config test/servers/memcached.toml --frames su -o "$SCRATCH/mem.json" || { verdict 1 memwalk_reads_memcached_with_frames; return; }
	timeout 300 python3 test/sound/memcached.py "$folder/traced" "$SCRATCH/trace.so" "$SCRATCH/trace" &&
		python3 test/sound/bounds.py "$SCRATCH/trace" "$folder/traced" "$SCRATCH/mem.json" 3
	verdict $? memcached_stays_within_the_bounds
}

# tux never exceeds memwalk's bounds.
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

memcached() {
	! wanted server_memcached || server memcached 1.6.18 prepare_memcached
	[ -f "$SERVERS/memcached/.is_configured" ] && [ -n "$(either '' long)" ] || return 0
	! wanted sound_memcached || sound_memcached
}

servers() {
	part server_memcached memcached
	! wanted sound_tux || part sound_tux sound_tux
	[ -z "$(either '' long)" ] || ! wanted server_nginx || part server_nginx server nginx 1.22.1 prepare_nginx upstream
	[ -z "$(either '' long)" ] || ! wanted server_lighttpd || part server_lighttpd server lighttpd 1.4.69 prepare_lighttpd
}
