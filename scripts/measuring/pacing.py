"""Measure quota usage and the evenness of admit shares by simulation; print the rows of the table of docs/PACING.md.

usage: scripts/measure pacing

Builds and runs the simulation of the integration tests.
"""
import subprocess

from .server import ROOT

COMMAND = ["cargo", "test", "--release", "--test", "integration", "pacing_simulation::measured"]


def add_arguments(_):
    """It has no options."""


def run(_):
    command = [*COMMAND, "--", "--nocapture", "--test-threads", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as test:
        for line in test.stdout:
            # The first row follows the name of its test.
            name, bar, row = line.partition("|")
            if bar and (not name or name.startswith("test ")):
                print(bar + row, end="", flush=True)
    return test.returncode
