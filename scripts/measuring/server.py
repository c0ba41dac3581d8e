"""Servers on loopback: their processes, ports, CPU time and memory."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROXY_CORE, LOAD_CORE = 0, 1
# In seconds. A program under valgrind starts slowly.
START_TIMEOUT = 120


class Server:
    """A process with its children that listens on `port`, in a directory of its own, which is removed at the end."""

    def __init__(self, scratch, core=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{type(self).__name__.lower()}-", dir=scratch))
        self.directory.chmod(0o755)
        self.output = self.directory / "output"
        self.port = free_port()
        self.core = core
        self.process = None

    def command(self):
        """Writes the configuration. Returns the command that serves it."""
        raise NotImplementedError

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, _, error, *__):
        self.kill()
        if isinstance(error, Exception):
            sys.stderr.write(self.output.read_text(errors="replace"))
        shutil.rmtree(self.directory)

    def start(self):
        command = [*pinned(self.core), *map(str, self.command())]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + START_TIMEOUT
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.01)
        self.kill()
        raise SystemExit(f"{' '.join(command)} does not serve:\n{self.output.read_text(errors='replace')}")

    def stop(self):
        """Ends the process in order."""
        self.process.terminate()
        self.process.wait(60)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def processes(self):
        """Returns the process and all that descend from it."""
        found = [self.process.pid]
        for process in found:
            for task in pathlib.Path(f"/proc/{process}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        return found

    def cpu_time(self):
        """Returns the CPU time of all processes in seconds, with that of threads that have ended."""
        return sum(time.clock_gettime_ns(cpu_clock(process)) for process in self.processes()) / 1e9

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def memory(self):
        """Returns the resident bytes of all processes, in which shared pages count once."""
        files = [pathlib.Path(f"/proc/{process}/smaps_rollup").read_text() for process in self.processes()]
        return sum(int(text.partition("\nPss:")[2].split()[0]) for text in files) * 1024


def cpu_clock(process):
    """Returns the clock of a process's CPU time, as `clock_getcpuclockid` of the C library does, which Python lacks."""
    return ~process << 3 | 2


def pinned(core):
    """Returns the start of a command that runs on one core; nothing for None."""
    return [] if core is None else ["taskset", "-c", str(core)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
