"""Several replicas that hear of builds, with the images of a release: kustomize/push on kustomize/replicated with the component
kustomize/images, as kustomization.yaml and deploy/README.md describe it."""

import shutil
import tempfile
from pathlib import Path

import yaml

from .faults import DEPLOY, fault
from .gateway import check_gateway
from .names import read_names
from .pods import check_pods, pod_of
from .reading import parse, render
from .references import check_references


def check_combined():
    """Checks that what a reader of the description gets has one memory, and fits together."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "kustomize"
        shutil.copytree(DEPLOY / "kustomize", copy)
        push = copy / "push"
        file = push / "kustomization.yaml"
        file.write_text(file.read_text().replace("  - ../base\n", "  - ../replicated\n") + "components: [../images]\n")
        configs = [dict(*parse((copy / name / "gateway.yaml").read_text(), name)) for name in ("push", "replicated")]
        config, replicated = configs
        config["cache"] = replicated["cache"]
        config["server"]["drain"] = replicated["server"]["drain"]
        (push / "gateway.yaml").write_text(yaml.safe_dump(config))
        documents = render(push)
    where = DEPLOY / "kustomize/push on ../replicated"
    names = read_names()
    for document in documents:
        if pod_of(document):
            check_pods(where, document, documents)
        if document["kind"] == "Deployment" and document["metadata"]["name"] == "appset-gateway":
            image = document["spec"]["template"]["spec"]["containers"][0]["image"]
            if image != f"{names['IMAGE']}:{names['VERSION']}":
                fault(where, f"the image is {image}, not that of deploy/release.env")
    check_references(where, documents)
    check_gateway(where, documents)
