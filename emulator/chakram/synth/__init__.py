"""Made-up traces: models in training and inference, patterns for tests of fabrics."""
