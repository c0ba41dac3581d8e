"""nginx, HAProxy and Tidegate, each with one worker and connections without an end."""
import json
import os
import urllib.request

from .server import Server, free_port

UNLIMITED = 1_000_000_000

NGINX = """
daemon off; worker_processes 1; pid nginx.pid; error_log error.log; worker_rlimit_nofile {connections};
events {{ worker_connections {connections}; }}
http {{
  access_log off; keepalive_requests {unlimited}; keepalive_timeout 1h;
  client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
  {http}
}}
"""

NGINX_PROXY = """
  {http}
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 512; keepalive_requests {unlimited}; keepalive_timeout 1h; }}
  server {{
    listen 127.0.0.1:{port} {listen} backlog=4096;
    {server}
    location / {{
      {location}
      proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; {connection}
    }}
  }}"""

HAPROXY = """
global
  nbthread 1
  maxconn {clients}
  {process}
defaults
  mode http
  option forwardfor
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout tunnel 1h
  timeout http-keep-alive 1h
  {defaults}
frontend f
  bind 127.0.0.1:{port} {bind} backlog 4096
  {frontend}
  default_backend b
backend b
  http-reuse {reuse}
  {backend}
  server s 127.0.0.1:{origin} pool-purge-delay 1h
{sections}
"""


class NginxServer(Server):
    connections = 8192

    def http(self):
        """Returns the directives of the block `http`."""
        raise NotImplementedError

    def command(self):
        # As root, nginx would read files as another user.
        text = "user root;" * (os.geteuid() == 0) + NGINX
        config = self.directory / "nginx.conf"
        config.write_text(text.format(connections=self.connections, unlimited=UNLIMITED, http=self.http()))
        return ["nginx", "-p", self.directory, "-e", "error.log", "-c", config]


class CountingOrigin(NginxServer):
    """An origin that counts the requests that it receives."""

    def __init__(self, scratch, core=None):
        super().__init__(scratch, core)
        self.reads = 0

    def site(self):
        """Returns the directives of the server."""
        raise NotImplementedError

    def http(self):
        return f"server {{ listen 127.0.0.1:{self.port}; location = /received {{ stub_status; }} {self.site()} }}"

    def received(self):
        """Returns the number of requests, without those of this function."""
        self.reads += 1
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/received", timeout=10) as response:
            return int(response.read().split()[9]) - self.reads


class Nginx(NginxServer):
    """nginx in front of an origin. `directives` are texts of NGINX_PROXY."""

    def __init__(self, scratch, origin, core=None, **directives):
        super().__init__(scratch, core)
        self.origin = origin
        defaults = dict(http="", listen="", server="", location="", connection='proxy_set_header Connection "";')
        self.directives = defaults | directives

    def http(self):
        return NGINX_PROXY.format(port=self.port, origin=self.origin.port, unlimited=UNLIMITED, **self.directives)


class Haproxy(Server):
    """HAProxy in front of an origin. `directives` are texts of HAPROXY."""

    # Of both sides, which a request of a client may need.
    connections = 8192

    def __init__(self, scratch, origin, core=None, **directives):
        super().__init__(scratch, core)
        self.origin = origin
        defaults = dict(process="", defaults="", bind="", frontend="", reuse="safe", backend="", sections="")
        self.directives = defaults | directives

    def command(self):
        config = self.directory / "haproxy.cfg"
        config.write_text(
            HAPROXY.format(port=self.port, origin=self.origin.port, clients=self.connections // 2 - 100, **self.directives)
        )
        return ["haproxy", "-db", "-f", config]


class Tidegate(Server):
    """Tidegate in front of an origin. `settings` are sections of the configuration."""

    def __init__(self, scratch, program, origin, core=None, tls=None, **settings):
        super().__init__(scratch, core)
        self.program = program.resolve()
        self.admin_port = free_port()
        address = f"127.0.0.1:{self.port}"
        self.settings = {
            "listen": {"address": address, "tls": tls} if tls else address,
            "workers": 1,
            "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
            "state_dir": str(self.directory / "state"),
            "origin": {"url": f"http://127.0.0.1:{origin.port}", "max_connections": 1024},
            "routes": [{"match": "/**"}],
            "limits": {"max_requests_per_connection": UNLIMITED},
        } | settings

    def command(self):
        config = self.directory / "tidegate.yaml"
        # JSON is YAML.
        config.write_text(json.dumps(self.settings))
        return [self.program, "serve", "--config", config]
