"""Random experiments with planted causes, and a judge of their diagnoses.

``python -m tests.diagnosis --world virtual --seeds 1000:1100`` draws experiments,
simulates them, asks ``chakram why --json`` what the time was lost by, and compares its
answer with what was planted.  The judge knows the plant only: neither the experiment's
``faults`` nor any record that the verb reads has a part in what is right.
"""
