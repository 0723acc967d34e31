# How the scripts talk. Sourced, never run.

SCRIPT_STARTED=${SCRIPT_STARTED:-$SECONDS}

# One line per step, with the seconds since the script began.
say() {
  printf '==> [%4ds] %s\n' "$((SECONDS - SCRIPT_STARTED))" "$*"
}

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
