"""What several methods share: attention, bodies and heads, last messages, other losses, diagnostics."""
