"""What people look at: tables and progress in the terminal, and the page of a run."""
