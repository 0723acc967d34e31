//! A broker's HTTP endpoint, for what Kafka's protocol has no request for.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::args::{BrokerArgs, BrokerHttpArgs};
use crate::exit::{Exit, Failure};
use crate::output::printable;

/// Where brokers serve it unless they are told otherwise.
const DEFAULT_PORT: u16 = 9644;
/// How long a connection may take that nobody asked for by name.
const GUESS_WAIT: Duration = Duration::from_millis(500);
/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The endpoint of one cluster.
pub(crate) struct BrokerHttp {
    address: String,
    /// The cluster that is meant; `None` for whichever is there.
    cluster_id: Option<String>,
    timeout: Duration,
    /// It was named, and not guessed.
    is_named: bool,
    /// A guess did not come true, and that was said.
    has_told: Cell<bool>,
}

#[derive(Deserialize)]
struct Identity {
    cluster_id: String,
}

impl BrokerHttp {
    /// The endpoint that the flags name, else the usual port of the host in the first bootstrap address.
    pub(crate) fn of(
        args: &BrokerHttpArgs,
        broker: &BrokerArgs,
        cluster_id: Option<&str>,
    ) -> BrokerHttp {
        let first = broker
            .bootstrap_server
            .split(',')
            .next()
            .unwrap_or_default()
            .trim();
        let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
        let guess = || format!("{host}:{DEFAULT_PORT}");
        BrokerHttp {
            address: args.http.clone().unwrap_or_else(guess),
            cluster_id: Some(cluster_id.unwrap_or_default().to_owned()),
            timeout: Duration::from_secs(broker.timeout.into()),
            is_named: args.http.is_some(),
            has_told: Cell::new(false),
        }
    }

    /// The endpoint at an address that the user has given, of whichever cluster.
    pub(crate) fn at(address: &str, timeout: Duration) -> BrokerHttp {
        BrokerHttp {
            address: address.to_owned(),
            cluster_id: None,
            timeout,
            is_named: true,
            has_told: Cell::new(false),
        }
    }

    /// The answer to a GET.
    ///
    /// # Errors
    /// Nobody is there; it is the endpoint of another cluster; it does not know the path.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let unreachable = |error: io::Error| {
            let text = format!(
                "cannot ask the HTTP endpoint at {}: {error}; name it with --http HOST:PORT",
                self.address
            );
            Failure::new(Exit::Unreachable, text)
        };
        let answer = self.exchange(path).map_err(unreachable)?;
        let strange = || {
            let text = format!("{} is no HTTP endpoint that knows {path}", self.address);
            Failure::new(Exit::Failed, text)
        };
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(strange)?;
        if head.split(' ').nth(1) != Some("200") {
            return Err(strange());
        }
        let identity: Identity = serde_json::from_str(body).map_err(|_| strange())?;
        let meant = self.cluster_id.as_ref();
        if meant.is_some_and(|meant| *meant != identity.cluster_id) {
            let text = format!(
                "the HTTP endpoint at {} belongs to another cluster, {}; name the right one with --http",
                self.address, identity.cluster_id
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        serde_json::from_str(body).map_err(|_| strange())
    }

    /// As [`BrokerHttp::get`]; a guess that does not come true is no failure; a line on stderr says
    /// once that `what` is left out for it.
    pub(crate) fn find<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &str,
    ) -> Result<Option<T>, Failure> {
        match self.get(path) {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if self.is_named => Err(failure),
            Err(failure) => {
                if !self.has_told.replace(true) {
                    eprintln!("thalweg: {what} left out: {}", printable(&failure.message));
                }
                Ok(None)
            }
        }
    }

    fn exchange(&self, path: &str) -> io::Result<String> {
        let wait = match self.is_named {
            true => self.timeout,
            false => self.timeout.min(GUESS_WAIT),
        };
        let address = self.address.to_socket_addrs()?.next();
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut stream = TcpStream::connect_timeout(&address.ok_or_else(no_address)?, wait)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        // Version 1.0 has no chunks.
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.address
        )?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// A name as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn a_name_stays_one_segment() {
        assert_eq!(segment("my-group_1"), "my-group_1");
        assert_eq!(segment("a/b?c .."), "a%2Fb%3Fc%20%2E%2E");
        assert_eq!(segment("ü\n"), "%C3%BC%0A");
    }
}
