"""Options that are a list of known names."""
import argparse


def names(known):
    """Returns the type of an option: known names, separated by commas."""

    def parse(text):
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown} are not in {list(known)}")
        return chosen

    return parse
