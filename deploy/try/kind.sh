#!/usr/bin/env bash
# usage: deploy/try/kind.sh [up|outage|page|down]
#
# Shows the gateway in a cluster of its own on this machine, in some minutes: kind, Argo CD, a registry with the images of two previews, the gateway
# by Helm, and an ApplicationSet that has an Application for each preview. Then it takes the registry away, and shows that no Application goes.
#
#   up      make all of it (what no argument does, followed by `outage`)
#   outage  the registry is gone; it comes back and has lost everything; it has one foreign image: 2 Applications stay each time
#   page    forward the admin port, and print where the page is, and its token
#   down    delete the cluster
#
# You need Linux with docker, kind, kubectl and helm, and some 4 GB of memory. Nothing outside of the kind cluster is changed.
#
# THIS SCRIPT WAS NEVER RUN AS A WHOLE: the project's tests have no container engine. shellcheck reads it, its manifests are checked against the
# schemas of Kubernetes and Argo CD, the chart's values are rendered and served by the gateway, and the three outages were played by hand with
# the same configuration and docker-registry, without a cluster.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=../release.env
. deploy/release.env
argocd=v3.5.1
cluster=appset-gateway-try
registry=registry:2.8.3
port=5077

for program in docker kind kubectl helm; do
  command -v "$program" >/dev/null || { echo "kind.sh: $program is missing" >&2; exit 1; }
done

# Never another cluster, whatever the current context is.
kube() { kubectl --context "kind-$cluster" "$@"; }
gateway() { kube -n appset-gateway exec deploy/appset-gateway -- appset-gateway "$@"; }
say() { printf '\n== %s\n' "$*"; }

up() {
  say "A cluster, and Argo CD $argocd"
  kind get clusters 2>/dev/null | grep -qx "$cluster" || kind create cluster --name "$cluster" --wait 180s
  kube create namespace argocd --dry-run=client -o yaml | kube apply -f -
  # On the server: the ApplicationSet's CRD is too large for the annotation of a client's apply.
  kube apply --server-side --force-conflicts -n argocd -f "https://raw.githubusercontent.com/argoproj/argo-cd/$argocd/manifests/install.yaml"

  say "The gateway's image"
  docker build -f deploy/Dockerfile -t "appset-gateway:$VERSION" .
  docker pull "docker.io/library/$registry"
  kind load docker-image --name "$cluster" "appset-gateway:$VERSION" "docker.io/library/$registry"

  say "A registry with the images of two previews"
  kube apply -f deploy/try/registry.yaml
  kube -n registry rollout status deployment/registry --timeout=180s
  push pr-1 pr-2

  say "The gateway"
  helm upgrade --install appset-gateway deploy/helm/appset-gateway --kube-context "kind-$cluster" --namespace appset-gateway --create-namespace \
    --values deploy/helm/appset-gateway/ci/try.yaml --wait --timeout 5m
  helm test appset-gateway --kube-context "kind-$cluster" --namespace appset-gateway --logs

  say "The previews"
  kube -n argocd rollout status deployment/argocd-applicationset-controller --timeout=300s
  kube apply -f deploy/try/applicationset.yaml
  wait_for_applications 2
}

# Pushes an image under these tags, through a forwarded port.
push() {
  kube -n registry port-forward service/registry "$port:5000" >/dev/null &
  local forward=$!
  for _ in $(seq 30); do
    (: < "/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 1
  done
  for tag in "$@"; do
    docker tag "docker.io/library/$registry" "localhost:$port/shop:$tag"
    docker push --quiet "localhost:$port/shop:$tag"
  done
  kill "$forward"
}

# Asks Argo CD to ask again now.
refresh() {
  kube -n argocd annotate applicationset previews --overwrite "argocd.argoproj.io/application-set-refresh=$(date +%s%N)" >/dev/null
}

count() { kube -n argocd get applications -o name | wc -l; }

wait_for_applications() {
  for _ in $(seq 60); do
    [ "$(count)" -ne "$1" ] || break
    refresh
    sleep 5
  done
  kube -n argocd get applications
  [ "$(count)" -eq "$1" ] || { echo "kind.sh: there are $(count) Applications, not $1; see: kubectl -n argocd get applicationset previews -o yaml" >&2; exit 1; }
}

# Longer than the route's `ttl` of 10 s, and Argo CD asks at once.
look() {
  for _ in 1 2 3; do
    sleep 12
    refresh
  done
  gateway status || true # 1 if something is held or failing, which is what this is about
  wait_for_applications 2
}

outage() {
  say "Outage 1: the registry is gone. The gateway serves the last good answer"
  kube -n registry scale deployment/registry --replicas=0
  kube -n registry wait --for=delete pod -l app.kubernetes.io/name=registry --timeout=120s
  look

  say "Outage 2: the registry is back, and has lost everything. Its 404 does not prove that there are no previews"
  kube -n registry scale deployment/registry --replicas=1
  kube -n registry rollout status deployment/registry --timeout=180s
  look

  say "Outage 3: somebody pushed another image, so the list is there and has no preview. The guard holds the answer until an operator decides"
  push latest
  look
  gateway held list || true

  say "The previews are pushed again: nothing is held any more"
  push pr-1 pr-2
  look
}

page() {
  local token
  token=$(kube -n appset-gateway get secret appset-gateway-admin -o go-template='{{ .data.token | base64decode }}')
  echo "Open http://localhost:4356 and paste the token $token. Ctrl-C ends the forwarding."
  kube -n appset-gateway port-forward service/appset-gateway 4356
}

case ${1:-} in
  "")
    up
    outage
    say "See the page by: deploy/try/kind.sh page. Remove everything by: deploy/try/kind.sh down"
    ;;
  up | outage | page) "$1" ;;
  down) kind delete cluster --name "$cluster" ;;
  *) sed -n 2p "$0" >&2; exit 2 ;;
esac
