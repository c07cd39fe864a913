#!/usr/bin/env bash
# need.sh WHAT...: says all that is missing on this machine, and what to install, before a target starts.
set -euo pipefail

missing=()
have() { command -v "$1" >/dev/null; }
for what in "$@"; do
  case $what in
  linux)
    [ "$(uname -s)" = Linux ] || missing+=("Linux: containers do not run on $(uname -s); 'make sim' and 'make test-quick' do") ;;
  root)
    [ "$(id -u)" = 0 ] || missing+=("root: real containers, namespaces and mounts need it (sudo make ...); 'make sim' and 'make test-quick' do not") ;;
  go)
    have go || missing+=("Go $(awk '$1 == "go" { print $2 }' "$(dirname "$0")/../go.work") or newer: https://go.dev/dl") ;;
  cc)
    cc=$(go env CC 2>/dev/null || echo cc)
    have "${cc%% *}" || missing+=("a C compiler ($cc): apt-get install gcc libc6-dev") ;;
  git)
    have git || missing+=("git: apt-get install git") ;;
  docker)
    have dockerd && have docker || missing+=("docker, with its daemon: apt-get install docker.io (from Debian 13 on: docker.io docker-cli)") ;;
  busybox)
    # The test images' shell: it stands alone in an image, so it must be the static one.
    if ! have busybox || ldd "$(command -v busybox)" >/dev/null 2>&1; then
      missing+=("a static busybox: apt-get install busybox-static")
    fi ;;
  *)
    echo "need.sh: what is $what?" >&2
    exit 2 ;;
  esac
done

if [ ${#missing[@]} -gt 0 ]; then
  echo "missing on this machine:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi
