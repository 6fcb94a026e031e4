"""What run.py and instructions.py drive: the scenarios, the processes, the client, the tables."""
