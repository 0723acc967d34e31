"""Reads what DumpLogSegments --offsets-decoder printed: committed positions only move on.

Usage: committed_in_order.py TOPIC FILE...; each file is one partition of the offsets topic, from its start.
"""

import json
import re
import sys

COMMIT = re.compile(r'key: (\{"type":"1".*?\}\}) payload: (.*)$')

topic, files = sys.argv[1], sys.argv[2:]
highest = {}
rows = 0
for file in files:
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = COMMIT.search(line)
            if not found or "<NULL>" in found[2]:
                continue
            key = json.loads(found[1])["data"]
            if key["topic"] != topic:
                continue
            offset = json.loads(found[2])["data"]["offset"]
            of = (key["group"], key["partition"])
            before = highest.get(of, 0)
            assert offset >= before, f"{file}: {of} moved back from {before} to {offset}"
            highest[of] = offset
            rows += 1
assert rows > 0, "there are no commits"
print(f"{rows} commits of {len(highest)} positions in order")
