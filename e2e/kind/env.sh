# Names and places that every command here shares; sourced, never run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
. ../../tools/env

cluster=walrus
netns=${KIND_NAME:-walrus-kind}                            # the network namespace of our own engine
cache=${CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/$netns} # what is built, and the images of our own engine
version=$(awk '$1 == "k8s.io/kubernetes" {print $2}' programs/go.mod)
prefix=${IMAGE_PREFIX:-walrus} tag=${IMAGE_TAG:-$(sed -n 's/^version = "\(.*\)"/\1/p' ../../node_image/pyproject.toml)}
node=$prefix/walrus-node:$tag operator=$prefix/walrus-operator:$tag
client=$prefix/walrus-test-client:$tag later=$prefix/walrus-test-later:$tag skipping=$prefix/walrus-test-skipping:$tag

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }

# packages NAME…: install the Debian packages that are missing.
packages() {
  dpkg -s "$@" >/dev/null 2>&1 && return
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# pulls: whether a docker engine is at hand that can fetch the ordinary base image.
pulls() {
  docker info && { docker image inspect "$ordinary_base" || timeout 120 docker pull "$ordinary_base"; }
} >/dev/null 2>&1

ordinary_base=python:3.11-slim-bookworm
own_socket=unix:///run/$netns/docker.sock
if [ -z "${KIND_ENGINE-}" ]; then
  KIND_ENGINE=own
  if ! DOCKER_HOST=$own_socket docker version >/dev/null 2>&1 && pulls; then KIND_ENGINE=docker; fi
fi
export KIND_ENGINE
case $KIND_ENGINE in
own) # everything is built here, see README.md
  state=/run/$netns # what ends with the engine
  node_image=walrus.local/node:$version
  base_image=walrus.local/python:3.11
  export DOCKER_HOST=$own_socket PATH=$cache/bin:$PATH
  inside() { nsenter --net=/run/netns/$netns "$@"; } # inside COMMAND…: in the network of the engine and its clusters
  ;;
docker) # an ordinary engine with a registry: the ordinary images of kind and Python
  state=$cache/ordinary
  node_image=''
  base_image=$ordinary_base
  inside() { "$@"; }
  ;;
*) fail "KIND_ENGINE is \`$KIND_ENGINE\`: own (built here) or docker (the engine at hand, which can pull)" ;;
esac
export KUBECONFIG=$state/kubeconfig
