"""The experiment file: its sections, their types, and checks of their values."""
