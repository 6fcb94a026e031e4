"""What run.py measures: each scenario makes one table."""
