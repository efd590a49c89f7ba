"""One run: its recipe, how it is assembled and played, and what it leaves."""
