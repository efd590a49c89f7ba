"""The five papers: their theorems, their experiments, and the recipes that repeat them."""
