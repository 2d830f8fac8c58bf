"""Alters an input in N ways and runs a program on each: mutate.py N INPUT COMMAND... (@ stands for the
altered file).

For any input, the program ends with 0, or with 1 or 2 and a sentence; it never crashes, hangs or fills
the output. The ways come from a fixed seed, so a failure can be repeated. Failed inputs are kept, and
their names printed.

"""
import random
import re
import shutil
import subprocess
import sys
import tempfile

NUMBERS = ["-1", "0", "1", "63", "64", "65536", "4294967296", "9223372036854775807", "18446744073709551616", "1e309", "0.5"]
TOKENS = ['"', "{", "}", "[", "]", "[[", "]]", ",", ":", "=", "\n", "null", "true", '""', "[]", "{}", '"\\ud800"', "\0", "\xff", "*", ".", "'", "#"]


def altered(text, draw):
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        at = draw.randrange(len(text) + 1)
        end = min(len(text), at + draw.choice([1, 2, 8, 64, 512]))
        kind = draw.randrange(6)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + draw.choice(TOKENS) + text[at:]
        elif kind == 2:
            text = text[:end] + text[at:end] * draw.choice([1, 2, 50]) + text[end:]
        elif kind == 3:
            found = list(re.finditer(r"\b\d+\b", text))
            if found:
                one = draw.choice(found)
                text = text[: one.start()] + draw.choice(NUMBERS) + text[one.end() :]
        elif kind == 4:
            words = list(re.finditer(r'"[^"\n]*"|\b[a-z_]+\b', text))
            if len(words) > 1:
                one, other = draw.choice(words), draw.choice(words)
                text = text[: one.start()] + other.group() + text[one.end() :]
        else:
            text = text[:at]
    return text


def main():
    count, source, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    draw = random.Random(source.rsplit("/", 1)[-1])
    original = open(source, encoding="latin-1").read()
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/altered{source[source.rfind('.'):]}"
        for number in range(count):
            with open(path, "w", encoding="latin-1") as file:
                file.write(altered(original, draw))
            try:
                ran = subprocess.run([path if word == "@" else word for word in command], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
                why = None
                if ran.returncode not in (0, 1, 2):
                    why = f"status {ran.returncode}"
                elif ran.returncode and not ran.stderr.strip():
                    why = "refused without a word"
                elif b"Sanitizer" in ran.stderr or b"runtime error" in ran.stderr:
                    why = "a sanitizer's finding"
                elif len(ran.stderr) > 1 << 16:
                    why = f"{len(ran.stderr)} bytes of messages"
                outcomes[ran.returncode] = outcomes.get(ran.returncode, 0) + 1
            except subprocess.TimeoutExpired:
                ran, why = None, "no end within 60 s"
            if why:
                kept = tempfile.mkstemp(prefix="altered-")[1]
                shutil.copy(path, kept)
                print(f"{command[0]}: input {number} ({kept}): {why}")
                if ran:
                    print(ran.stderr.decode(errors="replace")[-1500:])
                return 1
    print(f"{count} altered inputs: " + ", ".join(f"{n} ended with {status}" for status, n in sorted(outcomes.items())))
    # Inputs that are all refused, or all accepted, test little.
    return 0 if len(outcomes) > 1 else 1


sys.exit(main())
