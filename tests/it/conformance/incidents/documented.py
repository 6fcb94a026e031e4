"""The plugin of Argo CD's documentation, with a source in place of its two constants: `documented.py TOKEN SOURCE PORT`."""

import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import urlopen

token, source, port = sys.argv[1:]


class Plugin(BaseHTTPRequestHandler):
    def args(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length"))))

    def reply(self, reply):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode("UTF-8"))

    def forbidden(self):
        self.send_response(403)
        self.end_headers()

    def unsupported(self):
        self.send_response(404)
        self.end_headers()

    def do_POST(self):
        if self.headers.get("Authorization") != "Bearer " + token:
            self.forbidden()
        if self.path == "/api/v1/getparams.execute":
            self.args()
            # Nothing is caught: after an exception the server closes the connection.
            with urlopen(source, timeout=2) as answer:
                items = json.load(answer)["items"]
            self.reply({"output": {"parameters": [{"name": item["name"]} for item in items]}})
        else:
            self.unsupported()


HTTPServer(("127.0.0.1", int(port)), Plugin).serve_forever()
