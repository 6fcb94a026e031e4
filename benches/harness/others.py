"""Servers of other kinds that answer a hit, if their tools are installed: a plugin in Go, and nginx with one answer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .error import BenchError

GO, NGINX = "plugin in Go", "nginx, return 200"
SOURCE = Path(__file__).resolve().parent.parent / "plugin.go"

# One process, so that its CPU time is all that there is.
NGINX_CONFIG = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  server {{
    listen 127.0.0.1:{port};
    location / {{ default_type application/json; return 200 '{body}'; }}
  }}
}}
"""


def installed() -> list[str]:
    return [name for name, tool in ((GO, "go"), (NGINX, "nginx")) if shutil.which(tool)]


def command(name: str, directory: Path, port: int, token_file: Path, parameters: Any) -> list[str]:
    """What starts the server `name`, which answers with `parameters`."""
    if name == GO:
        program = directory / "plugin-in-go"
        if not program.exists():
            built = subprocess.run(["go", "build", "-o", str(program), str(SOURCE)], capture_output=True, text=True, check=False)
            if built.returncode != 0:
                raise BenchError(f"go build failed:\n{built.stderr}")
        return [str(program), f"127.0.0.1:{port}", str(token_file), json.dumps(parameters)]
    folder = directory / "nginx"
    folder.mkdir(exist_ok=True)
    body = json.dumps({"output": {"parameters": parameters}}, separators=(",", ":"))
    config = folder / "nginx.conf"
    config.write_text(NGINX_CONFIG.format(folder=folder, port=port, body=body))
    return ["nginx", "-c", str(config), "-p", str(folder)]
