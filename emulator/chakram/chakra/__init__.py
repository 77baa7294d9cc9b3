"""Reader, linter and writer for Chakra execution traces."""
