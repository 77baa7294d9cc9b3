"""The experiment file: its model, its checks, its JSON Schema."""
