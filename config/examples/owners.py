"""Reads tenants on stdin (`items`), and prints them with who owns their cluster. For pipeline.yaml.

Asked without items, it prints the clusters that it knows.
"""

import json
import sys

OWNERS = {"eu-1": "team-alpha", "us-1": "team-beta"}

request = json.load(sys.stdin)
if "items" not in request:
    answer = [{"cluster": cluster, "labels": {"owner": owner}} for cluster, owner in OWNERS.items()]
else:
    answer = []
    for item in request["items"]:
        owner = OWNERS.get(item["cluster"])
        if owner is None:
            # To standard error: it shows in `appset-gateway call`, and where a run fails.
            print(f"nobody owns {item['cluster']}", file=sys.stderr)
        answer.append({**item, "owner": owner or "nobody"})
print(json.dumps(answer))
