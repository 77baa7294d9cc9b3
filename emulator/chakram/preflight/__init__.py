"""Tests of a fabric before a run: who is tested when, and what comes of it. Pure."""
