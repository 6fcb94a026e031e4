"""The charts in deploy/helm, and where the files of each are."""

from dataclasses import dataclass, field
from pathlib import Path

from .faults import DEPLOY

HELM = DEPLOY / "helm"
OBSERVABILITY = DEPLOY / "observability"


@dataclass(frozen=True)
class Chart:
    """A chart with what the checks need to know of it."""

    name: str
    namespace: str
    schema: Path  # values.schema.json is made from it
    template: Path  # README.md is made from it
    refused: Path  # values that the chart must refuse
    rendered: Path  # its snapshots
    open: tuple = ()  # values with keys that values.yaml need not have
    copies: tuple = ()  # files of deploy/observability that it contains
    packaged: tuple = ()  # what its package must have, beside those
    given: dict = field(default_factory=dict)  # values of each entry of `refused`, unless it has others
    least: int = 1  # the least number of value files in ci/

    @property
    def folder(self):
        return HELM / self.name

    @property
    def digest(self):
        """The file with the hash of all that Helm reads."""
        return self.rendered / "sha256"

    def names(self):
        """The names of the value files in ci/, and so of the snapshots."""
        return sorted(file.stem for file in (self.folder / "ci").glob("*.yaml"))


GATEWAY = Chart(
    name="appset-gateway",
    namespace="appset-gateway",
    schema=HELM / "values.schema.yaml",
    template=HELM / "README.md.template",
    refused=HELM / "refused.yaml",
    rendered=HELM / "rendered",
    open=("config",),
    copies=("rules.yaml", "cmp-rules.yaml", "dashboard.json"),
    packaged=("templates/tests/ask.yaml",),
    given={"image": {"repository": "appset-gateway"}, "token": {"value": "one"}, "adminToken": {"value": "two"}},
    least=12,
)
PLUGIN = Chart(
    name="cmp-plugin",
    namespace="plugins",
    schema=HELM / "cmp-plugin.schema.yaml",
    template=HELM / "cmp-plugin.README.md.template",
    refused=HELM / "cmp-plugin.refused.yaml",
    rendered=HELM / "rendered/cmp-plugin",
    open=("config", "settings", "plugin"),
    given={
        "image": {"repository": "registry.example.com/plugin", "tag": "1.0"},
        "plugin": {"metadata": {"name": "plugin"}, "spec": {"generate": {"command": ["cat"]}}},
        "tls": {"existingSecret": "plugin-tls"},
    },
    least=8,
)
CHARTS = (GATEWAY, PLUGIN)
