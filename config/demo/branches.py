#!/usr/bin/env python3
"""A script backend: reads Argo CD's request on stdin and prints a list of parameter sets.

Try it alone:
    echo '{"input":{"parameters":{"prefix":"feature-"}}}' | ./branches.py
"""

import json
import pathlib
import sys

request = json.load(sys.stdin)
prefix = request["input"]["parameters"].get("prefix", "")

index = json.loads((pathlib.Path(__file__).parent / "images/index.json").read_text())
names = [manifest["annotations"]["org.opencontainers.image.ref.name"] for manifest in index["manifests"]]
branches = sorted({name.split(":")[1] for name in names})

json.dump([{"branch": branch} for branch in branches if branch.startswith(prefix)], sys.stdout)
