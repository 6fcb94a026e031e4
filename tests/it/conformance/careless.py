"""A careless plugin: `careless.py SOURCE [PORT]`. It checks no token, and turns each failure of its source into an empty list."""

import json, random, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

source = sys.argv[1]
port = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Plugin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length")))
        try:
            with urlopen(source, timeout=2) as reply:
                items = json.load(reply)["items"]
            random.shuffle(items)
            answer = {"output": {"parameters": [{"name": item["name"], "replicas": item["n"]} for item in items]}}
        except Exception:
            answer = {"parameters": []}
        written = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, *words):
        pass


server = ThreadingHTTPServer(("127.0.0.1", port), Plugin)
print(server.server_port, flush=True)
server.serve_forever()
