"""What run.py drives: the scenarios, the processes, the client, the tables."""
