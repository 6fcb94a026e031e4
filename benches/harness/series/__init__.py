"""What scale.py grows, a module for each kind of thing; `catalogue` lists all series."""
