//! What a load is pushed at: a broker that is started for it, or one that runs already.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cpu;
use crate::load::LoadOptions;
use crate::process::{BrokerOptions, Server};
use crate::workload::Workload;

/// Flags that say what to push at.
#[derive(clap::Args, Clone, Debug)]
pub struct TargetArgs {
    /// Address of a broker that runs already; without it one is started on an empty directory
    #[arg(long, value_name = "HOST:PORT")]
    pub against: Option<String>,
    /// With --against: process of that broker, on this machine, for its CPU time and memory
    #[arg(long, requires = "against")]
    pub broker_pid: Option<u32>,
    /// The broker's binary (release build)
    #[arg(long, default_value = "target/release/thalweg")]
    pub binary: PathBuf,
    /// Directory for the broker's data; removed at the end
    #[arg(long, default_value = "bench/results/local/data")]
    pub dir: PathBuf,
    /// The broker's shards
    #[arg(long, default_value_t = 1)]
    pub shards: usize,
    /// CPU that the broker is confined to; with one shard the first, with more none
    #[arg(long)]
    pub broker_cpu: Option<usize>,
    /// CPU of the load generator; where the broker is confined the last, else none
    #[arg(long)]
    pub load_cpu: Option<usize>,
    /// Further broker properties
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub properties: Vec<String>,
}

/// How the broker was set up; part of a result.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it was started for this measurement.
    pub is_ours: bool,
    /// Its command line, where it is known.
    pub command_line: Vec<String>,
    /// CPU that it was confined to.
    pub broker_cpu: Option<usize>,
    /// CPU that the load generator was confined to.
    pub load_cpu: Option<usize>,
}

/// A broker to push at.
pub struct Target {
    server: Option<Server>,
    /// Its process, where it is known.
    pub pid: Option<u32>,
    /// How it was set up.
    pub report: TargetReport,
}

impl Target {
    /// Starts the broker, or looks the address up; then confines this process.
    ///
    /// # Errors
    /// When it does not start, or the name has no address.
    pub fn ready(args: &TargetArgs) -> Result<Target> {
        match &args.against {
            Some(name) => Target::running(name, args),
            None => Target::started(args),
        }
    }

    fn running(name: &str, args: &TargetArgs) -> Result<Target> {
        let mut addresses = name
            .to_socket_addrs()
            .with_context(|| format!("--against {name}"))?;
        let address = addresses
            .next()
            .with_context(|| format!("{name} has no address"))?;
        confine(args.load_cpu)?;
        Ok(Target {
            server: None,
            pid: args.broker_pid,
            report: TargetReport {
                address,
                is_ours: false,
                command_line: args.broker_pid.map(command_line_of).unwrap_or_default(),
                broker_cpu: None,
                load_cpu: args.load_cpu,
            },
        })
    }

    fn started(args: &TargetArgs) -> Result<Target> {
        let allowed = cpu::allowed();
        let is_confined = args.shards == 1 || args.broker_cpu.is_some();
        let default = |cpu: Option<&usize>| cpu.copied().filter(|_| is_confined);
        let broker_cpu = args.broker_cpu.or(default(allowed.first()));
        let load_cpu = args.load_cpu.or(default(allowed.last()));
        if broker_cpu.is_some() && broker_cpu == load_cpu {
            eprintln!("note: broker and load share a CPU; the figures mean little");
        }
        let (server, _) = Server::broker(&BrokerOptions {
            binary: args.binary.clone(),
            dir: args.dir.join("broker"),
            data: None,
            wrapper: Vec::new(),
            cpu: broker_cpu,
            shards: args.shards,
            properties: args.properties.clone(),
        })?;
        confine(load_cpu)?;
        Ok(Target {
            pid: Some(server.pid()),
            report: TargetReport {
                address: server.address,
                is_ours: true,
                command_line: server.command_line.clone(),
                broker_cpu,
                load_cpu,
            },
            server: Some(server),
        })
    }

    /// Its address, to connect a client with.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.report.address
    }

    /// How a workload is loaded on it by so many threads, for as long as its file says.
    #[must_use]
    pub fn load_of(&self, workload: &Workload, threads: usize) -> LoadOptions {
        LoadOptions {
            address: self.address(),
            threads,
            warm_up: Duration::from_secs_f64(workload.measure.warm_up_seconds),
            measure: Duration::from_secs_f64(workload.measure.seconds),
            broker_pid: self.pid,
        }
    }

    /// Ends the broker if it was started here, and removes its data.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(self) -> Result<()> {
        self.server.map_or(Ok(()), Server::stop)
    }
}

fn confine(cpu: Option<usize>) -> Result<()> {
    cpu.map_or(Ok(()), cpu::confine_to)
}

fn command_line_of(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
