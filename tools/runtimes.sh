#!/usr/bin/env bash
# Builds containerd, its shim with ctr, and runc from the modules pinned under tools/ into build/runtime/bin.
# Builds only what is missing or was built from other pins, with other tags or by another Go.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/build/runtime/bin
stamps=$PWD/build/runtime/stamps
containerd=github.com/containerd/containerd/v2
runc=github.com/opencontainers/runc

# The node agent speaks to containerd's own API, so the CRI plugin stays out, and with it a third of the build.
# The three snapshotters left out need their own disks or kernel modules.
containerd_tags="no_cri no_btrfs no_devmapper no_zfs"
runc_tags="netgo osusergo urfave_cli_no_docs"

if [ "$(go env GOOS)" != linux ]; then
  echo "containerd and runc run on Linux only; on this system use 'make sim' (simulated nodes)." >&2
  exit 1
fi

pinned() { # MODULE FOLDER: the version that tools/FOLDER/go.mod requires
  awk -v m="$1" '$1 == m && $2 ~ /^v/ { print $2; exit } $1 == "require" && $2 == m { print $3; exit }' "tools/$2/go.mod"
}

has_seccomp() {
  command -v pkg-config >/dev/null && pkg-config --exists libseccomp &&
    [ -e "$(pkg-config --variable=libdir libseccomp)/libseccomp.a" ]
}

seccomp=yes
if has_seccomp; then runc_tags+=" seccomp"; else seccomp=no; fi

stamp_of() { # FOLDER TAGS: what a binary was made from
  echo "$(cksum <"tools/$1/go.sum") $(go env GOVERSION) $(go env GOARCH) $2"
}
is_current() { # NAME FOLDER TAGS
  [ -x "$out/$1" ] && [ "$(cat "$stamps/$1" 2>/dev/null)" = "$(stamp_of "$2" "$3")" ]
}

containerd_version=$(pinned $containerd containerd)
runc_version=$(pinned $runc runc)
plan=()
is_current containerd containerd "$containerd_tags" || plan+=(containerd)
is_current containerd-shim-runc-v2 containerd "$containerd_tags" || plan+=(containerd-shim-runc-v2)
is_current runc runc "$runc_tags" || plan+=(runc)

warn_seccomp() {
  [ $seccomp = yes ] && return
  echo "warning: runc without seccomp: a pod that asks for a seccomp profile (RuntimeDefault, Localhost) will be refused." >&2
  echo "         To have it: apt-get install libseccomp-dev pkg-config, then make runtimes." >&2
}

if [ ${#plan[@]} -eq 0 ]; then
  [ -n "${QUIET:-}" ] || echo "runtimes are current in build/runtime/bin: containerd $containerd_version, runc $runc_version"
  warn_seccomp
  exit 0
fi

# All that is needed is asked for before anything is built.
if [[ " ${plan[*]} " == *" runc "* ]]; then
  cc=$(go env CC)
  if ! command -v "${cc%% *}" >/dev/null; then
    echo "runc needs a C compiler and there is no $cc. Debian: apt-get install gcc libc6-dev" >&2
    exit 1
  fi
  probe=$(mktemp -d)
  trap 'rm -rf "$probe"' EXIT
  if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $cc -static -x c - -o "$probe/a" 2>"$probe/err"; then
    sed 's/^/  /' "$probe/err" >&2
    echo "runc is linked statically and $cc cannot do that here. Debian: apt-get install libc6-dev; Fedora: dnf install glibc-static" >&2
    exit 1
  fi
fi

build() { # NAME
  case $1 in
  containerd)
    GOWORK=off CGO_ENABLED=0 go -C tools/containerd build -trimpath -tags "$containerd_tags" \
      -ldflags "-s -w -X $containerd/version.Version=$containerd_version -X $containerd/version.Package=$containerd" \
      -o "$out/" $containerd/cmd/containerd
    stamp_of containerd "$containerd_tags" >"$stamps/$1"
    ;;
  containerd-shim-runc-v2)
    GOWORK=off CGO_ENABLED=0 go -C tools/containerd build -trimpath -tags "$containerd_tags" \
      -ldflags "-s -w -X $containerd/version.Version=$containerd_version -X $containerd/version.Package=$containerd" \
      -o "$out/" $containerd/cmd/containerd-shim-runc-v2 $containerd/cmd/ctr
    stamp_of containerd "$containerd_tags" >"$stamps/$1"
    ;;
  runc)
    GOWORK=off CGO_ENABLED=1 go -C tools/runc build -trimpath -tags "$runc_tags" \
      -ldflags "-s -w -linkmode external -extldflags -static" -o "$out/" $runc
    stamp_of runc "$runc_tags" >"$stamps/$1"
    ;;
  esac
}
describe() { # NAME
  case $1 in
  containerd) echo "containerd $containerd_version (about 2.5 minutes on two cores)" ;;
  containerd-shim-runc-v2) echo "containerd-shim-runc-v2 and ctr $containerd_version (about half a minute)" ;;
  runc) echo "runc $runc_version (about half a minute; seccomp: $seccomp)" ;;
  esac
}

mkdir -p "$out" "$stamps"
echo "building what is missing in build/runtime/bin: ${plan[*]}"
warn_seccomp
all=$SECONDS n=0
for name in "${plan[@]}"; do
  n=$((n + 1)) from=$SECONDS
  echo "[$n/${#plan[@]}] $(describe "$name") ..."
  build "$name"
  echo "[$n/${#plan[@]}] $name built in $((SECONDS - from)) s"
done
echo "runtimes ready in $((SECONDS - all)) s"
