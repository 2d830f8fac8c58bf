#!/usr/bin/env python3
"""compile_commands.json from the output of `make -n`. usage: database.py FOLDER < LOG > compile_commands.json

FOLDER is where make runs. Reads lines that compile one file (-c); `test -f 'x.c' || echo './'`x.c, as automake writes it, is x.c.
"""

import json
import os
import re
import shlex
import sys

folder = os.path.abspath(sys.argv[1])
commands = []
for line in sys.stdin:
    line = re.sub(r"`test -f '[^']*' \|\| echo '[^']*'`", "", line.strip())
    if " -c " not in line or not re.match(r"(\S*/)?(cc|gcc|clang)\S* ", line):
        continue
    words = shlex.split(line)
    files = [word for word in words if word.endswith(".c")]
    if len(files) == 1:
        commands.append({"directory": folder, "file": files[0], "arguments": words})
if not commands:
    sys.exit("database.py: no line compiles a file")
json.dump(commands, sys.stdout, indent=1)
