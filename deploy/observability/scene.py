"""A gateway with everything on, and everything that it talks to, on loopback: for the check of rules and dashboard.

`Sources` plays a JSON API, a registry, an issuer of JWTs, a cluster's API server and a collector of traces. The gateway, its store
and Prometheus are real processes.
"""

import base64
import contextlib
import http.client
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOKEN = "strong-password"
HOOK_TOKEN = "hook-password"
DIGEST = "sha256:" + "5" * 64


# A port that refuses each connection. It stays bound, so that no other program gets it meanwhile.
REFUSING = socket.socket()
REFUSING.bind(("127.0.0.1", 0))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(what, is_so, seconds=10):
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"after {seconds} s: {what}")
        time.sleep(0.05)


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Sources:
    """All services that the gateway asks, on one port. `is_well` is false on bad days."""

    def __init__(self):
        self.is_well, self.serial = True, 0
        self.key = encoded(b"\xc3" + bytes(range(255)) + b"\x01")[:342]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            do_GET = do_HEAD = do_POST = do_PATCH = lambda handler: self.answer(handler)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        status, reply, headers = self.reply(handler.command, handler.path.partition("?")[0], body)
        handler.send_response(status)
        text = json.dumps(reply).encode()
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(text))} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(text)

    def reply(self, method, path, body):
        """The status, the body and the headers."""
        if path == "/tenants":
            names = ["acme", "globex", "initech", "umbrella"][: 4 if self.is_well else 1]
            return 200, [{"name": name, "serial": self.serial} for name in names], {}
        if path == "/limited" and not self.is_well:
            return 429, {}, {"Retry-After": "1"}
        if path == "/limited":
            return 200, [{"name": "one"}], {}
        if path.startswith("/v2/"):
            headers = {"Docker-Content-Digest": DIGEST, "Content-Type": "application/vnd.oci.image.manifest.v1+json"}
            return 200, {"schemaVersion": 2}, headers | {"Docker-Distribution-Api-Version": "registry/2.0"}
        if path == "/keys":
            return 200, {"keys": [{"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": self.key, "e": "AQAB"}]}, {}
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            status = {"authenticated": True, "user": {"username": "argo"}, "audiences": ["appset-gateway"]}
            return (201 if self.is_well else 500), json.loads(body) | {"status": status}, {}
        if path.endswith("/applicationsets"):
            sets = [self.application_set("fleet")]
            return 200, {"kind": "ApplicationSetList", "metadata": {}, "items": sets}, {}
        if method == "PATCH":
            return 200, self.application_set("fleet"), {}
        if path == "/v1/traces":
            return (200 if self.is_well else 400), {}, {}
        return 201, {}, {}

    @staticmethod
    def application_set(name):
        plugin = {"plugin": {"configMapRef": {"name": "appset-gateway"}, "input": {"parameters": {}}}}
        metadata = {"namespace": "argocd", "name": name, "uid": "1", "annotations": {}}
        return {"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": metadata, "spec": {"generators": [plugin]}}


def configuration(folder, sources, store, **more):
    url = f"http://{sources.address}"
    token = {"file": str(folder / "token")}
    tenants = {"http": {"url": url + "/tenants", "parameters": "body"}}
    config = {
        "server": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "hooks": "127.0.0.1:0", "drain": "0s", "maxInFlight": 4,
                   "tls": {"cert": str(folder / "tls.crt"), "key": str(folder / "tls.key")}},
        "auth": {
            "tokens": [{"name": "argocd", **token}],
            "jwt": [{"issuer": "https://issuer.example.com", "audience": "appset-gateway", "algorithms": ["RS256"],
                     "jwks": {"url": url + "/keys"}}],
            "tokenReview": {"api": url, "token": token, "audiences": ["appset-gateway"], "callers": [{"user": "argo", "routes": ["*"]}]},
        },
        "cache": {"path": str(folder / "answers.redb"), "shared": {"url": f"redis://127.0.0.1:{store}/0", "timeout": "800ms"}},
        "traces": {"endpoint": url},
        "registries": {sources.address: {"plainHttp": True}},
        "hooks": [{"name": "builds", "kind": "generic", "token": {"file": str(folder / "hook-token")}, "header": "X-Build-Token",
                   "subjects": "[{'route': body.route, 'parameters': {}}]"}],
        "argocd": {"refresh": {"namespaces": ["argocd"], "configMaps": ["appset-gateway"], "api": url, "token": token}},
        "routes": [
            {"name": "tenants", "backend": tenants, "shadow": {"backend": tenants}, "cache": {"ttl": "1s", "staleWhileRevalidate": "0s"}},
            {"name": "images", "backend": {"digests": {"images": {"app": {
                "image": sources.address + "/org/app:{{ params.tag }}"}}}}, "output": {"digest": "{{ app.digest }}"}},
            {"name": "program", "backend": {"script": {"command": ["sh", "-c", "sleep $PARAM_SECONDS; echo '[]'"]}}},
            {"name": "limited", "backend": {"http": {"url": url + "/limited", "parameters": "body"}},
             "cache": {"ttl": "1s", "staleWhileRevalidate": "0s"}},
            {"name": "previews", "backend": {"pipeline": [tenants, {"each": {"key": ["name"], "http": {
                "url": url + "/element?name={{ item.name }}", "parameters": "body"}}}]}},
            {"name": "broken", "backend": {"http": {"url": f"http://127.0.0.1:{REFUSING.getsockname()[1]}/", "parameters": "body"}}},
        ],
    }
    return config | more


class Scene(contextlib.ExitStack):
    """The processes, which end with the block. `folder` is theirs."""

    def __init__(self, gateway, folder):
        super().__init__()
        self.program, self.folder, self.sources = gateway, folder, Sources()
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.calls = ThreadPoolExecutor(16)

    def run(self, *command):
        name = Path(command[0]).name
        log = self.enter_context(open(self.folder / f"{name}.log", "wb"))
        # SIGXFSZ stays ignored, as in Python: a file that may not grow is an error, not the end.
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, restore_signals=False)
        self.callback(lambda: (process.kill(), process.wait()))
        return process

    def make_certificate(self, days):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days),
                        "-subj", "/CN=localhost", "-keyout", "new.key", "-out", "new.crt"], cwd=self.folder, check=True, capture_output=True)
        for end in ("key", "crt"):
            os.replace(self.folder / f"new.{end}", self.folder / f"tls.{end}")

    def write_config(self, **more):
        (self.folder / "new.yaml").write_text(json.dumps(configuration(self.folder, self.sources, self.store_port, **more)))
        os.replace(self.folder / "new.yaml", self.folder / "gateway.yaml")

    def start_gateway(self):
        (self.folder / "token").write_text(TOKEN)
        (self.folder / "hook-token").write_text(HOOK_TOKEN)
        self.make_certificate(30)
        self.store_port = free_port()
        self.store = self.run("redis-server", "--port", str(self.store_port), "--bind", "127.0.0.1", "--save", "")
        self.write_config()
        self.gateway = self.run(str(self.program), "serve", "-c", "gateway.yaml")
        self.log = self.folder / f"{self.program.name}.log"
        wait_until("the gateway is ready: " + str(self.log), lambda: self.addresses() or self.gateway.poll() is not None)
        if not self.addresses():
            sys.exit(f"the gateway ended:\n{self.log.read_text()}")
        addresses = self.addresses()
        self.listen, self.admin, self.hooks = addresses["listen"], addresses["admin"], addresses["hooks"]

    def addresses(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return next((line for line in map(json.loads, lines) if line.get("message") == "ready"), None)

    def metrics(self):
        return urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=5).read().decode()

    def call(self, route, token=TOKEN, **parameters):
        """The status of a call, as Argo CD makes it."""
        connection = http.client.HTTPSConnection(self.listen, timeout=30, context=self.tls)
        body = json.dumps({"applicationSetName": "fleet", "input": {"parameters": parameters}})
        connection.request("POST", f"/{route}/api/v1/getparams.execute", body, {"Authorization": f"Bearer {token}"})
        status = connection.getresponse().status
        connection.close()
        return status

    def deliver(self, route, token=HOOK_TOKEN):
        """The status of a delivery of an event about `route`."""
        connection = http.client.HTTPSConnection(self.hooks, timeout=30, context=self.tls)
        headers = {"X-Build-Token": token, "Content-Type": "application/json"}
        connection.request("POST", "/hooks/builds", json.dumps({"route": route}), headers)
        status = connection.getresponse().status
        connection.close()
        return status

    def a_jwt(self):
        """An unsigned JWT that looks good enough to be reviewed."""
        parts = {"alg": "RS256", "kid": "x"}, {"iss": "kubernetes", "aud": ["appset-gateway"], "exp": int(time.time()) + 600, "sub": "argo"}
        return ".".join([encoded(json.dumps(part).encode()) for part in parts] + [encoded(os.urandom(64))])

    def start_prometheus(self, rules):
        """A Prometheus that scrapes every second, with the rules in the file `rules`."""
        self.prometheus_port = free_port()
        labels = {"namespace": "appset-gateway", "job": "appset-gateway"}
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"}, "rule_files": [str(rules)],
                  "scrape_configs": [{"job_name": "gateway", "static_configs": [{"targets": [self.admin], "labels": labels}]}]}
        (self.folder / "prometheus.yml").write_text(json.dumps(config))
        self.run("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
                 f"--web.listen-address=127.0.0.1:{self.prometheus_port}", "--log.level=warn")

    def wait_until_ready(self):
        """Waits for Prometheus, and for the gateway, which gives other replicas some seconds to say what they know."""
        wait_until("Prometheus has metrics: " + str(self.folder / "prometheus.log"), lambda: self.query("appset_gateway_build_info"), 20)
        wait_until("the gateway is in contact with its store", lambda: self.query("appset_gateway_store_in_contact == 1"), 20)

    def api(self, path, **parameters):
        url = f"http://127.0.0.1:{self.prometheus_port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            return json.load(urllib.request.urlopen(url, timeout=5))["data"]
        except urllib.error.URLError as error:
            if getattr(error, "code", 503) == 503:
                return {"result": [], "alerts": []}  # it still starts
            raise ValueError(json.load(error)["error"]) from error

    def query(self, expression):
        """The samples of an expression now: labels and values."""
        return [(one["metric"], float(one["value"][1])) for one in self.api("query", query=expression)["result"]]
