"""The figures to reach. README.md lists them by scenario."""

from __future__ import annotations

# The gateway's CPU time per request, as a multiple of another server's.
TARGET_HIT_RATIO = 1.0
TARGET_MISS_RATIO = 1.35
TARGET_BASELINE_RATIO = 1.05
TARGET_SERVER_RATIO = 1.3

# From the end of a push until Argo CD is told.
TARGET_TOLD_MS = 1000

# A call about many elements that are not known yet: compared with the same requests alone, and in all.
TARGET_ELEMENTS_RATIO = 1.2
TARGET_ELEMENTS_SECONDS = 3.0

TARGET_START_MS = 9.0
TARGET_RESIDENT_MIB = 16.0
# With 10,000 answers of 4 KiB.
TARGET_HELD_MIB = 90.0
TARGET_BINARY_MIB = 24.0
