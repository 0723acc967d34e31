//! Broker and floor as child processes, confined to CPUs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::messages::MetadataRequest;

use crate::cpu;
use crate::floor::EngineChoice;

/// A broker that was killed has logs to check.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_micros(500);

/// A child process that is killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// How it was started.
    pub command_line: Vec<String>,
    dir: PathBuf,
}

/// How to start the broker.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// The `thalweg` binary.
    pub binary: PathBuf,
    /// Made for it, and removed at the end.
    pub dir: PathBuf,
    /// Its data directory, which is left there; inside of `dir` where none is named.
    pub data: Option<PathBuf>,
    /// A program, with its arguments, that the broker is run by; its process must become the broker's.
    pub wrapper: Vec<String>,
    /// `None`: all that this process may use.
    pub cpu: Option<usize>,
    /// `--shards`.
    pub shards: usize,
    /// Further `--set key=value`.
    pub properties: Vec<String>,
}

/// A port that was free a moment ago.
fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?)
}

fn words(command: &Command) -> Vec<String> {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Starts `command` on one CPU: children inherit the affinity of the thread that starts them.
fn spawn_on(mut command: Command, cpu: Option<usize>) -> Result<Child> {
    let starter = move || -> Result<Child> {
        if let Some(cpu) = cpu {
            cpu::confine_to(cpu)?;
        }
        command
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))
    };
    thread::spawn(starter)
        .join()
        .map_err(|_| anyhow!("the starting thread panicked"))?
}

impl Server {
    /// Starts a broker on an empty directory, or on the data that is named. Returns it with the time from exec to its first Metadata answer.
    ///
    /// # Errors
    /// When it does not answer within two minutes; its log is in `dir/broker.log`.
    pub fn broker(options: &BrokerOptions) -> Result<(Server, Duration)> {
        fs::create_dir_all(&options.dir)
            .with_context(|| format!("cannot create {}", options.dir.display()))?;
        let address = free_port()?;
        let log = fs::File::create(options.dir.join("broker.log"))?;
        let data = options.data.clone();
        let data = data.unwrap_or_else(|| options.dir.join("data"));
        let mut command = match options.wrapper.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&options.binary);
                command
            }
            None => Command::new(&options.binary),
        };
        command.arg("serve").arg("--data-dir").arg(data);
        command.args([
            "--listen",
            &address.to_string(),
            "--shards",
            &options.shards.to_string(),
        ]);
        command.args(["--metrics-listen", "none", "--log-level", "info"]);
        for property in &options.properties {
            command.args(["--set", property]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(log));
        let command_line = words(&command);
        let begin = Instant::now();
        let child = spawn_on(command, options.cpu)?;
        let mut server = Server {
            child,
            address,
            command_line,
            dir: options.dir.clone(),
        };
        server.wait_for_metadata(begin)?;
        Ok((server, begin.elapsed()))
    }

    fn wait_for_metadata(&mut self, begin: Instant) -> Result<()> {
        let options = ConnectOptions::default();
        let address = self.address.to_string();
        let log = self.dir.join("broker.log");
        loop {
            let answer = Connection::connect(&address, &options).and_then(|mut c| {
                c.call(&MetadataRequest {
                    topics: None,
                    ..Default::default()
                })
            });
            match answer {
                Ok(_) => return Ok(()),
                Err(e) if begin.elapsed() > START_MAX => {
                    bail!("the broker does not answer: {e}; see {}", log.display())
                }
                Err(_) => {}
            }
            if let Some(status) = self.child.try_wait()? {
                let text = fs::read_to_string(&log).unwrap_or_default();
                bail!("the broker ended ({status}): {text}");
            }
            thread::sleep(START_POLL);
        }
    }

    /// Starts the floor (this binary's `floor-serve`) on an empty directory.
    ///
    /// # Errors
    /// When it does not say where it listens.
    pub fn floor(
        dir: &Path,
        cpu: Option<usize>,
        engine: EngineChoice,
        partitions: usize,
    ) -> Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("floor-serve").arg("--dir").arg(dir);
        command.args([
            "--engine",
            engine.name(),
            "--partitions",
            &partitions.to_string(),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let command_line = words(&command);
        let mut child = spawn_on(command, cpu)?;
        let stdout = child.stdout.take().context("no pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("listening ")
            .and_then(|a| a.parse().ok());
        let dir = dir.to_owned();
        match address {
            Some(address) => Ok(Server {
                child,
                address,
                command_line,
                dir,
            }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the floor with engine {} did not start", engine.name())
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, waits, and removes its directory.
    ///
    /// # Errors
    /// When it does not end within a minute.
    pub fn stop(self) -> Result<()> {
        self.end(Signal::SIGTERM).map(|_| ())
    }

    /// Sends it `signal` and waits for its end, which takes the time that is returned; then removes its
    /// directory.
    ///
    /// # Errors
    /// When it does not end within a minute.
    pub fn end(mut self, signal: Signal) -> Result<Duration> {
        kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(
                begin.elapsed() < STOP_MAX,
                "process {} does not end",
                self.pid()
            );
            thread::sleep(Duration::from_millis(5));
        }
        Ok(begin.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
