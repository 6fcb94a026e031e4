"""A hit beside other servers that give the same answer: bare axum, Go's net/http, and nginx with a fixed answer."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from .. import golang
from ..bench import Bench
from ..checks import check_answer, doubts_about_cache
from ..client import TOKEN, free_ports
from ..comparison import tabulate
from ..process import Server
from ..report import Table
from ..servers import CANARY, GATEWAY, REFERENCE, running
from ..workload import HIT_PARAMETERS, WORKLOADS

GO, NGINX = "Go", "nginx"
SOURCE = Path(__file__).resolve().parents[2] / "peers" / "nethttp.go"

# It reads no body, and compares the token only.
CONFIG = """\
daemon off; master_process off; pid "{folder}/pid"; error_log stderr;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path "{folder}/body"; proxy_temp_path "{folder}/proxy"; fastcgi_temp_path "{folder}/fastcgi";
  uwsgi_temp_path "{folder}/uwsgi"; scgi_temp_path "{folder}/scgi";
  server {{
    listen 127.0.0.1:{port};
    default_type application/json;
    if ($http_authorization != "Bearer {token}") {{ return 403; }}
    return 200 '{answer}';
  }}
}}
"""


def measure(bench: Bench) -> Table:
    workload, driver = WORKLOADS["hit64"], bench.driver
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(running(bench.servers.spawn_named(GATEWAY)))
        reference = stack.enter_context(running(bench.servers.spawn_named(REFERENCE)))
        go, nginx = stack.enter_context(running(spawn_go(bench))), stack.enter_context(running(spawn_nginx(bench)))
        canary = stack.enter_context(running(bench.servers.spawn_named(CANARY)))
        measured = [gateway, reference, go, nginx]
        for server in measured:
            check_answer(server, workload, HIT_PARAMETERS)
        remarks = doubts_about_cache(gateway, workload)
        lanes = [driver.lane(server, workload) for server in measured]
        rounds = driver.interleave("peers", [*lanes, driver.canary_lane(canary)])
    return tabulate("peers", workload.title, rounds, {REFERENCE: None, GO: None, NGINX: None}, remarks)


def spawn_go(bench: Bench) -> Server:
    program = bench.directory / "nethttp"
    golang.build(SOURCE, program)
    (port,) = free_ports(1)
    return bench.servers.spawn(GO, [str(program), f"127.0.0.1:{port}"], port)


def spawn_nginx(bench: Bench) -> Server:
    folder = bench.directory / "nginx"
    folder.mkdir()
    (port,) = free_ports(1)
    answer = json.dumps({"output": {"parameters": HIT_PARAMETERS}}, separators=(",", ":"))
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, token=TOKEN, answer=answer))
    return bench.servers.spawn(NGINX, ["nginx", "-p", str(folder), "-c", str(config)], port)
