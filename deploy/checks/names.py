"""The names of deploy/release.env, and each place that repeats one. Some formats can read them from nowhere else."""

import re

from .faults import DEPLOY, ROOT, cannot_run, fault

RELEASE = DEPLOY / "release.env"
KEYS = ("VERSION", "REPOSITORY", "IMAGE", "CMP_IMAGE", "CHARTS")
NUMBER = r"(\d+\.\d+\.\d+)"
# A tag of one of the images, or of an image that is built from it.
TAG = rf"(?:appset-gateway|appset-gateway-runtimes|cmp-gateway):{NUMBER}"
RUNBOOK = r"(https://[^\s\"'|]+)/blob/main"

# (files, pattern whose only group is the name, key). Each file has the pattern at least once.
PLACES = (
    (("Cargo.toml",), rf'^version = "{NUMBER}"$', "VERSION"),
    (("openapi.yaml",), rf"^  version: {NUMBER}$", "VERSION"),
    (("deploy/helm/appset-gateway/Chart.yaml", "deploy/helm/cmp-plugin/Chart.yaml"), rf"^(?:version|appVersion): {NUMBER}$", "VERSION"),
    (("deploy/kustomize/common/deployment.yaml",), rf"app\.kubernetes\.io/version: {NUMBER}$", "VERSION"),
    (("deploy/kustomize/common/deployment.yaml", "deploy/cmp/relay/repo-server.yaml", "deploy/cmp/relay/argo-helm-values.yaml", "deploy/Dockerfile",
      "deploy/cmp/Dockerfile", "deploy/examples/runtimes.Dockerfile", "deploy/README.md", "docs/runtimes.md"), TAG, "VERSION"),
    (("deploy/Dockerfile",), rf"^ARG VERSION={NUMBER}$", "VERSION"),
    (("deploy/Dockerfile",), r"^ARG SOURCE=(\S+)$", "REPOSITORY"),
    (("deploy/kustomize/images/kustomization.yaml",), rf"newTag: {NUMBER}$", "VERSION"),
    (("deploy/kustomize/images/kustomization.yaml",), r"- name: appset-gateway\n +newName: (\S+)$", "IMAGE"),
    (("deploy/kustomize/images/kustomization.yaml",), r"- name: cmp-gateway\n +newName: (\S+)$", "CMP_IMAGE"),
    (("deploy/helm/appset-gateway/values.yaml",), r"^  repository: (\S*appset-gateway)$", "IMAGE"),
    (("deploy/helm/appset-gateway/values.yaml", "deploy/helm/appset-gateway/templates/monitoring.yaml", "deploy/observability/rules.yaml",
      "deploy/observability/cmp-rules.yaml"), RUNBOOK, "REPOSITORY"),
    (("deploy/argocd-apps/application.yaml", "deploy/argocd-apps/per-cluster.yaml", "deploy/examples/kpt/applicationset.yaml"),
     r"repoURL: (https://\S+)\.git$", "REPOSITORY"),
    (("deploy/argocd-apps/project.yaml", "deploy/examples/kpt/project.yaml"), r"sourceRepos: \[(https://\S+)\.git\]$", "REPOSITORY"),
)
# What `deploy/chart --write` makes of the files above.
MADE = ("deploy/helm/rendered/", "deploy/helm/appset-gateway/files/", "deploy/helm/appset-gateway/README.md")


def read_names():
    """The names by their keys."""
    names = dict(re.findall(r"^([A-Z_]+)=(\S+)$", RELEASE.read_text(), re.MULTILINE))
    if set(names) != set(KEYS):
        cannot_run(f"deploy/release.env must set exactly {', '.join(KEYS)}; it sets {', '.join(names)}")
    if not re.fullmatch(NUMBER, names["VERSION"]):
        cannot_run(f"VERSION in deploy/release.env is {names['VERSION']}; it must be three numbers, such as 0.1.0")
    if not re.fullmatch(r"https://[^\s/]+/\S*[^/]", names["REPOSITORY"]) or names["REPOSITORY"].endswith(".git"):
        cannot_run(f"REPOSITORY in deploy/release.env is {names['REPOSITORY']}; it must begin with https:// and end without `/` and `.git`")
    if not names["IMAGE"].endswith("/appset-gateway") or not names["CMP_IMAGE"].endswith("/cmp-gateway"):
        cannot_run("in deploy/release.env IMAGE must end with /appset-gateway, and CMP_IMAGE with /cmp-gateway: the manifests name them so")
    return names


def written(text, pattern, name):
    """The text with this name in each place of the pattern, and how many places there are."""
    return re.subn(pattern, lambda match: match[0].replace(match[1], name), text, flags=re.MULTILINE)


def texts(names):
    """Each file of PLACES with its text as it is, and as it must be."""
    before, after = {}, {}
    for files, pattern, key in PLACES:
        for file in files:
            before.setdefault(file, (ROOT / file).read_text())
            after[file], count = written(after.get(file, before[file]), pattern, names[key])
            if count == 0:
                fault(ROOT / file, f"has no place for {key} of deploy/release.env (checks/names.py says where it was)")
    return {file: (before[file], after[file]) for file in before}


def write_names():
    for file, (before, after) in texts(read_names()).items():
        if before != after:
            (ROOT / file).write_text(after)
            print(f"deploy: wrote {file}")


def check_names():
    names = read_names()
    of = texts(names)
    for file, (before, after) in of.items():
        for number, (one, other) in enumerate(zip(before.splitlines(), after.splitlines()), 1):
            if one != other:
                fault(f"{file}:{number}", f"`{one.strip()}` is not as in deploy/release.env: run `make names`")
    for file in sorted([*DEPLOY.rglob("*"), *(ROOT / "docs").rglob("*"), *ROOT.glob("*.md")]):
        path = file.relative_to(ROOT).as_posix()
        if file.is_file() and path not in of and file != RELEASE and not path.startswith(MADE):
            check_elsewhere(file, names)


def check_elsewhere(file, names):
    """A name in a file that is not in PLACES would stay as it is when release.env changes."""
    text = file.read_bytes()
    for key in KEYS[1:]:
        if names[key].encode() in text:
            fault(file, f"repeats {key} of deploy/release.env: add the place to checks/names.py, or write it without the name")
