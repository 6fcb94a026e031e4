#!/bin/sh
# Prints the parameter sets: one Application each. PARAM_ENV is the input parameter `env`.
set -eu
printf '[{"name": "shop", "env": "%s"}, {"name": "blog", "env": "%s"}]\n' "$PARAM_ENV" "$PARAM_ENV"
