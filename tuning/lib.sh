# What the files of this folder share: check, apply and revert of settings, and the state that revert needs.
# Sourced, never run. A file sources this, says in `settings PROFILE` what it wants, and ends with `tune "$@"`.
#
# A setting is a key and a value. A key is a path (below $TUNING_ROOT), or `kind:rest`, read by `get_kind rest` and
# written by `put_kind rest VALUE`. Exit codes: 0 all as wanted, 1 something is not or could not be set, 2 wrong usage,
# 3 refused: the family does not apply to this machine.

# A folder that stands for / in tests. Nothing outside of it is read or written.
TUNING_ROOT=${TUNING_ROOT:-}
# Old values, one file per family, kept until revert.
TUNING_STATE=${TUNING_STATE:-$TUNING_ROOT/var/lib/thalweg-tuning}

PROFILES=(throughput latency laptop)
FAMILY=$(basename "$0")
wanted_keys=() wanted_values=() consequences=()

say() { printf '%s: %s\n' "$FAMILY" "$*"; }

die() {
  printf '%s: error: %s\n' "$FAMILY" "$*" >&2
  exit 1
}

# refuse REASON: this machine has nothing of the kind.
refuse() {
  say "does not apply here: $*"
  exit 3
}

# want KEY VALUE CONSEQUENCE: exactly this. `want KEY '>=VALUE' ...`: at least so much, number by number.
want() {
  wanted_keys+=("$1") wanted_values+=("$2") consequences+=("$3")
}

# want_file PATH VALUE CONSEQUENCE: as want, where this kernel has the file.
want_file() {
  [ ! -e "$TUNING_ROOT$1" ] || want "$1" "$2" "$3"
}

# current KEY: its value; fails where there is none. Of a choice like "a [b] c" it is b.
current() {
  local value
  case $1 in
    /*)
      [ -r "$TUNING_ROOT$1" ] || return 1
      value=$(<"$TUNING_ROOT$1")
      if [[ $value =~ \[([^]]*)\] ]]; then value=${BASH_REMATCH[1]}; fi
      # Tables of numbers come with tabs.
      read -ra value <<<"$value"
      printf '%s\n' "${value[*]}"
      ;;
    *) "get_${1%%:*}" "${1#*:}" ;;
  esac
}

# put KEY VALUE
put() {
  case $1 in
    /*) printf '%s\n' "$2" 2>/dev/null >"$TUNING_ROOT$1" ;;
    *) "put_${1%%:*}" "${1#*:}" "$2" ;;
  esac
}

# goal CURRENT WANTED: what must be written, so that nothing that is larger already gets smaller.
goal() {
  [[ $2 == '>='* ]] || {
    printf '%s\n' "$2"
    return
  }
  local have=() least=() i
  read -ra have <<<"$1"
  read -ra least <<<"${2#>=}"
  for i in "${!least[@]}"; do
    # 64-bit numbers of the kernel may be larger than the shell's.
    if [ "${#have[i]}" -gt 18 ] || [ "${have[i]:-0}" -gt "${least[i]}" ]; then least[i]=${have[i]}; fi
  done
  printf '%s\n' "${least[*]}"
}

encoded() { printf '%s' "$1" | base64 -w 0; }
decoded() { printf '%s' "$1" | base64 -d; }

# One line per value as it was before the first apply: key, tab, the value in base64, or `-` where there was none.
STATE_FILE=$TUNING_STATE/$FAMILY

# remember KEY VALUE: only the first time, so that a second apply does not take its own values for the old ones.
remember() {
  local key rest
  mkdir -p "$TUNING_STATE"
  if [ -e "$STATE_FILE" ]; then
    while IFS=$'\t' read -r key rest; do [ "$key" != "$1" ] || return 0; done <"$STATE_FILE"
  fi
  printf '%s\t%s\n' "$1" "$2" >>"$STATE_FILE"
}

check_all() {
  local i key value faults=0
  for i in "${!wanted_keys[@]}"; do
    key=${wanted_keys[i]}
    value=$(current "$key") || value=
    if [ "$(goal "$value" "${wanted_values[i]}")" = "$value" ]; then
      say "ok    $key is $(shown "$value")"
    else
      say "DIFFERS $key is $(shown "$value"), wanted $(shown "${wanted_values[i]}"): ${consequences[i]}"
      faults=1
    fi
  done
  return "$faults"
}

# shown VALUE: of a whole file only that there is one.
shown() {
  case $1 in
    '') printf 'not there' ;;
    *$'\n'*) printf '%s lines' "$(wc -l <<<"$1")" ;;
    *) printf '%s' "$1" ;;
  esac
}

apply_all() {
  local i key value old new faults=0
  restore others || faults=1
  for i in "${!wanted_keys[@]}"; do
    key=${wanted_keys[i]}
    if value=$(current "$key"); then old=$(encoded "$value"); else value='' old=-; fi
    new=$(goal "$value" "${wanted_values[i]}")
    [ "$new" != "$value" ] || continue
    remember "$key" "$old"
    if put "$key" "$new" && [ "$(current "$key")" = "$new" ]; then
      say "set $key from $(shown "$value") to $(shown "$new")"
    else
      say "FAILED to set $key to $(shown "$new"); it is $(shown "$(current "$key" || true)")"
      faults=1
    fi
  done
  changed
  return "$faults"
}

# restore all|others: puts old values back, the last first; `others` are those that the chosen profile does not set.
restore() {
  local key old kept='' faults=0
  [ -e "$STATE_FILE" ] || return 0
  while IFS=$'\t' read -r key old; do
    if [ "$1" = others ] && is_wanted "$key"; then
      kept=$key$'\t'$old$'\n'$kept
    elif put_old "$key" "$old"; then
      say "put back $key"
    else
      say "FAILED to put back $key; its line stays in $STATE_FILE"
      kept=$key$'\t'$old$'\n'$kept faults=1
    fi
  done < <(tac "$STATE_FILE")
  if [ -n "$kept" ]; then
    printf '%s' "$kept" >"$STATE_FILE.new"
    mv "$STATE_FILE.new" "$STATE_FILE"
  else
    rm -f "$STATE_FILE"
  fi
  return "$faults"
}

# put_old KEY BASE64: what is gone by now (a device that was pulled) needs no old value.
put_old() {
  if [ "$2" = - ]; then
    "drop_${1%%:*}" "${1#*:}"
  elif [[ $1 != /* ]] || [ -e "$TUNING_ROOT$1" ]; then
    put "$1" "$(decoded "$2")"
  fi
}

is_wanted() {
  local key
  for key in "${wanted_keys[@]}"; do [ "$key" != "$1" ] || return 0; done
  return 1
}

# Whole files: `file:/etc/...`. Their folders are made, and a file that was not there is removed again.
get_file() { [ -e "$TUNING_ROOT$1" ] && cat "$TUNING_ROOT$1"; }
put_file() {
  mkdir -p "$(dirname "$TUNING_ROOT$1")" && printf '%s\n' "$2" >"$TUNING_ROOT$1"
}
drop_file() { rm -f "$TUNING_ROOT$1"; }

# What is to be done after values changed; a family may say something else.
changed() { :; }

# need_root: sysctl files and devices belong to root.
need_root() {
  [ -n "$TUNING_ROOT" ] || [ "$(id -u)" -eq 0 ] || die "run as root to $1; \`check\` needs no rights"
}

# CPUs that are online, one number per line.
online_cpus() {
  local folder
  for folder in "$TUNING_ROOT"/sys/devices/system/cpu/cpu[0-9]*; do
    [ -d "$folder" ] || continue
    # A CPU that can not go offline has no such file.
    [ "$(cat "$folder/online" 2>/dev/null || echo 1)" = 1 ] || continue
    printf '%s\n' "${folder##*/cpu}"
  done | sort -n
}

# Network interfaces with a device below them: neither loopback nor bridges nor the pairs of containers.
interfaces() {
  local folder
  for folder in "$TUNING_ROOT"/sys/class/net/*; do
    [ ! -e "$folder/device" ] || printf '%s\n' "${folder##*/}"
  done
}

# mask_of CPU...: in the kernel's notation, hexadecimal in groups of 32 bits.
mask_of() {
  local cpu most=0 words=() word text=
  for cpu in "$@"; do
    words[cpu / 32]=$((${words[cpu / 32]:-0} | 1 << cpu % 32))
    [ $((cpu / 32)) -le "$most" ] || most=$((cpu / 32))
  done
  for ((word = most; word >= 0; word--)); do
    if [ -z "$text" ]; then text=$(printf '%x' "${words[word]:-0}"); else text+=$(printf ',%08x' "${words[word]:-0}"); fi
  done
  printf '%s\n' "$text"
}

# padded_like HAVE WANTED: prints the mask WANTED with as many digits as the kernel has in HAVE.
padded_like() {
  local digits=${1//,/} wanted=${2//,/} i text=
  while [ "${#wanted}" -lt "${#digits}" ]; do wanted=0$wanted; done
  for ((i = 0; i < ${#wanted}; i++)); do
    [ "$i" -eq 0 ] || [ $(((${#wanted} - i) % 8)) -ne 0 ] || text+=,
    text+=${wanted:i:1}
  done
  printf '%s\n' "$text"
}

usage() {
  printf 'usage: %s check|apply PROFILE, or revert, or explain\nprofiles: %s\n' "$FAMILY" "${PROFILES[*]}" >&2
  exit 2
}

# tune ACTION [PROFILE]
tune() {
  local action=${1:-} profile=${2:-}
  case $action in
    explain)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "$0"
      return
      ;;
    check | apply)
      [ -n "$profile" ] || usage
      [[ " ${PROFILES[*]} " == *" $profile "* ]] || usage
      ;;
    revert) ;;
    *) usage ;;
  esac
  if [ "$action" = revert ]; then
    [ -e "$STATE_FILE" ] || {
      say "nothing to put back"
      return
    }
    need_root revert
    restore all
    changed
    return
  fi
  settings "$profile"
  [ "${#wanted_keys[@]}" -gt 0 ] || say "nothing to set for $profile"
  if [ "$action" = check ]; then
    check_all
  else
    need_root apply
    apply_all
  fi
}
