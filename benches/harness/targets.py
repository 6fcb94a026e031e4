"""The figures to reach. README.md lists them by scenario."""

from __future__ import annotations

# The gateway's CPU time per request, as a multiple of another server's.
TARGET_HIT_RATIO = 1.0
TARGET_MISS_RATIO = 1.05
TARGET_BASELINE_RATIO = 1.05
TARGET_SERVER_RATIO = 1.25
TARGET_JWT_RATIO = 1.1
TARGET_STORE_RATIO = 1.02
# A hit is at least so many times cheaper than a look-up.
TARGET_TIMES_CHEAPER = 200.0
# What an answer about signed images may cost more than one about unsigned images.
TARGET_SIGNED_US = 3.0

# How much longer a script may take alone than a bare one, and what part of its throughput there is at 8 at once.
TARGET_SCRIPT_TIME = 1.5
TARGET_SCRIPT_THROUGHPUT = 0.97
# How much longer a question to a worker may take than one over a bare pipe.
TARGET_WORKER_TIME = 1.3

# From the end of a push until Argo CD is told.
TARGET_TOLD_MS = 2000
# Requests to a source with hooks, as a part of those with polling.
TARGET_POLLS_RATIO = 0.2
# Calls of others beside a burst of events.
TARGET_BESIDE_MS = 50

# A call about many elements that are not known yet: compared with the same requests alone, and in all.
TARGET_ELEMENTS_RATIO = 1.2
TARGET_ELEMENTS_SECONDS = 3.0

TARGET_START_MS = 8.0
TARGET_RESIDENT_MIB = 14.0
# With 10,000 answers of 4 KiB.
TARGET_HELD_MIB = 90.0
TARGET_BINARY_MIB = 22.0
