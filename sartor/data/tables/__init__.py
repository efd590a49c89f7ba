"""The user's own data: tables, their columns and keys, samples that come later."""
