//! How a command ends: exit codes and the one place that prints a failure.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use nix::libc;
use thalweg_client::{ClientError, Cluster, ClusterOptions};
use thalweg_protocol::ErrorCode;
use thalweg_reactor::fs;

use crate::args::BrokerArgs;
use crate::output::printable;

/// Exit codes, documented in `docs/cli.md` and in `thalweg --help`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The command did what it was asked to do.
    Ok = 0,
    /// The operation failed, or `inspect` found damage.
    Failed = 1,
    /// The command line or the configuration is wrong; nothing was tried.
    Usage = 2,
    /// No broker could be reached at the given address.
    Unreachable = 3,
    /// The thing asked for (a topic, a partition, a group, a file) does not exist.
    NotFound = 4,
    /// The thing to create exists already, or the directory to format has its identity.
    AlreadyExists = 5,
    /// The broker ended because a disk failed: every log directory, or the one with the metadata.
    DiskFailed = 6,
}

/// Why a command did not succeed.
#[derive(Debug)]
pub struct Failure {
    /// The code the process ends with.
    pub exit: Exit,
    /// What is printed after `thalweg: `. Empty prints nothing.
    pub message: String,
}

impl Failure {
    /// A failure with a message for the user.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            exit,
            message: message.into(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let mut text = told_once(&error);
        let advice = error.chain().filter_map(|cause| cause.downcast_ref());
        if let Some(advice) = advice.filter_map(of_handles).next() {
            text = format!("{text}; {advice}");
        }
        Failure::new(Exit::Failed, text)
    }
}

/// What to do about an error that is a lack of file handles.
pub(crate) fn of_handles(error: &io::Error) -> Option<&'static str> {
    match fs::os_error(error) {
        Some(libc::EMFILE) => Some("raise the limit of open files (`ulimit -n`, LimitNOFILE=)"),
        Some(libc::ENFILE) => Some("raise the system's limit of open files (`fs.file-max`)"),
        Some(_) | None => None,
    }
}

/// The error and its causes, without those that the text before them repeats.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match (&error, error.code()) {
            (ClientError::Unreachable { .. }, _) => Exit::Unreachable,
            (
                _,
                Some(
                    ErrorCode::UnknownTopicOrPartition
                    | ErrorCode::UnknownTopicId
                    | ErrorCode::GroupIdNotFound,
                ),
            ) => Exit::NotFound,
            (_, Some(ErrorCode::TopicAlreadyExists)) => Exit::AlreadyExists,
            (_, Some(_) | None) => Exit::Failed,
        };
        let hint = error.code().and_then(hint);
        let text = match hint {
            Some(hint) => format!("{error}: {hint}"),
            None => error.to_string(),
        };
        Failure::new(exit, text)
    }
}

/// What to do about refusals whose name does not say it.
fn hint(code: ErrorCode) -> Option<&'static str> {
    const HINTS: [(ErrorCode, &str); 5] = [
        (
            ErrorCode::InvalidSessionTimeout,
            "the broker takes what lies between its group.min.session.timeout.ms and \
             group.max.session.timeout.ms (thalweg config describe broker --all)",
        ),
        (
            ErrorCode::UnsupportedAssignor,
            "the coordinator has those that its group.consumer.assignors names: uniform and range, unless \
             set otherwise",
        ),
        (
            ErrorCode::KafkaStorageError,
            "the disk of the partition is full or has failed: `thalweg log-dirs describe` says which, and the \
             broker's log in a line with `nearly full` or `OFFLINE`",
        ),
        (
            ErrorCode::LeaderNotAvailable,
            "the partition is offline: its disk is not there or has failed, or its log is damaged; `thalweg \
             log-dirs describe` and the broker's log say which",
        ),
        (
            ErrorCode::CorruptMessage,
            "records are damaged: where the broker's disk has them so, its log says where and at which offset \
             to go on, in a line that begins with DAMAGED",
        ),
    ];
    let found = HINTS.iter().find(|(of, _)| *of == code);
    found.map(|(_, hint)| *hint)
}

/// Opens the cluster that the flags name. Whatever keeps it from answering means "not reachable".
pub(crate) fn connect(args: &BrokerArgs) -> Result<Cluster, Failure> {
    connect_for(args, Duration::from_secs(args.timeout.into()))
}

/// The same to send records: an answer is waited for half as long, so that what hangs can be tried once more over another
/// connection.
pub(crate) fn connect_to_produce(args: &BrokerArgs) -> Result<Cluster, Failure> {
    connect_for(args, Duration::from_secs(args.timeout.into()) / 2)
}

fn connect_for(args: &BrokerArgs, answer_within: Duration) -> Result<Cluster, Failure> {
    let retry_for = Duration::from_secs(args.timeout.into());
    let mut options = ClusterOptions {
        retry_for,
        ..ClusterOptions::default()
    };
    let connect = &mut options.connect;
    connect.connect_timeout = connect.connect_timeout.min(retry_for);
    connect.request_timeout = connect.request_timeout.min(answer_within);
    Cluster::connect(&args.bootstrap_server, options).map_err(|error| {
        let mut text = error.to_string();
        if let ClientError::Unreachable { .. } = error {
            text.push_str(". Does a broker run there, and has it started? --bootstrap-server names another address");
        }
        Failure::new(Exit::Unreachable, text)
    })
}

/// Says that these partitions of `topic` have to wait, if there are any.
pub(crate) fn warn_of_leaderless(topic: &str, partitions: &[i32]) {
    if !partitions.is_empty() {
        eprintln!(
            "thalweg: warning: no leader at the moment for {}: going on with the other partitions, and with \
             these when they have one",
            named(topic, partitions)
        );
    }
}

/// `t-0, t-3`.
pub(crate) fn named(topic: &str, partitions: &[i32]) -> String {
    let names = partitions.iter().map(|p| format!("{topic}-{p}"));
    names.collect::<Vec<_>>().join(", ")
}

/// Errors of our own output. A closed pipe is no failure: whoever read it had enough.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure {
                exit: Exit::Ok,
                message: String::new(),
            };
        }
        Failure::new(Exit::Failed, format!("cannot write the output: {error}"))
    }
}

/// Prints what the parser has to say: help and version to stdout, mistakes to stderr.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // A closed stdout or stderr leaves nobody to tell.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(Exit::Usage as u8)
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints the failure, if there is one, and turns the outcome into the process's exit code.
pub(crate) fn report(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                // Names in it may be anything; only our own line ends are meant.
                let lines = failure.message.split('\n').map(printable);
                eprintln!("thalweg: {}", lines.collect::<Vec<_>>().join("\n"));
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::anyhow;

    use thalweg_client::ClientError;

    use super::{Failure, told_once};

    #[test]
    fn a_refusal_says_what_to_do() {
        let said = |code: i16| {
            let error = ClientError::Refused {
                what: "x".to_owned(),
                code,
                message: None,
            };
            Failure::from(error).message
        };
        assert!(said(26).starts_with("x: INVALID_SESSION_TIMEOUT: the broker takes"));
        assert!(said(112).contains("group.consumer.assignors"));
        assert!(said(56).contains("nearly full"));
        assert!(said(2).contains("DAMAGED"));
        for offline in [5, 56] {
            assert!(said(offline).contains("`thalweg log-dirs describe`"));
        }
        assert_eq!(said(36), "x: TOPIC_ALREADY_EXISTS");
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = io::Error::other("no space");
        let error = anyhow!(cause)
            .context("writing /x: no space")
            .context("closing");
        assert_eq!(told_once(&error), "closing: writing /x: no space");
        let error = anyhow!("bad name").context("--listen x");
        assert_eq!(told_once(&error), "--listen x: bad name");
    }

    #[test]
    fn st_21_a_lack_of_file_handles_says_which_limit_to_raise() {
        let said = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            Failure::from(anyhow!(error).context("log directory d")).message
        };
        let lacking = "log directory d: Too many open files (os error 24); raise the limit of open files (`ulimit -n`, \
                       LimitNOFILE=)";
        assert_eq!(said(24), lacking);
        assert!(said(23).ends_with("(`fs.file-max`)"), "{}", said(23));
        assert_eq!(
            said(2),
            "log directory d: No such file or directory (os error 2)"
        );
    }
}
