#!/bin/sh
# Ends the server whose process id is in the file `pid`, if there is one, and starts `$@` in its place.
set -eu
if [ -e pid ]; then
    old=$(cat pid)
    kill "$old"
    # An ended process may wait for its parent, without its ports and files.
    while grep -q '^State:[[:space:]]*[^ZX]' "/proc/$old/status" 2>/dev/null; do sleep 0.05; done
fi
"$@" >log 2>&1 </dev/null &
echo $! >pid
