"""The charts' files that are made from others: values.schema.json, README.md, and copies of deploy/observability."""

import json
import re

import yaml

from .charts import CHARTS, GATEWAY, OBSERVABILITY
from .faults import ROOT, fault, relative


def values_schema(chart):
    """The schema of the values: the chart's own, and that of the gateway has the configuration's as `config`."""
    own = yaml.safe_load(chart.schema.read_text())
    if chart == GATEWAY:
        add_configuration(own)
    return json.dumps(own, indent=1, ensure_ascii=False) + "\n"


def add_configuration(own):
    config = json.loads((ROOT / "config/schema.json").read_text())
    check_refs(config)
    own["$defs"] = config.pop("$defs")
    config.pop("$schema")
    config.pop("title")
    own["properties"]["config"] = config


def check_refs(node):
    """Beside a `$ref`, draft 7 reads nothing. So nothing that decides may stand there."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str) and (beside := set(node) - {"$ref", "description", "default"}):
            fault(ROOT / "config/schema.json", f"{sorted(beside)} stand beside a $ref: draft 7, and so Helm, would not read them")
        for inner in node.values():
            check_refs(inner)
    elif isinstance(node, list):
        for inner in node:
            check_refs(inner)


def described(chart):
    """The values in values.yaml, in their order: (path, text of their `# --` comment or None)."""
    values, path, text = [], [], None
    for line in (chart.folder / "values.yaml").read_text().splitlines():
        comment = re.match(r"\s*# ?(.*)", line)
        key = re.match(r"( *)([A-Za-z]\w*):", line)
        if comment and comment[1].startswith("-- "):
            text = comment[1][3:]
        elif comment and text is not None:
            text += " " + comment[1].strip()
        elif key:
            path = [*path[: len(key[1]) // 2], key[2]]
            values.append((tuple(path), text))
            text = None
        else:
            text = None
    return values


def table(chart):
    """The table of values, as helm-docs writes it."""
    defaults = yaml.safe_load((chart.folder / "values.yaml").read_text())
    rows = ["| Key | Type | Default | Description |", "|-----|------|---------|-------------|"]
    for path, text in described(chart):
        if text is None:
            continue
        default = defaults
        for step in path:
            default = default[step]
        shown = "see values.yaml" if chart == GATEWAY and path == ("config",) else f"`{json.dumps(default)}`"
        rows.append(f"| {'.'.join(path)} | {type_of(default)} | {shown} | {text} |")
    return "\n".join(rows)


def type_of(value):
    names = ((bool, "bool"), (int, "int"), (str, "string"), (list, "list"), (dict, "object"))
    return next(name for kind, name in names if isinstance(value, kind))


def readme(chart):
    return chart.template.read_text().replace("{{ values }}", table(chart))


def files(chart):
    """Each made file, with what it must hold."""
    made = {chart.folder / "values.schema.json": values_schema(chart), chart.folder / "README.md": readme(chart)}
    for name in chart.copies:
        made[chart.folder / "files" / name] = (OBSERVABILITY / name).read_text()
    return made


def check_generated(chart):
    for file, wanted in files(chart).items():
        if not file.exists() or file.read_text() != wanted:
            fault(file, f"is old: run `{'make schema' if file.suffix == '.json' else 'deploy/chart --write-made'}`")
    check_described(chart)


def check_described(chart):
    """Each value is described, and the schema knows it; the schema knows no value that is not there."""
    commented = {path for path, text in described(chart) if text}
    schema = yaml.safe_load(chart.schema.read_text())
    for path, _ in described(chart):
        if not any(path[:length] in commented or path == other[: len(path)] for length in range(len(path) + 1) for other in commented):
            fault(chart.folder / "values.yaml", f"{'.'.join(path)} has no comment `# --`")
    known = {path for path in leaves(schema) if path[0] not in (*chart.open, "global")}
    there = {path for path, _ in described(chart)}
    for path in sorted(known - there):
        # A map on one line, such as a reference, is one value.
        if not any(path[:length] in commented for length in range(1, len(path))):
            fault(relative(chart.schema), f"{'.'.join(path)} is not in values.yaml")


def leaves(schema, path=()):
    """The paths of all properties that have none below them."""
    for name, inner in schema.get("properties", {}).items():
        if "properties" in inner:
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name)


def write():
    for chart in CHARTS:
        for file, wanted in files(chart).items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(wanted)
