"""Signatures of images in a docker-registry, in the form of cosign before version 3."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import subprocess
from pathlib import Path

from .error import BenchError
from .registry import IMAGE_CONFIG, MANIFEST

SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"

# The routes whose images must be signed. They stand after `digests`, whose images and output they have.
ROUTES = """\
  - name: signed
    backend: &signed
      digests:
        images: *images
        signature: {{ any: [ {{ key: {{ file: "{key}" }} }} ], formats: [legacy] }}
    output: *output
    cache: {{ ttl: 0s }}
  - {{ name: signed-hit, backend: *signed, output: *output }}
"""


def sign_images(directory: Path, port: int, parameters: dict[str, str]) -> Path:
    """Signs the images that a parameter set names, in the registry at `port`; returns the public key."""
    private, public = make_key(directory)
    for image in ("front", "back"):
        sign(port, f"org/{image}", parameters[f"digest{image.capitalize()}"], private)
    return public


def make_key(directory: Path) -> tuple[Path, Path]:
    """A private key, and the public one."""
    private, public = directory / "signer.key", directory / "signer.pub"
    openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", str(private))
    openssl("ec", "-in", str(private), "-pubout", "-out", str(public))
    return private, public


def sign(port: int, repository: str, digest: str, private: Path) -> None:
    """Puts a signature of the image `digest` into the registry."""
    payload = json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": f"127.0.0.1:{port}/{repository}"},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    ).encode()
    signature = openssl("dgst", "-sha256", "-sign", str(private), content=payload)
    annotations = {"dev.cosignproject.cosign/signature": base64.b64encode(signature).decode()}
    layer = put_blob(port, repository, SIMPLE_SIGNING, payload)
    config = put_blob(port, repository, IMAGE_CONFIG, b"{}")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [{**layer, "annotations": annotations}],
    }
    tag = digest.replace(":", "-") + ".sig"
    path = f"/v2/{repository}/manifests/{tag}"
    send(port, "PUT", path, json.dumps(manifest).encode(), MANIFEST)


def put_blob(port: int, repository: str, media_type: str, content: bytes) -> dict[str, str | int]:
    started = send(port, "POST", f"/v2/{repository}/blobs/uploads/", b"", "application/json")
    location = started.removeprefix(f"http://127.0.0.1:{port}")
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    send(port, "PUT", f"{location}&digest={digest}", content, "application/octet-stream")
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def send(port: int, method: str, path: str, body: bytes, kind: str) -> str:
    """The `Location` of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Type": kind})
        response = connection.getresponse()
        if response.status not in (http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED):
            raise BenchError(f"docker-registry answered {response.status} to {method} {path}")
        return response.headers.get("Location", "")
    finally:
        connection.close()


def openssl(*arguments: str, content: bytes = b"") -> bytes:
    run = subprocess.run(["openssl", *arguments], input=content, capture_output=True, check=False)
    if run.returncode != 0:
        raise BenchError(f"openssl {arguments[0]} failed:\n{run.stderr.decode()}")
    return run.stdout
