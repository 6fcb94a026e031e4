"""A docker-registry holding two images of one small layer each, under many tags."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.client
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Callable

from .rounds import Round
from .error import BenchError
from .process import Server
from .workload import BRANCH, BRANCHES

CONFIG = """\
version: 0.1
log: {{ level: error, accesslog: {{ disabled: false }} }}
storage: {{ filesystem: {{ rootdirectory: "{data}" }}, cache: {{ blobdescriptor: inmemory }} }}
http: {{ addr: "127.0.0.1:{port}" }}
"""

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def write_oci_layout(directory: Path, name: str) -> str:
    """Writes an image as an OCI layout and returns the digest of its manifest."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(media_type: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def document(media_type: str, value: Any) -> dict[str, Any]:
        return blob(media_type, json.dumps(value).encode())

    archive = tar_of("name", f"the image {name}\n".encode())
    diff_id = "sha256:" + hashlib.sha256(archive).hexdigest()
    layer = blob(LAYER, gzip.compress(archive, mtime=0))
    config = document(
        IMAGE_CONFIG,
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        },
    )
    manifest = document(
        MANIFEST,
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]},
    )
    (directory / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    return str(manifest["digest"])


def tar_of(path: str, content: bytes) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo(path)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def push(layout: Path, port: int, repository: str) -> None:
    """Pushes the image under the first tag, and tags it with the others."""
    destination = f"docker://127.0.0.1:{port}/{repository}:{BRANCH}"
    options = ("--preserve-digests", "--dest-tls-verify=false", "--dest-no-creds")
    skopeo("copy", *options, f"oci:{layout}", destination)
    index = json.loads((layout / "index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = (layout / "blobs" / "sha256" / digest).read_bytes()
    for branch in BRANCHES[1:]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            path = f"/v2/{repository}/manifests/{branch}"
            connection.request("PUT", path, manifest, {"Content-Type": MANIFEST})
            response = connection.getresponse()
            if response.status != http.HTTPStatus.CREATED:
                raise BenchError(f"docker-registry answered {response.status} to PUT {path}")
        finally:
            connection.close()


def skopeo(command: str, *arguments: str) -> None:
    run = subprocess.run(
        ["skopeo", "--insecure-policy", command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    if run.returncode != 0:
        raise BenchError(f"skopeo {command} {arguments[-1]} failed:\n{run.stdout}")


def counting_heads(registry: Server, drive: Callable[[], Round]) -> Round:
    """What `drive` measures, and what it costs the registry."""
    registry.clear_log()
    before = registry.cpu_time()
    driven = drive()
    used = registry.cpu_time() - before
    heads = registry.log_lines(b'"HEAD /v2/')
    head_us = used.own * 1e6 / heads if heads else 0.0
    return dataclasses.replace(driven, heads=heads / driven.requests, head_us=head_us)
