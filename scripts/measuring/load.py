"""Load generators, on the core that is not the proxy's."""
import re
import subprocess

from .server import LOAD_CORE, pinned


def cpu_time_per_request(server, load):
    """Returns the CPU time in seconds that a server takes for each response that `load` counts."""
    started = server.cpu_time()
    responses = load()
    return (server.cpu_time() - started) / responses


def wrk(url, connections, seconds, *options, are_closed=False, are_refused=False):
    """Returns the number of responses. Connections must be kept, and responses admitted, unless said otherwise."""
    output = run("wrk", "-t1", f"-c{connections}", f"-d{seconds}", *options, url)
    responses, refused = number(r"(\d+) requests in ", output), number(r"Non-2xx or 3xx responses: (\d+)", output)
    assert responses and (are_closed or "Socket errors" not in output), output
    # A limit by the time admits one now and then.
    assert refused > 0.98 * responses if are_refused else not refused, output
    return responses


def h2load(url, connections, streams, seconds, *options):
    """Returns the number of responses, all of which must be admitted."""
    output = run("h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", *options, url)
    assert " 0 failed, 0 errored, 0 timeout" in output and " 0 4xx, 0 5xx" in output, output
    return number(r"(\d+) succeeded", output)


def run(*command):
    return subprocess.run([*pinned(LOAD_CORE), *command], capture_output=True, text=True, check=True).stdout


def number(pattern, output):
    found = re.search(pattern, output)
    return int(found[1]) if found else 0
