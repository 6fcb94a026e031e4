from __future__ import annotations


class BenchError(Exception):
    """The run cannot go on, or its figures would mean nothing."""
