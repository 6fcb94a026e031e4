"""Each document fits the JSON schema of its kind: Kubernetes' own, or the CRDs in deploy/schemas."""

import json

import jsonschema
import kubernetes_validate

from .faults import DEPLOY, cannot_run, fault, relative
from .reading import dig

KUBERNETES = ("1.25", "1.37")
# Kinds that the oldest Kubernetes does not have.
LATER = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
CRDS = (DEPLOY / "schemas", DEPLOY / "observability/schemas")


def check_schema(folder, document, versions=KUBERNETES):
    """Validates one document, strictly, against these versions of Kubernetes."""
    name = f"{relative(folder)}: {document.get('kind')}/{dig(document, 'metadata', 'name')}"
    if not document.get("apiVersion") or not document.get("kind"):
        return fault(name, "apiVersion or kind is missing")
    for folder_of_crds in CRDS:
        custom = folder_of_crds / f"{document['kind'].lower()}.json"
        if custom.exists():
            return check_custom(name, document, json.loads(custom.read_text()))
    for version in versions[1:] if document["kind"] in LATER else versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(step) for step in error.path) or "(top)"
            return fault(name, f"Kubernetes {version}: {path}: {error.message[:300]}")
        except kubernetes_validate.SchemaNotFoundError as error:
            return fault(name, error.message)
        except (kubernetes_validate.VersionNotSupportedError, kubernetes_validate.InvalidSchemaError) as error:
            cannot_run(error.message)


def check_custom(name, document, schema):
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        path = ".".join(str(step) for step in error.path) or "(top)"
        fault(name, f"{path}: {error.message[:300]}")
