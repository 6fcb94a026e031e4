"""A docker-registry holding two images of one small layer each."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from .error import BenchError
from .scenario import BRANCH

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
    destination = f"docker://127.0.0.1:{port}/{repository}:{BRANCH}"
    run = subprocess.run(
        [
            *("skopeo", "copy", "--insecure-policy", "--preserve-digests"),
            *("--dest-tls-verify=false", "--dest-no-creds", f"oci:{layout}", destination),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    if run.returncode != 0:
        raise BenchError(f"skopeo could not push {destination}:\n{run.stdout}")
