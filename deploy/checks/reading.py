"""Reads YAML, renders kustomizations, and finds objects in what was rendered."""

import base64
import os
import re
import shutil
import subprocess

import yaml

from .faults import ROOT, cannot_run, fault


def parse(text, where):
    """All documents of a YAML text. A repeated key is a fault; PyYAML alone would accept it."""

    class Loader(yaml.SafeLoader):
        pass

    def mapping(loader, node):
        keys = [key.value for key, _ in node.value]
        for key in {key for key in keys if keys.count(key) > 1}:
            fault(where, f"line {node.start_mark.line + 1}: the key {key!r} is repeated")
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return [document for document in yaml.load_all(text, Loader) if document is not None]
    except yaml.YAMLError as error:
        fault(where, f"not YAML: {' '.join(str(error).split())}")
        return []


def render(folder):
    if kustomize := shutil.which("kustomize", path=f"{ROOT / 'target/tools/bin'}:{os.environ['PATH']}"):
        command = [kustomize, "build", str(folder)]
    elif kubectl := shutil.which("kubectl"):
        command = [kubectl, "kustomize", str(folder)]
    else:
        cannot_run("neither kustomize nor kubectl found; tools/need-kustomize builds kustomize")
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        fault(folder, f"does not render: {result.stderr.strip()}")
        return []
    if "deprecated" in result.stderr:
        fault(folder, f"has deprecated keys: {' '.join(result.stderr.split())}")
    documents = parse(result.stdout, folder)
    if not documents:
        fault(folder, "renders to nothing")
    return documents


def the(documents, kind, name):
    """The object of this kind and name, with or without a generator's hash; {} if there is none."""
    for document in documents:
        if document["kind"] == kind and re.fullmatch(re.escape(name) + "(-[a-z0-9]{10})?", document["metadata"]["name"]):
            return document
    return {}


def dig(value, *path):
    """value[path[0]][path[1]]…, or None as soon as a step is missing."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def secret_values(secret):
    encoded = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
    return encoded | (secret.get("stringData") or {})


def seconds(duration):
    match = re.fullmatch(r"(\d+)(s|m)", str(duration))
    return int(match[1]) * {"s": 1, "m": 60}[match[2]] if match else None
