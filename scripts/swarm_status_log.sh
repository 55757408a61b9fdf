#!/bin/bash
# The shared status log from a shell. Usage and exit codes: swarm_status_log.sh --help
set -euo pipefail

self=${BASH_SOURCE[0]}
while [[ -L $self ]]; do # find the checkout also through symlinks
  target=$(readlink -- "$self")
  [[ $target == /* ]] || target=$(dirname -- "$self")/$target
  self=$target
done
[[ $self == /* ]] || self=$PWD/$self

start='import sys; sys.path.insert(0, sys.argv.pop(1)); from swarm.cli.start import start; start()'
exec "${SWARM_PYTHON:-python3}" -I -S -Xutf8 -c "$start" "${self%/*}/.." log "$@"
