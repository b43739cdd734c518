#!/usr/bin/env bash
# Builds Helm with Go, and copies the schemas of Kubernetes and of the Prometheus operator, for the tests of the chart. Usage: get-helm.sh
# DIR. Needs Go and two minutes of two processors; a directory that has it all is left as it is.
set -euo pipefail
HELM=v3.22.0 KUBERNETES=v1.37.2 OPERATOR=v0.85.0
directory=${1:?usage: get-helm.sh DIR}
wanted="$HELM $KUBERNETES $OPERATOR"
[ "$(cat "$directory/versions" 2>/dev/null)" != "$wanted" ] || exit 0

go=$(command -v go || echo /usr/local/go/bin/go)
[ -x "$go" ] || { echo "get-helm.sh: there is no Go to build Helm with" >&2; exit 3; }
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
export GOMODCACHE="$scratch/modules" GOCACHE="$scratch/build" GOBIN="$scratch/bin" GOFLAGS=-mod=mod CGO_ENABLED=0
cd "$scratch"
"$go" install -trimpath "helm.sh/helm/v3/cmd/helm@$HELM" 2> >(grep -v '^go: downloading' >&2)
# They are read, not built.
"$go" mod download "k8s.io/kubernetes@$KUBERNETES" "github.com/prometheus-operator/prometheus-operator@$OPERATOR"

mkdir -p "$directory"
install -m 0755 bin/helm "$directory/helm"
install -m 0644 "modules/k8s.io/kubernetes@$KUBERNETES/api/openapi-spec/swagger.json" "$directory/kubernetes.json"
definitions="modules/github.com/prometheus-operator/prometheus-operator@$OPERATOR/example/prometheus-operator-crd"
for kind in servicemonitors prometheusrules; do
  install -m 0644 "$definitions/monitoring.coreos.com_$kind.yaml" "$directory/$kind.yaml"
done
echo "$wanted" >"$directory/versions"
