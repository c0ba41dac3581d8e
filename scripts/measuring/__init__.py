"""Subcommands of scripts/measure, one module each: `add_arguments` declares the options, `run` measures and prints.

server.py, programs.py and load.py have what several need.
"""
