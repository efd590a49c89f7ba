"""Tasks: a model and a loss as functions of flat vectors, and the fast ways to compute them."""
