#!/usr/bin/env bash
# standalone.sh MODULE-FOLDER...: builds each module of the workspace as if there were no workspace, then holds the
# version of every dependency that is compiled into more than one module to be the same everywhere: what is tested
# in the workspace is what somebody who requires a single module gets.
set -euo pipefail
cd "$(dirname "$0")/.."

deps='{{with .Module}}{{if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}'
list=$(mktemp)
trap 'rm -f "$list"' EXIT

broken=()
for m in "$@"; do
  GOWORK=off go -C "$m" build -o /dev/null ./... || broken+=("$m")
  GOWORK=off go -C "$m" list -deps -test -f "$deps" ./... | sort -u | sed "s|\$| $m|" >>"$list" || broken+=("$m")
done
if [ ${#broken[@]} -gt 0 ]; then
  echo "these modules do not build without the workspace (make tidy may be all they need):" >&2
  printf '%s\n' "${broken[@]}" | sort -u | sed 's/^/  /' >&2
  exit 1
fi
go list -deps -test -f "$deps" work | sort -u | sed 's|$| (workspace)|' >>"$list"

awk '
  { if ($1 in version && version[$1] != $2) differs[$1] = 1
    version[$1] = $2
    where[$1] = where[$1] "\n    " $2 "  " $3 }
  END {
    for (d in differs) { print "  " d where[d]; bad = 1 }
    if (bad) exit 1
  }' "$list" || {
  echo "the modules above differ in version: run make tidy and commit" >&2
  exit 1
}
