"""Users' algorithms: parsers, checks and conversion to transfer lists."""
