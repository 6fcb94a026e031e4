"""What run.py, instructions.py, scale.py and soak.py share.

- `servers`, `gateway_config`, `backing_services`: the processes of a run, their configuration, and what they ask.
- `workload`, `rounds`, `driver`, `checks`, `comparison`: what wrk asks, a run of wrk, turns, checks, and the tables.
- `scenarios`: a module for each topic that run.py measures; `scenarios.catalogue` lists them.
- `counting`, `costs`: what instructions.py counts. `growth`, `asker`, `series`: what scale.py measures.
"""
