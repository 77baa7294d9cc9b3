"""Counters that the switches under test report through gNMI and OTLP."""
