# The parts of scripts/test and scripts/acceptance. Each leaves its counts; the last line sums them.
# Sourced, never run; expects say.sh and install.sh, and the root of the checkout as the folder.

ROOT=$PWD
passed_sum=0 failed_sum=0 skipped_sum=0 flaky=()
part_log=$(mktemp "${TMPDIR:-/tmp}/thalweg-test.XXXXXX")
trap 'rm -f "$part_log"' EXIT

# Everything is linted and tested as one workspace: naming packages would change the features of
# shared dependencies and build them again.
lint() {
  say "formatting"
  cargo fmt --all --check || count_failure
  say "lints"
  cargo clippy --locked --quiet --workspace --all-targets -- -D warnings || count_failure
}

unit_tests() {
  say "building the tests"
  cargo test --locked --quiet --workspace --lib --bins --tests --no-run || count_failure
  say "unit tests and tidy"
  local targets
  mapfile -t targets < <(room_tests)
  cargo_tests --workspace --lib --bins --test tidy "${targets[@]}"
  bench_scripts
  tuning_scripts
}

# Every family of tuning/ against a made-up root.
tuning_scripts() {
  say "tuning"
  tuning/test 2>&1 | tee "$part_log" || true
  grep -q '^tuning: ' "$part_log" || count_failure
  count_lines 's/^tuning: ([0-9]+) passed, ([0-9]+) failed$/\1 \2 0/p'
}

# What of bench/compare needs no broker.
bench_scripts() {
  say "bench/compare"
  need_commands python3=python3
  (cd bench && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest side_by_side.tests) 2>&1 | tee "$part_log" || count_failure
  count_lines 's/^Ran ([0-9]+) tests? in .*/\1 0 0/p'
}

# Prints --test NAME for every integration test of a room, bench or fuzz.
room_tests() {
  local file name
  for file in {src/*,bench,fuzz}/tests/{*.rs,*/main.rs}; do
    [ -e "$file" ] || continue
    name=${file%/main.rs}
    name=${name##*/}
    printf -- '--test\n%s\n' "${name%.rs}"
  done
}

# black_box SHARDS [FILTER]
black_box() {
  say "black box on $1 shard(s) ${2:-}"
  THALWEG_TEST_SHARDS=$1 cargo_tests --test blackbox ${2:+"$2"}
}

# foreign_clients ARGUMENT...: those of tests/foreign/run.
foreign_clients() {
  say "foreign clients"
  # With some test: else what only tests need has no say in the features of shared dependencies, and half
  # the rooms are built again.
  cargo build --locked --quiet --workspace --bins --test tidy || count_failure
  wait # for the downloads
  tests/foreign/run "$@" 2>&1 | tee "$part_log" || true
  grep -q '^foreign: ' "$part_log" || count_failure
  count_lines 's/^foreign: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p'
  mapfile -t flaky < <(grep '^FLAKY: ' "$part_log")
}

# The tools of tests/foreign come from registries while the compiler works.
fetch_in_background() {
  # One after the other: two of Maven would write to one repository.
  { kafka_jars && old_java_clients; } >/dev/null &
  python_with_clients >/dev/null &
  go_clients >/dev/null &
  node_clients >/dev/null &
}

# cargo_tests ARGUMENT...: runs them all, even after a failure, and counts.
cargo_tests() {
  local ended=0
  cargo test --locked --quiet --no-fail-fast "$@" 2>&1 | tee "$part_log" || ended=$?
  local before=$failed_sum
  count_lines \
    's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*/\1 \2 \3/p'
  # It failed without counting a failure: it did not compile, or a test ended its process.
  [ "$ended" -eq 0 ] || [ "$failed_sum" -gt "$before" ] || count_failure
}

count_failure() {
  failed_sum=$((failed_sum + 1))
}

# count_lines SED: adds up the triples that the expression finds in the part's log.
count_lines() {
  local passed failed skipped
  while read -r passed failed skipped; do
    passed_sum=$((passed_sum + passed))
    failed_sum=$((failed_sum + failed))
    skipped_sum=$((skipped_sum + skipped))
  done < <(sed -nE "$1" "$part_log")
}

closing_line() {
  say "done"
  [ "${#flaky[@]}" -eq 0 ] || printf '%s\n' "${flaky[@]}"
  printf '%d passed, %d failed, %d skipped\n' "$passed_sum" "$failed_sum" "$skipped_sum"
  [ "$failed_sum" -eq 0 ] && [ "$passed_sum" -gt 0 ]
}
