"""Known data sets: where their files are, how they are fetched, read or made."""
