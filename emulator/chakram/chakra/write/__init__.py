"""Writers that turn graphs into trace files."""
