"""The chakram command, one module per verb."""
