//! The binary as a tool: its subcommands run to their end, or watched while they run.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::broker::{BINARY, Broker, PATIENCE};

/// Runs it without input.
pub fn thalweg(arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Where `broker` is, for a client subcommand, and to be as patient with it as the tests are, unless the arguments say
/// how long: the disk may be slow.
fn to(broker: &Broker, arguments: &[&str]) -> Vec<String> {
    let mut more = vec![
        "--bootstrap-server".to_owned(),
        broker.address().to_string(),
    ];
    if !arguments.contains(&"--timeout") {
        more.extend(["--timeout".to_owned(), PATIENCE.as_secs().to_string()]);
    }
    more
}

fn strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Runs a client subcommand against `broker`; it must end with `code`. Returns stdout.
pub fn against(broker: &Broker, arguments: &[&str], code: i32) -> String {
    refused(broker, arguments, code).0
}

/// As [`against`]; returns stdout and stderr.
pub fn refused(broker: &Broker, arguments: &[&str], code: i32) -> (String, String) {
    let output = thalweg(&[arguments, &strs(&to(broker, arguments))].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (told, said) = (text(output.stdout), text(output.stderr));
    let ended = output.status.code();
    assert_eq!(ended, Some(code), "{arguments:?}: {told}{said}");
    (told, said)
}

/// Runs a client subcommand against `broker` with `input` on stdin.
pub fn with_input(broker: &Broker, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(broker, arguments).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that refuses its arguments does not read.
    stdin.write_all(input).ok();
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// A client subcommand against `broker`, with pipes for what goes in and comes out.
pub fn command(broker: &Broker, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .args(to(broker, arguments))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A client subcommand while it runs, its stdout and stderr line by line. Killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    said: Receiver<String>,
}

/// Lines as they come.
fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Running {
    /// Starts it.
    pub fn start(broker: &Broker, arguments: &[&str]) -> Running {
        let mut child = command(broker, arguments).spawn().expect("the binary runs");
        let lines = lines_of(child.stdout.take().expect("piped"));
        let said = lines_of(child.stderr.take().expect("piped"));
        Running { child, lines, said }
    }

    /// The next line of stdout.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// The next line of stderr.
    pub fn said(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// What was printed and not taken yet.
    pub fn lines_so_far(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// SIGTERM; returns how it ended, and what it printed last.
    pub fn stop(mut self) -> (ExitStatus, Vec<String>) {
        let pid = i32::try_from(self.child.id()).expect("a pid fits");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("our child");
        let status = self.child.wait().expect("our child");
        (status, self.lines.iter().collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
