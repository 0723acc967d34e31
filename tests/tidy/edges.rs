//! Which room may use which: the table of ARCHITECTURE.md against `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::{assert_none, source};

const VOCABULARY: [&str; 4] = ["types", "protocol", "config", "metrics"];
const MACHINES: [&str; 5] = ["replica", "metadata", "group", "txn", "security"];
const SHELL: [&str; 6] = ["reactor", "storage", "net", "quorum", "control", "shard"];
const TOOLS: [&str; 3] = ["client", "cli", "sim"];

/// Crates that reach for the kernel, a clock or threads: for shell rooms and tools only.
const OUTSIDE_WORLD: [&str; 9] = [
    "tokio",
    "libc",
    "nix",
    "io-uring",
    "core_affinity",
    "crossbeam-queue",
    "axum",
    "tracing",
    "tempfile",
];
/// The one room that may name the runtime, besides the control-plane thread.
const MAY_NAME_TOKIO: [&str; 2] = ["reactor", "control"];

type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn rooms_use_only_what_architecture_md_allows() {
    let allowed = allowed_edges();
    let mut offenders = Vec::new();
    for (room, used) in actual_edges().rooms {
        match allowed.get(&room) {
            None => offenders.push(format!("{room} has no row in ARCHITECTURE.md")),
            Some(row) => offenders.extend(
                used.difference(row)
                    .map(|other| format!("{room} uses {other}, its row does not")),
            ),
        }
    }
    assert_none("edges that ARCHITECTURE.md does not allow", &offenders);
}

#[test]
fn the_edge_table_names_only_rooms_that_exist() {
    let actual = actual_edges().rooms;
    let mut offenders = Vec::new();
    for (room, row) in allowed_edges() {
        for name in row.iter().chain([&room]) {
            if !actual.contains_key(name) {
                offenders.push(format!("{name} in the row of {room}"));
            }
        }
    }
    assert_none("rooms of ARCHITECTURE.md without a crate", &offenders);
}

#[test]
fn no_layer_looks_up() {
    let mut offenders = Vec::new();
    for (room, row) in allowed_edges() {
        let above = row.iter().filter(|used| layer(used) > layer(&room));
        offenders.extend(above.map(|used| format!("{room} may use {used}")));
        if layer(&room) <= 1 {
            let shells = row.iter().filter(|used| layer(used) >= 2);
            offenders.extend(shells.map(|used| format!("{room} may use the shell room {used}")));
        }
    }
    assert_none("rows that look up a layer", &offenders);
}

#[test]
fn vocabulary_and_machines_do_not_reach_outside() {
    let mut offenders = Vec::new();
    for (room, used) in actual_edges().foreign {
        for name in used {
            let is_runtime = name == "tokio" && !MAY_NAME_TOKIO.contains(&room.as_str());
            let reaches_out = layer(&room) <= 1 && OUTSIDE_WORLD.contains(&name.as_str());
            if (is_runtime && layer(&room) <= 2) || reaches_out {
                offenders.push(format!("{room} depends on {name}"));
            }
        }
    }
    assert_none("dependencies that a layer may not have", &offenders);
}

#[test]
fn every_room_is_a_folder_with_lints_and_a_door_sign() {
    let mut offenders = Vec::new();
    for room in actual_edges().rooms.keys() {
        let manifest = source::read(Path::new(&format!("src/{room}/Cargo.toml")));
        if !manifest.contains("[lints]\nworkspace = true") {
            offenders.push(format!(
                "src/{room}/Cargo.toml does not take the workspace's lints"
            ));
        }
        let library = source::read(Path::new(&format!("src/{room}/lib.rs")));
        if !library.starts_with("//!") {
            offenders.push(format!("src/{room}/lib.rs does not say what the room is"));
        }
    }
    assert_none("rooms without the common furniture", &offenders);
}

/// How far from the vocabulary a room stands.
fn layer(room: &str) -> u8 {
    let is_in = |list: &[&str]| list.contains(&room);
    match () {
        () if is_in(&VOCABULARY) => 0,
        () if is_in(&MACHINES) => 1,
        () if is_in(&SHELL) => 2,
        () if is_in(&TOOLS) => 3,
        () => panic!("{room} belongs to no layer: name it in tests/tidy/edges.rs"),
    }
}

fn allowed_edges() -> Edges {
    let text = source::read(Path::new("ARCHITECTURE.md"));
    let table = text
        .split("| room | may use |")
        .nth(1)
        .expect("ARCHITECTURE.md has the table");
    table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            let names = |cell: &str| -> Vec<String> {
                cell.split('`')
                    .skip(1)
                    .step_by(2)
                    .map(str::to_owned)
                    .collect()
            };
            let room = names(cells[1])
                .into_iter()
                .next()
                .expect("a row names its room");
            (room, names(cells[2]).into_iter().collect())
        })
        .collect()
}

struct Actual {
    rooms: Edges,
    foreign: Edges,
}

fn actual_edges() -> Actual {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(source::root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let mut actual = Actual {
        rooms: Edges::new(),
        foreign: Edges::new(),
    };
    for package in metadata["packages"].as_array().expect("a list of packages") {
        let manifest = package["manifest_path"].as_str().expect("a path");
        let name = package["name"].as_str().expect("a name");
        let Some(room) = room_of(name).filter(|room| manifest.contains(&format!("/src/{room}/")))
        else {
            continue;
        };
        let (mut rooms, mut foreign) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().expect("a list") {
            if !dependency["kind"].is_null() {
                continue; // dev and build dependencies
            }
            let used = dependency["name"].as_str().expect("a name");
            match room_of(used) {
                Some(used) => rooms.insert(used.to_owned()),
                None => foreign.insert(used.to_owned()),
            };
        }
        actual.rooms.insert(room.to_owned(), rooms);
        actual.foreign.insert(room.to_owned(), foreign);
    }
    assert!(actual.rooms.len() >= 5, "cargo metadata shows the rooms");
    actual
}

fn room_of(package: &str) -> Option<&str> {
    package.strip_prefix("thalweg-")
}
