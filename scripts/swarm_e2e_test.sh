#!/bin/bash
# End-to-end test: worker A locks a task, logs START and DONE, and releases it; then worker B
# locks the same task; the log is complete.
# Usage: swarm_e2e_test.sh          in a throwaway directory
#        SWARM_STATE_DIR=DIR swarm_e2e_test.sh   in DIR, which must not have the task yet
# Exit codes: 0 all steps passed, 1 a step failed.
set -euo pipefail

here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
lock=$here/swarm_lock.sh
log=$here/swarm_status_log.sh
task=e2e-$$

if [[ -z ${SWARM_STATE_DIR:-} ]]; then
  unset AI_SWARM_DIR
  SWARM_STATE_DIR=$(mktemp -d)
  trap 'rm -rf -- "$SWARM_STATE_DIR"' EXIT
fi
export SWARM_STATE_DIR

step() { # step "what must hold" command…
  local what=$1
  shift
  if "$@" >/dev/null 2>&1; then
    echo "PASS: $what"
  else
    echo "FAIL: $what" >&2
    exit 1
  fi
}
refuses() { ! "$@"; }
logged() { [[ $("$log" query "$task" | sed 's/.*"type": "\([A-Z]*\)".*"worker": "\([^"]*\)".*/\1 \2/' | paste -sd, -) == "$1" ]]; }

step "worker A acquires the lock" "$lock" acquire "$task" worker-A
step "worker B is refused meanwhile" refuses "$lock" acquire "$task" worker-B
step "worker A logs START" "$log" append START worker-A "$task"
step "worker A logs DONE" "$log" append DONE worker-A "$task" "all done"
step "worker B cannot release worker A's lock" refuses "$lock" release "$task" worker-B
step "worker A releases the lock" "$lock" release "$task" worker-A
step "worker B acquires the same task" "$lock" acquire "$task" worker-B
step "the log is complete and in order" logged "START worker-A,DONE worker-A"
step "log and locks are valid" "$log" validate
step "worker B releases the lock" "$lock" release "$task" worker-B
echo "End-to-end test passed"
