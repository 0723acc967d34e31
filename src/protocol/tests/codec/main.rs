//! Holds the generated codec against everything that knows better.
//!
//! * `twin`: a second codec that interprets the notation, slow and dumb, makes random valid bytes
//!   and says what they mean;
//! * `round_trip`: what the twin made comes back equal, in every version of every message;
//! * `differential`: so it does through the `kafka-protocol` crate, as far as that goes (BI-18);
//! * `vectors`: bytes and JSON written by Kafka's own classes (tests/vectors/README.md) mean the
//!   same to the twin and come back equal;
//! * `grammar`: the notation itself;
//! * `refusals`: what must not be accepted, written or read.

#[path = "../../codegen/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../codegen/notation.rs"]
#[allow(dead_code)]
mod notation;

mod differential;
mod grammar;
mod refusals;
mod round_trip;
mod twin;
mod vectors;

/// Every message of the notation files.
fn all_messages() -> Vec<model::Message> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/notation");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("notation is there")
        .map(|e| e.expect("entry").path())
        .collect();
    paths.sort();
    let mut messages = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a notation file");
        messages.extend(notation::parse(&text).expect("the build parsed it too"));
    }
    messages
}
