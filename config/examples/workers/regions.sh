#!/bin/sh
# A worker: it reads questions in lines of JSON and answers each in a line. See docs/workers.md.
set -eu

# What takes its time is done once.
zone=a

while IFS= read -r question; do
  printf '%s\n' "$question" | jq -c --arg zone "$zone" '
    { id } + (.request.input.parameters.regions as $regions
      | if ($regions | type) == "array"
        then { output: [$regions[] | { region: ., zone: $zone }] }
        else { error: "regions: a list, please", code: "invalid_input" }
        end)'
done
