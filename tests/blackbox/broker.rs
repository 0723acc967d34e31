//! The broker as a process: started on a folder of its own, watched through its log, killed in all
//! the ways a process ends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use thalweg_protocol::messages::ApiVersionsRequest;

use crate::tool::thalweg;
use crate::wire::Connection;

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks of [`eventually`]: who looks all the time takes a core from the tests beside it.
const PAUSE: Duration = Duration::from_millis(5);

/// Tries until there is something, which must not take long.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_thalweg");

/// What a broker is started with. `Default` is what most tests want.
#[derive(Clone, Default)]
pub struct Options {
    /// Kafka properties, for `--set`.
    pub properties: Vec<(&'static str, String)>,
    /// For `--shards`; the run's number when `None`.
    pub shards: Option<usize>,
    /// More arguments of `thalweg serve`.
    pub arguments: Vec<&'static str>,
    /// A program, with its arguments, that becomes the broker.
    pub wrapper: Vec<&'static str>,
    /// Text of a configuration file. The broker is started with it, on the directory and addresses
    /// that it names, after `thalweg format`; `DATA` in it stands for the directory.
    pub config: Option<String>,
}

impl Options {
    /// With these properties and nothing else.
    pub fn with(properties: &[(&'static str, &str)]) -> Options {
        let owned = properties
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()));
        Options {
            properties: owned.collect(),
            ..Options::default()
        }
    }
}

/// A broker on a folder that is removed with it. Killed when dropped.
///
/// With `THALWEG_TEST_AGAINST=HOST:PORT`, [`Broker::start`] gives the broker there instead, so that
/// what tests ask of the wire can be proved on Kafka.
pub struct Broker {
    /// `None` when the broker is not ours. Dropped first, like the others in this order.
    process: Option<Process>,
    _disk: Option<SmallDisk>,
    folder: TempDir,
    options: Options,
    elsewhere: Option<SocketAddr>,
}

/// A file system of its own, in memory, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, size: &str) -> Option<SmallDisk> {
        std::fs::create_dir(at).expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("NOT TESTED: mounting a tmpfs is not allowed here");
        }
        mounted.then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// One life of a broker.
struct Process {
    child: Child,
    log: Arc<Log>,
    address: SocketAddr,
    metrics: SocketAddr,
    ended: bool,
}

/// What the process wrote so far.
#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    at_end: bool,
}

impl Broker {
    /// On an empty folder, with the defaults; returns once it serves.
    pub fn start() -> Broker {
        let Ok(elsewhere) = std::env::var("THALWEG_TEST_AGAINST") else {
            return Broker::start_with(Options::default());
        };
        let folder = tempfile::tempdir().expect("a folder for the broker");
        let elsewhere = Some(
            elsewhere
                .parse()
                .expect("THALWEG_TEST_AGAINST is HOST:PORT"),
        );
        Broker {
            process: None,
            _disk: None,
            folder,
            options: Options::default(),
            elsewhere,
        }
    }

    /// As [`Broker::start`], with `options`.
    pub fn start_with(options: Options) -> Broker {
        let folder = tempfile::tempdir().expect("a folder for the broker");
        Broker::start_in(folder, None, options)
    }

    /// With its data on a disk of `size`, as mount(8) reads it. `None`, which is said, where mounting is
    /// not allowed.
    pub fn start_on_small_disk(size: &str, options: Options) -> Option<Broker> {
        let folder = tempfile::tempdir().expect("a folder for the broker");
        let disk = SmallDisk::mount(&folder.path().join("data"), size)?;
        Some(Broker::start_in(folder, Some(disk), options))
    }

    /// The same of one directory in its data.
    pub fn start_with_small_directory(
        directory: &str,
        size: &str,
        options: Options,
    ) -> Option<Broker> {
        let folder = tempfile::tempdir().expect("a folder for the broker");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder");
        let disk = SmallDisk::mount(&data.join(directory), size)?;
        Some(Broker::start_in(folder, Some(disk), options))
    }

    fn start_in(folder: TempDir, disk: Option<SmallDisk>, options: Options) -> Broker {
        let data = folder.path().join("data");
        if let Some(text) = &options.config {
            let file = config_file(&data, text);
            let output = thalweg(&["format", "--config", file.to_str().expect("UTF-8")]);
            assert!(output.status.success(), "{output:?}");
        }
        Broker {
            process: Some(Process::start(&data, &options)),
            _disk: disk,
            folder,
            options,
            elsewhere: None,
        }
    }

    fn life(&self) -> &Process {
        self.process.as_ref().expect("a broker of our own")
    }

    fn life_mut(&mut self) -> &mut Process {
        self.process.as_mut().expect("a broker of our own")
    }

    /// The address of this life; every life has another port.
    pub fn address(&self) -> SocketAddr {
        self.elsewhere.unwrap_or_else(|| self.life().address)
    }

    /// The address of metrics and health.
    pub fn metrics_address(&self) -> SocketAddr {
        self.life().metrics
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address())
    }

    /// A connection that is served, tried until there is one: a changed limit holds a moment later.
    pub fn retry_connect(&self) -> Connection {
        eventually("a connection that is served", || {
            let mut client = self.connect();
            client.send(&ApiVersionsRequest::default(), 2);
            client.read_frame().is_some().then_some(client)
        })
    }

    /// `--shards` of this life.
    pub fn shards(&self) -> usize {
        self.options.shards.unwrap_or_else(shards_of_the_run)
    }

    /// `--data-dir`.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of a partition.
    pub fn partition(&self, topic: &str, partition: i32) -> PathBuf {
        self.data().join(format!("{topic}-{partition}"))
    }

    /// Lines of this life's log so far.
    pub fn log(&self) -> Vec<String> {
        self.life()
            .log
            .state
            .lock()
            .expect("no reader panicked")
            .lines
            .clone()
    }

    /// Waits for a line of this life's log that contains `text`, and returns it.
    pub fn wait_for_log(&self, text: &str) -> String {
        self.life().log.wait_for(text).unwrap_or_else(|lines| {
            panic!("the broker did not say {text:?}:\n{}", lines.join("\n"))
        })
    }

    /// SIGTERM; returns when it has ended, which must be with success.
    pub fn stop(&mut self) {
        let status = self.life_mut().end(Signal::SIGTERM);
        assert!(status.success(), "{status}:\n{}", self.log().join("\n"));
    }

    /// SIGTERM; returns at once.
    pub fn begin_stop(&self) {
        self.life().signal(Signal::SIGTERM);
    }

    /// SIGSTOP: it answers nothing any more.
    pub fn freeze(&self) {
        self.life().signal(Signal::SIGSTOP);
    }

    /// SIGTERM to a broker that is stopping already; returns when it has ended.
    pub fn stop_at_once(&mut self) -> ExitStatus {
        self.life_mut().end(Signal::SIGTERM)
    }

    /// Returns when it has ended by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let life = self.life_mut();
        life.log.wait_for_end();
        life.ended = true;
        life.child.wait().expect("our child")
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.life_mut().end(Signal::SIGKILL);
    }

    /// Starts the next life, which needs the last one to have ended.
    pub fn start_again(&mut self) {
        assert!(self.life().ended, "the broker was not stopped");
        self.process = Some(Process::start(&self.data(), &self.options));
    }

    /// As [`Broker::start_again`], where the start may be refused: how the process has ended then, and what it said.
    pub fn try_start_again(&mut self) -> Result<(), (ExitStatus, String)> {
        assert!(self.life().ended, "the broker was not stopped");
        self.process = Some(Process::try_start(&self.data(), &self.options)?);
        Ok(())
    }

    /// As [`Broker::start_again`], with other options from now on.
    pub fn start_again_with(&mut self, options: Options) {
        self.options = options;
        self.start_again();
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.life().child.id());
        let status = std::fs::read_to_string(path).expect("the broker runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("the kernel says VmRSS") * 1024
    }

    /// Whether the process runs.
    pub fn is_running(&mut self) -> bool {
        self.life_mut()
            .child
            .try_wait()
            .expect("our child")
            .is_none()
    }
}

impl Process {
    fn start(data: &Path, options: &Options) -> Process {
        Process::try_start(data, options)
            .unwrap_or_else(|(_, said)| panic!("the broker did not start:\n{said}"))
    }

    fn try_start(data: &Path, options: &Options) -> Result<Process, (ExitStatus, String)> {
        let mut child = serve_command(data, options)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker starts");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("it was piped");
        let sink = Arc::clone(&log);
        std::thread::spawn(move || sink.fill(BufReader::new(stderr)));
        let mut wait = |text: &str| match log.wait_for(text) {
            Ok(line) => Ok(address_in(&line)),
            Err(lines) => {
                child.kill().ok();
                let status = child.wait().expect("our child");
                Err((status, lines.join("\n")))
            }
        };
        let metrics = wait("metrics address=")?;
        let address = wait("listening address=")?;
        Ok(Process {
            child,
            log,
            address,
            metrics,
            ended: false,
        })
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.log.wait_for_end();
        self.ended = true;
        self.child.wait().expect("our child")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid fits");
        kill(Pid::from_raw(pid), signal).expect("our child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        if std::thread::panicking() {
            let lines = self.log.state.lock().map(|state| state.lines.join("\n"));
            eprintln!("log of the broker:\n{}", lines.unwrap_or_default());
        }
    }
}

/// Writes a configuration file beside `data`.
pub fn config_file(data: &Path, text: &str) -> PathBuf {
    let file = data.with_file_name("server.properties");
    let text = text.replace("DATA", data.to_str().expect("UTF-8"));
    std::fs::write(&file, text).expect("a file");
    file
}

/// `thalweg serve` on `data`, on ports that the kernel chooses; or as a configuration file says.
pub fn serve_command(data: &Path, options: &Options) -> Command {
    let mut words: Vec<String> = options
        .wrapper
        .iter()
        .map(|word| (*word).to_owned())
        .collect();
    words.push(BINARY.to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg("serve");
    match &options.config {
        Some(text) => command.arg("--config").arg(config_file(data, text)),
        None => command
            .args(["--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(data),
    };
    command.args(["--metrics-listen", "127.0.0.1:0"]);
    let shards = options.shards.unwrap_or_else(shards_of_the_run);
    command.args(["--shards", &shards.to_string()]);
    for (key, value) in &options.properties {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    command.args(&options.arguments).env("NO_COLOR", "1");
    command
}

/// How many shards this run of the tests asks for.
pub fn shards_of_the_run() -> usize {
    std::env::var("THALWEG_TEST_SHARDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

/// Whether this run takes the long forms.
pub fn is_long() -> bool {
    std::env::var_os("THALWEG_TEST_LONG").is_some_and(|value| value == "1")
}

fn address_in(line: &str) -> SocketAddr {
    let after = line.split("address=").nth(1).unwrap_or_default();
    let text: &str = after.split_whitespace().next().unwrap_or_default();
    text.parse()
        .unwrap_or_else(|_| panic!("no address in {line:?}"))
}

impl Log {
    fn fill(&self, source: impl BufRead) {
        for line in source.lines().map_while(Result::ok) {
            self.change(|state| state.lines.push(without_colors(&line)));
        }
        self.change(|state| state.at_end = true);
    }

    fn change(&self, change: impl FnOnce(&mut LogState)) {
        change(&mut self.state.lock().expect("no reader panicked"));
        self.changed.notify_all();
    }

    /// The first line with `text`; all lines when the process ends or takes too long without one.
    fn wait_for(&self, text: &str) -> Result<String, Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state.lock().expect("no reader panicked");
        loop {
            if let Some(line) = state.lines.iter().find(|line| line.contains(text)) {
                return Ok(line.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.at_end || left.is_zero() {
                return Err(state.lines.clone());
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .expect("no reader panicked")
                .0;
        }
    }

    fn wait_for_end(&self) {
        let state = self.state.lock().expect("no reader panicked");
        let (state, timeout) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !state.at_end)
            .expect("no reader panicked");
        assert!(
            !timeout.timed_out(),
            "the broker does not end:\n{}",
            state.lines.join("\n")
        );
    }
}

fn without_colors(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut inside = false;
    for c in line.chars() {
        match c {
            '\u{1b}' => inside = true,
            'm' if inside => inside = false,
            _ if inside => {}
            _ => clean.push(c),
        }
    }
    clean
}
