"""The ApplicationSets in deploy/applicationsets fit the gateway's routes, and their templates name what the generators give."""

import fnmatch
import re

from .faults import ROOT, fault
from .reading import dig, the

# The names that the pullRequest generator gives to templates.
PULL_REQUEST = {
    "number", "title", "branch", "branch_slug", "target_branch", "target_branch_slug",
    "head_sha", "head_short_sha", "head_short_sha_7", "author", "labels",
}


def strings(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from strings(inner, f"{path}.{index}")
    elif isinstance(value, str):
        yield path, value


def check_template(where, part, known):
    """Checks that every {{ }} names a value that the generators give; `known` is None if only a plugin has their names."""
    for path, text in strings(part):
        for action in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL):
            variables = re.findall(r"(?<![\w.)])\.([A-Za-z_]\w*)", action)
            if not variables:
                fault(where, f"{path}: {{{{{action}}}}} names no parameter (Go templates write {{{{ .name }}}})")
            for variable in set(variables) - known if known is not None else ():
                fault(where, f"{path}: .{variable} comes from no generator")


def route_of(config, name):
    """The route that answers this ApplicationSet."""
    for route in config.get("routes") or []:
        if "match" in route and fnmatch.fnmatchcase(name, dig(route, "match", "applicationSet") or "*"):
            return route
    return None


def passes_on(route):
    """Whether a route answers with the keys of a plugin behind it, whatever they are."""
    return dig(route, "backend", "http", "plugin") is not None and "output" not in route


def answer_keys(route):
    """The keys of the parameter sets that a route answers with."""
    sets = dig(route, "backend", "fixed", "parameters") or []
    return set(route.get("output") or {}) | set(route.get("echo") or []) | {key for one in sets for key in one}


def check_input(where, route, sent):
    """Checks the parameters: the gateway refuses a call that lacks a required one, or has an undeclared one."""
    if "input" not in route:
        return
    declared = {parameter["name"]: parameter for parameter in route["input"]}
    for name in sent - set(declared):
        fault(where, f"the parameter {name!r} is not declared by the route {route['name']!r}")
    for name, parameter in declared.items():
        if parameter.get("required") and name not in sent:
            fault(where, f"the parameter {name!r}, which the route {route['name']!r} requires, is not sent")


def check_applicationset(file, document, config, source, argocd_documents):
    for required in (("metadata", "name"), ("spec", "generators"), ("spec", "template", "metadata", "name"),
                     ("spec", "template", "spec", "project"), ("spec", "template", "spec", "source", "repoURL"),
                     ("spec", "template", "spec", "destination", "namespace")):
        if not dig(document, *required):
            fault(file, f"{'.'.join(required)} is missing")
    if (document.get("apiVersion"), document.get("kind")) != ("argoproj.io/v1alpha1", "ApplicationSet"):
        fault(file, "must be an argoproj.io/v1alpha1 ApplicationSet")
    if dig(document, "spec", "goTemplate") is not True:
        fault(file, "spec.goTemplate must be true")
    if "missingkey=error" not in (dig(document, "spec", "goTemplateOptions") or []):
        fault(file, "spec.goTemplateOptions must hold missingkey=error")

    generators = []
    for generator in dig(document, "spec", "generators") or []:
        children = dig(generator, "matrix", "generators")
        if "matrix" in generator and len(children or []) != 2:
            fault(file, "a matrix has two generators")
        generators += children or [generator]

    name, known, asks_us, is_open = dig(document, "metadata", "name") or "", set(), False, False
    for generator in generators:
        if "pullRequest" in generator:
            known |= PULL_REQUEST
        elif plugin := generator.get("plugin"):
            asks_us = True
            config_map = dig(plugin, "configMapRef", "name")
            if not the(argocd_documents, "ConfigMap", config_map or "?"):
                fault(file, f"plugin.configMapRef.name is {config_map!r}, which deploy/kustomize/argocd does not hold")
            check_template(file, {"plugin": plugin}, known)
            route = route_of(config, name)
            if route is None:
                fault(file, f"no route of {source.relative_to(ROOT)} matches the ApplicationSet {name!r}")
                route = {}
            check_input(file, route, set(dig(plugin, "input", "parameters") or {}))
            keys = answer_keys(route) | {"generator"} | ({"values"} if plugin.get("values") else set())
            for key in sorted(keys & known):
                fault(file, f"the answer's {key!r} is lost: a matrix keeps the value of its first generator")
            known |= keys
            is_open |= passes_on(route)
        else:
            fault(file, f"unexpected generator: {', '.join(generator)}")
    if not asks_us:
        fault(file, "no generator is a plugin")

    template = dig(document, "spec", "template") or {}
    check_template(file, {"template": template}, None if is_open else known)
    for path in (("metadata", "name"), ("spec", "destination", "namespace"), ("spec", "source", "helm", "releaseName")):
        text = dig(template, *path) or ""
        if re.search(r"\{\{[^}]*\.(branch|title|author)\b", text):
            fault(file, f"template.{'.'.join(path)}: {text} may not be a DNS name; use .branch_slug or .number")
        if text.startswith("{{"):
            fault(file, f"template.{'.'.join(path)}: {text} needs a fixed prefix, lest somebody else choose the whole name")
