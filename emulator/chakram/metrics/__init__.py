"""Prometheus metrics of a run: catalog, state, exporter and backfill."""
