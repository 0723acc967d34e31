//! Build-time generator: notation files in, one Rust file out.
//!
//! `notation` parses into `model`; `emit` writes struct definitions, `decode` and `encode` the two
//! directions. The tests include `notation` and `model` too, for a second, interpreting codec.

mod decode;
mod emit;
mod encode;
pub mod model;
pub mod notation;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Reads every `*.api` in `dir` and writes `messages.rs` and `every_api.rs` to `out`.
pub fn generate(dir: &Path, out: &Path) -> io::Result<()> {
    let messages = read_all(dir)?;
    let mut code = String::new();
    for message in &messages {
        emit::message(&mut code, message);
    }
    emit::table(&mut code, &messages);
    fs::write(out.join("messages.rs"), code)?;
    fs::write(out.join("every_api.rs"), every_api(&messages))
}

/// All messages of a directory of notation files, by file name, then in file order.
pub fn read_all(dir: &Path) -> io::Result<Vec<model::Message>> {
    let mut paths: Vec<_> = fs::read_dir(dir)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<io::Result<_>>()?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "api"));
    paths.sort();
    let mut messages = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let parsed = notation::parse(&text)
            .map_err(|e| io::Error::other(format!("{}:{}: {}", path.display(), e.line, e.what)))?;
        messages.extend(parsed);
    }
    Ok(messages)
}

/// A macro for tests: calls another one with the name of every request and response.
fn every_api(messages: &[model::Message]) -> String {
    let mut code = String::from("macro_rules! every_api {\n    ($each:ident) => {\n");
    for m in messages {
        if matches!(m.kind, model::Kind::Request | model::Kind::Response) {
            let _ = writeln!(code, "        $each!({});", m.name);
        }
    }
    code.push_str("    };\n}\n");
    code
}
