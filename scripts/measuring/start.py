"""Measure a start with the first two lines of the README: time to ready, memory at rest, and sizes.

usage: cargo build --release && scripts/measure start [--gateway FILE] [--rounds N]

A cold start reads the program from the disk, as after a boot or on a new machine. Ready is what systemd is told.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

from .server import ROOT, cpu_clock, free_port

TIMEOUT = 60


def add_arguments(parser):
    parser.add_argument("--gateway", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    parser.add_argument("--rounds", type=int, default=15)


def run(options):
    with tempfile.TemporaryDirectory(prefix="measure-start-") as scratch:
        scratch = pathlib.Path(scratch)
        # A copy, of which no other process has pages in memory.
        program = pathlib.Path(shutil.copy2(options.gateway, scratch / "tidegate"))
        (scratch / "tidegate.yaml").write_text(two_lines())
        stripped = scratch / "stripped"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        start(scratch, program)
        cold = [start(scratch, program, is_cold=True)[0] for _ in range(options.rounds)]
        warm, processor, memory = zip(*[start(scratch, program) for _ in range(options.rounds)])
        print(f"program: {mebibytes(program.stat().st_size)}, without symbols {mebibytes(stripped.stat().st_size)}")
        print(f"start to ready: {spread(warm)}, CPU time {spread(processor)}; from the disk {spread(cold)}")
        print(f"resident at rest: {mebibytes(statistics.median(memory))}, {os.cpu_count()} workers")


def two_lines():
    """Returns the first two lines of the first YAML block of the README."""
    _, _, block = (ROOT / "README.md").read_text().partition("```yaml\n")
    return "".join(block.splitlines(keepends=True)[:2])


def start(scratch, program, is_cold=False):
    """Returns the seconds from the start to ready, and the CPU time in seconds and the resident bytes then."""
    if is_cold:
        drop_from_page_cache(program)
    shutil.rmtree(scratch / "state", ignore_errors=True)
    variables = {
        "TIDEGATE__LISTEN": f"127.0.0.1:{free_port()}",
        "TIDEGATE__ADMIN__LISTEN": f"127.0.0.1:{free_port()}",
        "NOTIFY_SOCKET": str(scratch / "notify"),
    }
    with contextlib.suppress(FileNotFoundError):
        (scratch / "notify").unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(variables["NOTIFY_SOCKET"])
        notices.settimeout(TIMEOUT)
        started = time.monotonic()
        process = subprocess.Popen(
            [program, "--config", "tidegate.yaml"], cwd=scratch, env=os.environ | variables, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while b"READY=1" not in notices.recv(4096):
                pass
            seconds = time.monotonic() - started
            processor = time.clock_gettime_ns(cpu_clock(process.pid)) / 1e9
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
    return seconds, processor, int(status.partition("VmRSS:")[2].split()[0]) * 1024


def drop_from_page_cache(path):
    with path.open("rb") as file:
        # Pages that are not written yet stay.
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def spread(seconds):
    return f"{statistics.median(seconds) * 1e3:.0f} ms ({min(seconds) * 1e3:.0f} to {max(seconds) * 1e3:.0f})"


def mebibytes(size):
    return f"{size / 2**20:.1f} MiB"
