"""The engine `ray`: clients of a simulation in actors of a Ray cluster."""
