"""The gateways that meter calls, each configured as its documentation says."""
import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import subprocess
import time
import urllib.request

from measuring.programs import NginxServer
from measuring.server import Server, free_port

from .calls import COSTS, key

DIRECTORY = pathlib.Path(__file__).parent
LITELLM_AUTH = DIRECTORY / "litellm_auth.py"


class Tidegate(Server):
    label = "Tidegate"
    note = "budget of each key in the state directory, which is the default"
    # Windows begin at multiples of their length, or else with the first call.
    has_aligned_windows = True

    def __init__(self, scratch, setup):
        super().__init__(scratch)
        self.setup = setup
        self.admin_port = free_port()

    def config(self):
        setup = self.setup
        quota = {"limit": setup.limit, "window": {"fixed": f"{setup.window}s"}, "cost_json": "usage.total_tokens"}
        return {
            "listen": f"127.0.0.1:{self.port}",
            "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
            "state_dir": str(self.directory / "state"),
            "origin": f"http://127.0.0.1:{setup.model.port}",
            "api_keys": [
                {"name": name, "class": "customer", "sha256": hashlib.sha256(key(name).encode()).hexdigest()}
                for name in setup.customers
            ],
            "quotas": {"tokens": quota | self.quota()},
            "classes": [
                {"name": "customer", "when": {"api_key": "own"}},
                {"name": "nokey", "block": True, "refuse_with": 401},
            ],
            "routes": [
                {
                    "match": "/v1/**",
                    "stream": True,
                    "cost": {"tokens": {"json": "max_tokens", "per_byte": 0.25, "default": 1000}},
                }
            ],
        } | self.ledger()

    def quota(self):
        return {"per": "api_key"}

    def ledger(self):
        return {}

    def command(self):
        config = self.directory / "tidegate.yaml"
        # JSON is YAML.
        config.write_text(json.dumps(self.config(), indent=1))
        return [self.setup.programs.tidegate, "serve", "--config", config]

    def is_ready(self):
        return is_ok(f"http://127.0.0.1:{self.admin_port}/readyz")


class TidegateRedis(Tidegate):
    label = "Tidegate, Redis"
    note = "budget of each key, shared through Redis"

    def ledger(self):
        return {"ledger": {"redis": {"url": self.setup.redis_url}}}


class LiteLLM(Server):
    label = "LiteLLM"
    note = "tpm_limit of each key by custom auth; counters in memory, which is the default without Redis and a database"
    has_aligned_windows = False

    def __init__(self, scratch, setup):
        super().__init__(scratch)
        self.setup = setup

    def config(self):
        return {
            "model_list": [
                {
                    "model_name": "m",
                    "litellm_params": {
                        "model": "openai/m",
                        "api_base": f"http://127.0.0.1:{self.setup.model.port}/v1",
                        "api_key": "none",
                    },
                }
            ],
            "router_settings": {"num_retries": 0, "disable_cooldowns": True},
            # The master key must be random, and nothing here uses it.
            "general_settings": {
                "custom_auth": "litellm_auth.user_api_key_auth",
                "master_key": f"sk-{secrets.token_hex(32)}",
            } | self.redis(),
        }

    def redis(self):
        return {}

    def command(self):
        (self.directory / "litellm.yaml").write_text(json.dumps(self.config(), indent=1))
        (self.directory / "litellm_auth.py").write_text(LITELLM_AUTH.read_text())
        variables = {
            "LITELLM_RATE_LIMIT_WINDOW_SIZE": self.setup.window,
            "METER_LIMIT": self.setup.limit,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_TELEMETRY": "False",
            "HOME": self.directory,
            "PATH": os.environ["PATH"],
        }
        options = ["--config", "litellm.yaml", "--host", "127.0.0.1", "--port", self.port]
        return ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), self.setup.programs.litellm, *options]

    def is_ready(self):
        return is_ok(f"http://127.0.0.1:{self.port}/health/liveliness")


class LiteLLMRedis(LiteLLM):
    label = "LiteLLM, Redis"
    note = "the same with general_settings.coordination_redis"

    def redis(self):
        return {"coordination_redis": {"host": "127.0.0.1", "port": self.setup.relay.port}}


class Limitador(Server):
    label = "Limitador"
    note = "a gateway around the library 0.14 (its server is not in the registry): reserve, then commit; counters in memory"
    has_aligned_windows = False

    def __init__(self, scratch, setup):
        super().__init__(scratch)
        self.setup = setup

    def command(self):
        origin = f"127.0.0.1:{self.setup.model.port}"
        return [self.setup.programs.limitador, f"127.0.0.1:{self.port}", origin, self.setup.limit, self.setup.window]

    def config(self):
        return {"namespace": "models", "max_value": self.setup.limit, "seconds": self.setup.window, "variables": ["key"]}

    def is_ready(self):
        return True


class LimitadorRedis(Limitador):
    label = "Limitador, Redis"
    note = "the same with RedisStorage"

    def command(self):
        return [*super().command(), self.setup.redis_url]


class Nginx(NginxServer):
    label = "nginx limit_req"
    note = "counts requests at a rate, neither units nor windows: the burst is the limit by the mean cost of a call"

    def __init__(self, scratch, setup):
        super().__init__(scratch)
        self.setup = setup

    def http(self):
        return self.config()

    def config(self):
        burst = self.setup.limit * 2 // sum(COSTS) - 1
        return f"""
  limit_req_zone $http_authorization zone=customers:1m rate=1r/m;
  limit_req_status 429;
  server {{
    listen 127.0.0.1:{self.port};
    location / {{
      limit_req zone=customers burst={burst} nodelay;
      proxy_pass http://127.0.0.1:{self.setup.model.port};
      proxy_buffering off;
    }}
  }}"""

    def is_ready(self):
        return True


PEERS = {
    "tidegate": Tidegate,
    "tidegate-redis": TidegateRedis,
    "litellm": LiteLLM,
    "litellm-redis": LiteLLMRedis,
    "limitador": Limitador,
    "limitador-redis": LimitadorRedis,
    "nginx": Nginx,
}


class Redis(Server):
    """A Redis server that writes each change to a file before it answers."""

    def command(self):
        return ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", self.directory]


def is_ok(url):
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
        return response.status == 200
    return False


def wait_until_ready(gateway, timeout=120):
    deadline = time.monotonic() + timeout
    while not gateway.is_ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"{gateway.label} is not ready:\n{gateway.output.read_text(errors='replace')}")
        time.sleep(0.05)


def build_limitador():
    """Builds the gateway around Limitador's library. Returns the program."""
    manifest = DIRECTORY / "limitador/Cargo.toml"
    target = DIRECTORY.parents[1] / "target/meter-bench"
    command = ["cargo", "build", "--release", "--manifest-path", manifest, "--target-dir", target]
    subprocess.run(command, check=True)
    return target / "release/limitador-gateway"
