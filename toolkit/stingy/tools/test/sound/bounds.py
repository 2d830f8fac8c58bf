"""Compares a trace of a server with memwalk's bounds: bounds.py TRACE SERVER MEM.JSON LEAST-PLACES

Ends with 1 if a stack was deeper or an allocation larger than its bound, or if the trace has too few places.
"""
import json
import os
import subprocess
import sys

trace, server, memory, least = sys.argv[1:5]
found = json.load(open(memory))
lines = open(trace).read().split("\n")
stacks = [int(line.split()[1]) for line in lines if line.startswith("stack ")]
allocations = [line.split()[1:] for line in lines if line.startswith("alloc ")]
bad = 0
bound = max(stage["stack"]["bytes"] for stage in found["stages"])
is_bound = all(stage["stack"]["is_bound"] for stage in found["stages"])
if not stacks or not allocations:
    print("the trace is empty: the server did not end by itself")
    bad = 1
elif max(stacks) > bound:
    print(f"a thread's stack got {max(stacks)} bytes deep, memwalk's largest is {bound}")
    bad = 1
addresses = [hex(int(address, 16) - 1) for address, _ in allocations]
places = subprocess.run(["addr2line", "-e", server, *addresses], capture_output=True, text=True, check=True).stdout.split("\n")
largest = {}
for place, (_, size) in zip(places, allocations):
    file, _, line = place.split(" ")[0].rpartition(":")
    if line.isdigit():
        key = (os.path.basename(file), int(line))
        largest[key] = max(largest.get(key, 0), int(size))
compared = bounded = 0
for item in found["objects"] + found["shared_objects"]:
    most = item["size"]["max_bytes"]
    for site in item["alloc"] + item["realloc"]:
        size = largest.get((os.path.basename(site["file"]), site["line"]))
        if size is None:
            continue
        compared += 1
        bounded += most is not None
        if most is not None and size > most:
            print(f"{site['file']}:{site['line']}: {size} bytes of {item['id']}, memwalk says at most {most}")
            bad = 1
if compared < int(least) or not bounded:
    print(f"only {compared} places that allocate were seen at run time, {bounded} of them with a bound; the comparison says little")
    bad = 1
print(f"deepest stack {max(stacks, default=0)} of {'at most' if is_bound else 'at least (memwalk names recursion)'} {bound} bytes ({len(stacks)} threads); {compared} places compared, {bounded} with a bound")
sys.exit(bad)
