"""An independent count for the replay tests. Reads a combined log, sorts it by time (stable), and groups requests
of a client that follow each other within GAP seconds. Prints "line connection time" for each request, sorted by
time. Connections are numbered in the order of their first requests.

Usage: group.py LOG GAP WINDOW (exits with an error if a line is more than WINDOW seconds earlier than the
latest before it)

"""
import re
import sys
from datetime import datetime

LINE = re.compile(r'(\S+) \S+ .*?\[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "([A-Za-z_-]+) (\S+)(?: HTTP/[\d.]+)?" (\d{3}) (\d+|-)(?: |$)')

log, gap, window = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
requests = []
latest = float("-inf")
with open(log, encoding="latin-1", newline="\n") as lines:
    for number, text in enumerate(lines, 1):
        match = LINE.match(text)
        if not match:
            continue
        try:
            when = datetime.strptime(match[2], "%d/%b/%Y:%H:%M:%S %z").timestamp()
        except ValueError:
            continue
        latest = max(latest, when)
        requests.append((max(when, latest - window), number, match[1]))
requests.sort(key=lambda request: request[:2])
last, connection_of, count = {}, {}, 0
for when, number, client in requests:
    if client not in last or when - last[client] > gap:
        connection_of[client] = count
        count += 1
    last[client] = when
    print(number, connection_of[client], int(when))
