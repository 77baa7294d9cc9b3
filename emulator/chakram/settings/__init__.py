"""What all files of settings share: bounded YAML, quantities, located mistakes."""
