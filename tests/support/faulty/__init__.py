"""A client that raises or is slow, in this process or (with this folder on the path) in those that it starts."""
