"""Measure the error rates of user agent classification; print the table of docs/CLASSIFICATION.md.

usage: cargo build --release && scripts/measure classification [--packages DIR] [--missed FILE]

The labeled lists come from packages of PyPI and npm, which are downloaded and not kept. DIR holds packages that were
downloaded before. --missed writes the misclassified agents to FILE. Uses the standard library only.
"""
import collections
import io
import json
import pathlib
import re
import subprocess
import tarfile
import tempfile
import zipfile

from .server import ROOT

NPM = ("crawler-user-agents", "1.60.0")
PYPI = (("crawlerdetect", "0.4.2"), ("device-detector", "6.5.1"), ("fake-useragent", "2.2.0"))
# Programs that fetch on behalf of a person are neither bots nor people. They have a row of their own.
PROGRAMS = {"podcasting", "feed_reader", "mediaplayer", "mobile_apps"}


def add_arguments(parser):
    parser.add_argument("--packages", type=pathlib.Path)
    parser.add_argument("--missed", type=pathlib.Path)


def run(arguments):
    with tempfile.TemporaryDirectory() as scratch:
        packages = arguments.packages or pathlib.Path(scratch)
        if arguments.packages is None:
            fetch(packages)
        lists = list(labelled(packages))
    missed = []
    print("| list | label | agents | classified as bot | classified as person |")
    print("|---|---|---|---|---|")
    for name, label, agents in lists:
        verdicts = ["person" if kind == "human" else "bot" for kind in kinds(agents)]
        missed += [f"{name}\t{label}\t{agent}" for agent, verdict in zip(agents, verdicts) if label in ("bot", "person") and verdict != label]
        count = collections.Counter(verdicts)
        share = lambda verdict: f"{count[verdict]:,} ({100 * count[verdict] / len(agents):.2f} %)"
        print(f"| {name} | {label} | {len(agents):,} | {share('bot')} | {share('person')} |")
    if arguments.missed:
        arguments.missed.write_text("\n".join(missed) + "\n", encoding="utf-8")


def fetch(into):
    fetch_one = lambda *command: subprocess.run(command, cwd=into, check=True, stdout=subprocess.DEVNULL)
    fetch_one("npm", "pack", "--silent", "@".join(NPM))
    for package in PYPI:
        fetch_one("pip", "download", "--quiet", "--no-deps", "--no-binary", "crawlerdetect", "==".join(package))


def labelled(packages):
    """Yield name, label and user agents of each list."""
    files = {file.name: contents(file) for file in packages.iterdir() if file.is_file()}
    package = lambda start: next(inside for name, inside in files.items() if name.replace("_", "-").startswith(start))
    text = lambda inside, end: next(read for name, read in inside.items() if name.endswith(end))().decode("utf-8", "replace")

    patterns = json.loads(text(package("crawler-user-agents"), "crawler-user-agents.json"))
    yield "crawler-user-agents", "bot", unique(agent for entry in patterns for agent in entry["instances"])
    detect = package("crawlerdetect")
    yield "CrawlerDetect, crawlers", "bot", unique(text(detect, "user_agent/crawlers.txt").splitlines())
    yield "CrawlerDetect, devices", "person", unique(text(detect, "user_agent/devices.txt").splitlines())
    fixtures = collections.defaultdict(list)
    for name, read in package("device-detector").items():
        found = re.search(r"fixtures/upstream/([a-z_]+?)(-\d+)?\.yml$", name)
        if found:
            fixtures[found[1]] += agents_in(read().decode("utf-8"))
    yield "Matomo, bots", "bot", unique(fixtures.pop("bots"))
    programs = [agent for kind in PROGRAMS for agent in fixtures.pop(kind, [])]
    yield "Matomo, devices of all kinds", "person", unique(agent for agents in fixtures.values() for agent in agents)
    yield "Matomo, readers, players and apps", "either", unique(programs)
    browsers = text(package("fake-useragent"), "browsers.jsonl").splitlines()
    yield "fake-useragent", "person", unique(json.loads(line)["useragent"] for line in browsers)


def contents(file):
    if file.name.endswith(".whl"):
        archive = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
        return {name: lambda name=name: archive.read(name) for name in archive.namelist()}
    archive = tarfile.open(file)
    return {member.name: lambda member=member: archive.extractfile(member).read() for member in archive if member.isfile()}


def agents_in(fixture):
    """Yield `user_agent:` of each entry of a YAML file, in any of the three YAML quoting styles."""
    for value in re.findall(r"^\s*-?\s*user_agent: *(.*)$", fixture, re.M):
        if value.startswith("'"):
            yield value[1:].rstrip("'").replace("''", "'")
        elif value.startswith('"'):
            yield re.sub(r"\\(.)", r"\1", value[1:].rstrip('"'))
        else:
            yield value


def unique(agents):
    return [agent for agent in dict.fromkeys(agent.strip() for agent in agents) if agent and "\n" not in agent]


def kinds(agents):
    program = ROOT / "target" / "release" / "tidegate"
    answered = subprocess.run([program, "classify"], input="\n".join(agents).encode() + b"\n", check=True, capture_output=True)
    return [line.split("\t")[0] for line in answered.stdout.decode("utf-8", "replace").splitlines()]
