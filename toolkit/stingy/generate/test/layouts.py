"""Random globals, sizes and options: stack, globals and regions of the generated map lie in it side by side, and every global that
is reported as placed has its line in the linker script, within what is kept free. usage: layouts.py STINGYGEN MEM.JSON COUNT"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile


def altered(program, draw):
    stages = [stage["name"] for stage in program["stages"]]
    program["globals"] = [{"name": draw.choice(["", f"f{number}."]) + f"g{number}", "bytes": draw.choice([1, 4, 24, 63, 64, 300, 5000]), "align": draw.choice([1, 4, 8, 16, 64]),
                           "at": {"file": "a.c", "line": 1}, "is_written": draw.random() < 0.5, "stages": draw.sample(stages, draw.randrange(len(stages) + 1))}
                          for number in range(draw.randrange(20))]
    for stage in program["stages"]:
        stage["stack"]["bytes"] = draw.randrange(1, 30000)
    return program


def number(text, name):
    return int(re.search(rf"\.{name} = (\d+)", text).group(1))


def faults(folder, said, program, l2, share):
    with open(f"{folder}/stingy_gen.c", encoding="ascii") as file:
        text = file.read()
    stack, kept, cache = (number(text, f"{name}_bytes") for name in ("stack", "globals", "cache"))
    spans = [(0, stack), (stack, stack + kept)]
    for offset, slot, slots in re.findall(r"\.offset_bytes = (\d+), \.slot_bytes = (\d+), \.slots = (\d+)", text):
        spans.append((int(offset), int(offset) + int(slot) * int(slots)))
    spans.sort()
    for (_, end), (begin, _) in zip(spans, spans[1:]):
        if begin < end:
            yield f"{spans} overlap"
    if spans[-1][1] > cache or cache > l2 * share // 100 or stack % 4096:
        yield f"{spans} leave the cache slab of {cache} bytes"
    found = re.search(r"bytes of globals: (.*);", said)
    placed = [word.split()[0] for word in found.group(1).split(", ")] if found else []
    script = open(f"{folder}/stingy_globals.ld", encoding="ascii").read() if os.path.exists(f"{folder}/stingy_globals.ld") else ""
    lines = [line for line in script.splitlines() if line.startswith("\t\t*(")]
    known = {one["name"]: one for one in program["globals"]}
    if len(lines) != len(placed) or any(f".data.{name.split('.')[-1]}" not in script for name in placed):
        yield f"{placed} are not what the script has"
    if any(not known[name]["stages"] for name in placed):
        yield "a global that no stage touches is placed"
    if sum(known[name]["bytes"] for name in placed) > kept:
        yield f"{placed} are more than {kept} bytes"


def main():
    tool, source, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    draw = random.Random(7)
    accepted = 0
    for turn in range(count):
        with open(source, encoding="utf-8") as file:
            program = altered(json.load(file), draw)
        l2, share = draw.choice([128, 512, 2048]) << 10, draw.choice([30, 50, 100])
        options = ["--l2", str(l2), "--share", f"{share}%", "--layout", draw.choice(["pool", "frame"]), "--globals", draw.choice(["auto", "100", "4096", "20000"]),
                   "--stack", draw.choice(["auto", "1", "8192"])]
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/mem.json", "w", encoding="utf-8") as file:
                json.dump(program, file)
            ran = subprocess.run([tool, f"{folder}/mem.json", "-o", folder, *options], capture_output=True, text=True, timeout=60, check=False)
            if ran.returncode == 1 and ("raise --l2" in ran.stderr):
                continue
            accepted += 1
            wrong = [ran.stderr] if ran.returncode else list(faults(folder, ran.stdout, program, l2, share))
            if wrong:
                print(f"map {turn} ({' '.join(options)}): {wrong[0]}")
                return 1
    print(f"{accepted} of {count} random maps taken")
    return 0 if accepted > count // 2 else 1


sys.exit(main())
