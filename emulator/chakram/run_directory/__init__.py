"""The run directory: table schemas, writer, reader, lock and validation."""
