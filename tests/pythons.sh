#!/bin/bash
# Run a command or the fast tests under a newer Python than this machine has. Needs root and Debian's apt.
# Usage: tests/pythons.sh run VERSION COMMAND…            e.g. tests/pythons.sh run 3.15 python3 -m swarm demo
#        tests/pythons.sh test VERSION… [-- ARGUMENT…]    the demo, the end-to-end check, and pytest with the arguments
# The first call unpacks Debian's packages of 3.13, 3.14 and 3.15 into .cache/pythons (300 MB, half a minute).
# A command sees a minimal Debian with that Python as python3, and this checkout at its own path.
# The package mirror is that of this machine's apt. Its address is written to no file that stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=.cache/pythons
packages=(python3.13 python3.14 python3.15 python3-yaml)
packages+=(bash coreutils findutils git grep gzip locales procps sed util-linux) # the tests call their programs

usage() {
  sed -n 2,7p "tests/pythons.sh" >&2
  exit 2
}

fail() {
  printf 'Error: %s\n' "$1" >&2
  exit 1
}

check_machine() {
  local command
  [[ $(uname -s) == Linux ]] || fail 'other Pythons are tested on Linux.'
  for command in apt-get apt-cache dpkg-deb; do
    type -P "$command" >/dev/null || fail "there is no $command. Other Pythons are unpacked from Debian's packages: use Debian, or a container of it."
  done
  for command in unshare chroot flock; do
    type -P "$command" >/dev/null || fail "there is no $command. Install Debian's package util-linux (for chroot: coreutils)."
  done
  ((EUID == 0)) || fail 'unpacking and entering another Python needs root. Run: sudo make test-pythons'
}

unpack() { # once, until the list of packages changes
  [[ ! -e $cache/root.complete || $(<"$cache/root.complete") != "${packages[*]}" ]] || return 0
  printf 'Unpacking Pythons into %s …\n' "$cache" >&2
  local work=$PWD/$cache/new keyring mirror wanted deb apt
  rm -rf "$cache/root.complete" "$cache/root" "$work"
  mkdir -p "$work"/{lists/partial,cache/archives/partial,debs} "$work"/root/{proc,dev,tmp,etc} "$work"/root/usr/{bin,lib,lib64,sbin}
  keyring=$(compgen -G '/usr/share/keyrings/debian-archive-keyring.[gp][gp][gp]' | head -1) ||
    fail "there are no keys of Debian's archive. Install debian-archive-keyring."
  # shellcheck disable=SC2016  # not the shell's variables: apt's
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/*$') ||
    fail "the sources of apt name no mirror of Debian."
  printf 'deb [signed-by=%s] %s sid main\n' "$keyring" "$mirror" >"$work/sources.list"
  apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
  apt-get "${apt[@]}" update </dev/null
  mapfile -t wanted < <(apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "${packages[@]}" | grep -E '^[a-z0-9]' | sort -u)
  (cd "$work/debs" && apt-get "${apt[@]}" download "${wanted[@]}" </dev/null)
  for deb in bin lib lib64 sbin; do
    ln -s "usr/$deb" "$work/root/$deb"
  done
  for deb in "$work"/debs/*.deb; do
    dpkg-deb -x "$deb" "$work/root"
  done
  ln -sf bash "$work/root/usr/bin/sh"
  printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n' >"$work/root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$work/root/etc/group"
  printf '127.0.0.1 localhost\n' >"$work/root/etc/hosts"
  mv "$work/root" "$cache/root"
  rm -rf "$work"
  printf '%s\n' "${packages[*]}" >"$cache/root.complete"
}

run() { # VERSION COMMAND…
  [[ -x $cache/root/usr/bin/python$1 ]] || fail "there is no Python $1 among Debian's packages: $(known)."
  # In a mount namespace of its own: nothing stays mounted, however the command ends.
  # shellcheck disable=SC2016  # the inner shells expand them
  unshare --mount -- bash -euc '
    root=$PWD/$1 version=$2 here=$PWD
    shift 2
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    repository=$(git rev-parse --path-format=absolute --git-common-dir 2>/dev/null || true) # a worktree has it elsewhere
    for tree in "$here" ${repository:+"$repository"}; do
      mkdir -p "$root$tree"
      mount --bind "$tree" "$root$tree"
    done
    site=$root/usr/local/lib/python$version/dist-packages
    mkdir -p "$root/tmp/bin" "$site" ".cache/pythons/wheels/$version"
    mount --bind ".cache/pythons/wheels/$version" "$site"
    ln -s "/usr/bin/python$version" "$root/tmp/bin/python3"
    exec chroot "$root" /usr/bin/env -i PATH=/tmp/bin:/usr/bin:/usr/sbin HOME=/tmp LANG=C.UTF-8 TERM=xterm \
      GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="*" \
      ${CI:+CI="$CI"} ${PYTHONWARNINGS:+PYTHONWARNINGS="$PYTHONWARNINGS"} \
      bash -c "cd \"\$1\" && shift && exec \"\$@\"" - "$here" "$@"
  ' - "$cache/root" "$@"
}

known() {
  (cd "$cache/root/usr/bin" && compgen -G 'python3.[0-9][0-9]') | tr '\n' ' ' | sed 's/python//g; s/ $//'
}

pip() { # pip of the environment, otherwise one of its own
  local python=.venv/bin/python
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    python=$cache/pip/bin/python
    [[ -x $python ]] || uv venv --quiet --seed "$cache/pip" 2>/dev/null || "${PYTHON:-python3}" -m venv "$cache/pip"
  fi
  "$python" -m pip --disable-pip-version-check "$@"
}

install_wheels() { # VERSION; note the packages without a wheel
  local version=$1 wheels=$cache/wheels/$1 arch missing name output
  arch=$(uname -m)
  [[ ! -e $wheels.complete || $wheels.complete -ot requirements/pythons.txt ]] || return 0
  rm -rf "$wheels"
  mkdir -p "$wheels"
  cp requirements/pythons.txt "$wheels.txt"
  : >"$wheels.complete.new"
  until output=$(pip install --quiet --target "$wheels" --no-deps --require-hashes -r "$wheels.txt" --only-binary=:all: \
    --implementation cp --python-version "$version" \
    --platform "manylinux_2_28_$arch" --platform "manylinux_2_17_$arch" --platform "manylinux2014_$arch" 2>&1); do
    missing=$(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' <<<"$output" | head -1)
    [[ -n $missing ]] || fail "pip cannot install the wheels for Python $version: $output"
    printf 'No wheel for Python %s: %s\n' "$version" "$missing" >>"$wheels.complete.new"
    name=${missing%%=*}
    sed -i "/^$name==/,/^[^ ]/{/^$name==/d;/^ /d}" "$wheels.txt"
  done
  mv "$wheels.complete.new" "$wheels.complete"
}

test_version() { # VERSION ARGUMENT…
  local version=$1 module without=()
  shift
  printf '\n== Python %s ==\n' "$version"
  cat "$cache/wheels/$version.complete"
  for module in jsonschema mcp psycopg redis starlette uvicorn yaml; do
    run "$version" python3 -c "import $module" 2>/dev/null || without+=("--without=$module")
  done
  ((${#without[@]})) || printf 'Every module that the tests import is there, as a wheel or as a package of Debian.\n'
  PYTHONWARNINGS=error run "$version" python3 -m swarm demo --json | grep '"ok": true' >/dev/null ||
    fail "the demo fails under Python $version. Run: tests/pythons.sh run $version python3 -m swarm demo"
  printf 'Demo passed\n'
  PYTHONWARNINGS=error run "$version" scripts/swarm_e2e_test.sh | tail -1 ||
    fail "the end-to-end check fails under Python $version. Run: tests/pythons.sh run $version scripts/swarm_e2e_test.sh"
  run "$version" python3 -m pytest --fast -n "${JOBS:-3}" --dist loadfile -p no:cacheprovider "${without[@]}" "$@"
}

prepare() {
  check_machine
  mkdir -p "$cache/wheels"
  exec {lock}>"$cache/lock"
  flock "$lock"
  unpack
}

case ${1-} in
  run)
    (($# >= 3)) || usage
    prepare
    flock --unlock "$lock"
    run "${@:2}"
    ;;
  test)
    shift
    versions=()
    while (($#)) && [[ $1 != -- ]]; do
      versions+=("$1")
      shift
    done
    ((${#versions[@]})) || usage
    prepare
    for version in "${versions[@]}"; do
      install_wheels "$version"
    done
    flock --unlock "$lock"
    for version in "${versions[@]}"; do
      test_version "$version" "${@:2}"
    done
    ;;
  *) usage ;;
esac
