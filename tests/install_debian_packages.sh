#!/bin/bash
# Install the Debian packages that are missing. Usage: install_debian_packages.sh environment|tests|bench
#   environment   packages for making a virtual environment
#   tests         programs that the tests use
#   bench         programs that the benchmark compares with
# A package that would start a service is only unpacked, into .cache/debian. If that fails, tests use the program of a wheel.
# Exit codes: 0 everything is installed, 1 a package is missing and cannot be installed from here, 2 wrong usage.
set -euo pipefail

[[ $(uname -s) == Linux ]] || exit 0 # elsewhere the tests that need these programs do not run

missing=()

need() { # PACKAGE COMMAND…
  local package=$1 command
  shift
  for command; do
    type -P "$command" >/dev/null || { missing+=("$package") && return; }
  done
}

case ${1-} in
  environment)
    "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    ;;
  tests)
    need util-linux unshare nsenter setpriv
    need mount mount
    need tmux tmux
    need systemd-standalone-tmpfiles systemd-tmpfiles # part of systemd where that is installed
    need chromium chromium
    [[ -x /usr/sbin/mkfs.ext4 || -x /sbin/mkfs.ext4 ]] || missing+=(e2fsprogs) # not in every PATH
    [[ -x /usr/sbin/ip || -x /sbin/ip || -x /bin/ip ]] || missing+=(iproute2) # nor is this
    [[ -e /usr/share/i18n/charmaps/ISO-8859-1.gz ]] || missing+=(locales)
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=(faketime)
    ;;
  bench)
    need jq jq
    need util-linux setpriv
    ;;
  *)
    sed -n 2,5p "$0" >&2
    exit 2
    ;;
esac

unpack() { # PACKAGE PROGRAM
  local cache=.cache/debian
  [[ ! -x $cache/$2 ]] || return 0
  type -P apt-get dpkg >/dev/null || return 0
  mkdir -p "$cache/packages"
  chmod a+rwx "$cache/packages" # apt-get downloads as a user of its own
  ((EUID)) || apt-get update -q </dev/null
  (cd "$cache/packages" && apt-get download -q "$1") && dpkg -x "$cache/packages/$1"_*.deb "$cache" ||
    printf 'Warning: %s cannot be downloaded; the tests use the one of a wheel.\n' "$1" >&2
}

if [[ $1 != environment ]]; then
  unpack etcd-server usr/bin/etcd
fi

((${#missing[@]})) || exit 0

if ! type -P apt-get >/dev/null; then
  printf 'Error: packages are missing, in Debian called: %s. Install them with the package manager of this system.\n' "${missing[*]}" >&2
  exit 1
fi
if ((EUID)); then
  printf "This needs Debian packages that are not installed. Run this, then try again:\n" >&2
  printf "  sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends %s'\n" "${missing[*]}" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null
apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null
