#!/bin/sh
# Stock lighttpd never exceeds memwalk's bounds at run time. usage: test/sound.sh BUILD SCRATCH; 1:
# it does, or no server
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
scratch=$2
sound=$here/../../../tools/test/sound
# The frames that are reported are those of the program that runs; with frame pointers the trace sees who called ck_calloc.
if [ ! -f "$build/traced/built" ] || [ "$build/applied" -nt "$build/traced/built" ]; then
  rm -rf "$build/traced"
  cp -a "$build/stock" "$build/traced"
  find "$build/traced/src" -name '*.o' -delete
  rm -f "$build/traced/src/lighttpd" "$build/traced/built"
  make -C "$build/traced/src" -j"${JOBS:-1}" lighttpd CFLAGS='-O1 -g -w -fno-pie -fno-omit-frame-pointer -fstack-usage' LDFLAGS=-no-pie > "$build/traced/make.log" 2>&1 || { tail -n 5 "$build/traced/make.log"; exit 1; }
  touch "$build/traced/built"
fi
sed "s|$build/stock|$build/traced|g" "$build/stock/compile_commands.json" > "$build/traced/compile_commands.json"
"${CC:-gcc}" -O1 -fno-omit-frame-pointer -shared -fPIC -o "$scratch/trace.so" "$sound/trace.c" -ldl
"$here/../../../tools/build/memwalk/memwalk" -p "$build/traced" --config "$here/../stingy.toml" --frames su -o "$scratch/mem.json"
python3 "$here/sound.py" "$build/traced/src/lighttpd" "$scratch/trace.so" "$scratch/trace"
python3 "$sound/bounds.py" "$scratch/trace" "$build/traced/src/lighttpd" "$scratch/mem.json" 8
