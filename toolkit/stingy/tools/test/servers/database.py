"""Writes compile_commands.json: database.py OUT FOLDER FLAG... -- FILE..."""
import json
import os
import sys

out, folder = sys.argv[1:3]
split = sys.argv.index("--")
flags, files = sys.argv[3:split], sys.argv[split + 1 :]
commands = []
for file in files:
    output = os.path.join(folder, os.path.splitext(os.path.basename(file))[0] + ".o")
    commands.append({"directory": folder, "file": file, "arguments": ["cc", *flags, "-c", "-o", output, file]})
os.makedirs(out, exist_ok=True)
json.dump(commands, open(os.path.join(out, "compile_commands.json"), "w"))
