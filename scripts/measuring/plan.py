"""Measure what the proposals of `tidegate plan` keep, on their own log and on days that they did not see.

usage: cargo build --release && scripts/measure plan [--limit UNITS] LOG...

Prints one row for each log, plain or gzip, in combined or common format. The limit is the busiest day of the log, or UNITS. For
the last three columns, the policy is planned from all days but the last, and the last day is replayed after them. What is left
over is shown where more is asked for than the limit. Without a log, measures two days of the demo. Uses the standard library
only.
"""
import collections
import gzip
import json
import pathlib
import re
import subprocess
import tempfile

from .server import ROOT

BINARY = ROOT / "target/release/tidegate"
DAY = re.compile(rb"\[(\d\d/\w{3}/\d{4}):")


def add_arguments(parser):
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--limit", type=int)
    parser.add_argument("logs", nargs="*", type=pathlib.Path)


def run(arguments):
    options = ["--limit", str(arguments.limit)] if arguments.limit else []
    print("| log | search engines served | worst hour | people refused | left over | unseen: search | people | left over |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        logs = arguments.logs or [demo_log(arguments.binary, scratch)]
        for log in logs:
            promise = json.loads(tidegate(arguments.binary, "plan", *options, "--json", "-", log))
            shares = ["search_admitted", "search_worst_hour", "people_refused", "left_over"]
            row = [percent(promise[share]) for share in shares] + unseen(arguments.binary, log, options, scratch)
            print(f"| {log.name} | {' | '.join(row)} |")


def demo_log(binary, scratch):
    log = scratch / "demo.log"
    tidegate(binary, "demo", "--log", log, "--days", "2")
    return log


def unseen(binary, log, options, scratch):
    """Returns the figures of the last day under a policy from the days before."""
    lines = (gzip.open if log.suffix == ".gz" else open)(log, "rb").readlines()
    days = [match[1] if (match := DAY.search(line)) else None for line in lines]
    last = next((day for day in reversed(days) if day), None)
    first_line = days.index(last) if last else 0
    if first_line == 0:
        return ["-"] * 3
    earlier, policy = scratch / "earlier.log", scratch / "policy.yaml"
    earlier.write_bytes(b"".join(lines[:first_line]))
    policy.write_text(tidegate(binary, "plan", *options, earlier), encoding="utf-8")
    limit = int(re.search(r"limit: (\d+)", policy.read_text(encoding="utf-8"))[1])
    verdicts = map(json.loads, tidegate(binary, "replay", "--config", policy, "--verdicts", "-", log).splitlines())
    asked, used, admitted, refused = 0, 0, collections.Counter(), collections.Counter()
    for verdict in verdicts:
        cost = sum(verdict["cost"].values())
        if verdict["line"] <= first_line or not cost:
            continue
        asked += cost
        if verdict["verdict"] == "admitted":
            used += cost
            admitted[verdict["class"]] += 1
        # A client that uses more than a person needs is none.
        elif verdict["reason"] != "client_share":
            refused[verdict["class"]] += 1
    share = lambda part, rest: part / (part + rest) if part + rest else None
    search, people = share(admitted["search"], refused["search"]), share(refused["person"], admitted["person"])
    return [percent(search), percent(people), percent(1 - used / limit if asked > limit else None)]


def percent(ratio):
    return "-" if ratio is None else f"{100 * ratio:.1f} %"


def tidegate(binary, *arguments):
    return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout
