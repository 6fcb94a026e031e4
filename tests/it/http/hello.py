"""The plugin of Argo CD's documentation, and copies of it with the faults that copies have: `hello.py TOKEN FAULT`."""

import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

token, fault = sys.argv[1:]
bodies = {"empty": "", "braces": "{}", "null": "null", "top": '{"parameters": [{"key1": "val1"}]}'}


class Plugin(BaseHTTPRequestHandler):
    def args(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length"))))

    def reply(self, reply):
        self.send_response(204 if fault == "204" else 302 if fault == "302" else 200)
        if fault == "302":
            self.send_header("Location", "/login")
        self.end_headers()
        if fault in bodies:
            self.wfile.write(bodies[fault].encode())
        elif fault != "204":
            written = json.dumps(reply).encode("UTF-8")
            self.wfile.write(written[: len(written) // 2] if fault == "half" else written)

    def forbidden(self):
        self.send_response(403)
        self.end_headers()

    def do_POST(self):
        if self.headers.get("Authorization") != "Bearer " + token:
            self.forbidden()
            # The documentation's own goes on here, and sends a body after its 403.
            if fault != "goes on":
                return
        if self.path == "/api/v1/getparams.execute":
            args = self.args()
            if fault == "nothing":
                return self.reply({"output": {"parameters": []}})
            seen = {"seen": json.dumps(args), "type": self.headers.get("Content-Type")}
            self.reply({"output": {"parameters": [{"key1": "val1", **seen}, {"key1": "val2"}]}})
        else:
            self.send_response(404)
            self.end_headers()

    def log_message(self, *words):
        pass


server = HTTPServer(("127.0.0.1", 0), Plugin)
print(server.server_port, flush=True)
server.serve_forever()
