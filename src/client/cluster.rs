//! What we know of the cluster: brokers, topics, leaders; one connection per broker; retries.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_protocol::messages::metadata_request::MetadataRequestTopic;
use thalweg_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_protocol::messages::{MetadataRequest, MetadataResponse};
use thalweg_protocol::{ErrorCode, Request};
use thalweg_types::Uuid;

use crate::connection::{ConnectOptions, Connection};
use crate::error::{Advice, ClientError, Result};

const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// An answer is waited for at least so long.
const ANSWER_WAIT_MIN: Duration = Duration::from_millis(1);
/// How long a topic of which a partition has no leader is not asked for again.
const LEADERLESS_FOR: Duration = Duration::from_secs(1);

/// How to talk to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// Per connection.
    pub connect: ConnectOptions,
    /// How long an operation is tried again before its last error is reported.
    pub retry_for: Duration,
    /// First pause between two tries; doubles up to one second.
    pub retry_backoff: Duration,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions {
            connect: ConnectOptions::default(),
            retry_for: Duration::from_secs(30),
            retry_backoff: Duration::from_millis(20),
        }
    }
}

/// One broker as the cluster advertises it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// `node.id`.
    pub id: i32,
    /// Advertised host.
    pub host: String,
    /// Advertised port.
    pub port: i32,
    /// `broker.rack`.
    pub rack: Option<String>,
}

impl Broker {
    /// `host:port`, with brackets around an IPv6 address.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; zero from brokers that have none.
    pub id: Uuid,
    /// A topic of the cluster itself.
    pub is_internal: bool,
    /// By index.
    pub partitions: Vec<Partition>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Index in the topic.
    pub index: i32,
    /// Broker id of the leader, -1 when there is none.
    pub leader: i32,
    /// -1 from brokers that do not tell.
    pub leader_epoch: i32,
    /// Broker ids.
    pub replicas: Vec<i32>,
    /// Broker ids of the in-sync ones.
    pub isr: Vec<i32>,
    /// Broker ids of those that are down.
    pub offline: Vec<i32>,
    /// CPU core that the partition lives on at its leader; only Thalweg tells.
    pub core: Option<i32>,
}

impl Topic {
    /// Indexes of the partitions that have no leader at the moment.
    pub fn leaderless(&self) -> impl Iterator<Item = i32> {
        let without = self.partitions.iter().filter(|p| p.leader < 0);
        without.map(|p| p.index)
    }
}

/// A topic as it was told last.
#[derive(Debug)]
struct Known {
    topic: Topic,
    asked: Instant,
}

impl Known {
    fn now(topic: Topic) -> Known {
        let asked = Instant::now();
        Known { topic, asked }
    }

    /// Whether a leader may have been found meanwhile.
    fn is_due(&self) -> bool {
        self.asked.elapsed() > LEADERLESS_FOR && self.topic.leaderless().next().is_some()
    }
}

/// What a metadata request does with a topic that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingTopic {
    /// It stays missing.
    Refuse,
    /// The broker creates it, if `auto.create.topics.enable` says so.
    Create,
}

/// A view of one cluster.
#[derive(Debug)]
pub struct Cluster {
    bootstrap: Vec<String>,
    options: ClusterOptions,
    brokers: HashMap<i32, Broker>,
    controller: i32,
    cluster_id: Option<String>,
    topics: HashMap<String, Known>,
    connections: HashMap<i32, Connection>,
    /// Connection to a bootstrap address.
    first: Option<Connection>,
    /// When the operation that is under way has to be over.
    deadline: Option<Instant>,
}

impl Cluster {
    /// Connects to the first of the comma-separated `bootstrap` addresses that answers. Each is tried once,
    /// all together for at most `retry_for`.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] with the last address when none does, and other errors of
    /// [`Connection::connect`].
    pub fn connect(bootstrap: &str, options: ClusterOptions) -> Result<Cluster> {
        let bootstrap: Vec<String> = bootstrap
            .split(',')
            .map(|a| a.trim().to_owned())
            .filter(|a| !a.is_empty())
            .collect();
        if bootstrap.is_empty() {
            return Err(ClientError::Invalid(
                "no bootstrap server is given".to_owned(),
            ));
        }
        let mut cluster = Cluster {
            bootstrap,
            options,
            brokers: HashMap::new(),
            controller: -1,
            cluster_id: None,
            topics: HashMap::new(),
            connections: HashMap::new(),
            first: None,
            deadline: None,
        };
        cluster.any()?;
        Ok(cluster)
    }

    /// Nothing goes on behind `deadline` from now on: no wait for an answer, for a connection, or for another try.
    /// `None`: each takes as long as the options say. Returns what held before.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        let before = std::mem::replace(&mut self.deadline, deadline);
        if deadline.is_none() {
            let usual = self.options.connect.request_timeout;
            for connection in self.connections.values_mut().chain(&mut self.first) {
                // A connection that is broken says so when it is used.
                let _ = connection.set_request_timeout(usual);
            }
        }
        before
    }

    /// How to connect, and how long to wait for one answer.
    fn connect_options(&self) -> ConnectOptions {
        let usual = &self.options.connect;
        match self.deadline {
            None => usual.clone(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                usual.within(left.max(ANSWER_WAIT_MIN))
            }
        }
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// A connection to some broker.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn any(&mut self) -> Result<&mut Connection> {
        let mut first = match self.first.take() {
            Some(first) => first,
            None => self.connect_somewhere()?,
        };
        if self.deadline.is_some() {
            first.set_request_timeout(self.connect_options().request_timeout)?;
        }
        Ok(self.first.insert(first))
    }

    fn connect_somewhere(&self) -> Result<Connection> {
        let known = self.brokers.values().map(Broker::address);
        let mut outcome = Err(ClientError::Invalid(
            "no bootstrap server is given".to_owned(),
        ));
        let deadline = self.until(self.options.retry_for.max(self.options.retry_backoff));
        for address in self.bootstrap.iter().cloned().chain(known) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            outcome = Connection::connect(&address, &self.options.connect.within(left));
            if let Ok(connection) = &mut outcome {
                connection.set_request_timeout(self.options.connect.request_timeout)?;
                break;
            }
        }
        outcome
    }

    /// The connection to broker `id`, opened when needed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn broker(&mut self, id: i32) -> Result<&mut Connection> {
        if !self.connections.contains_key(&id) {
            let broker = self.brokers.get(&id).ok_or_else(|| {
                ClientError::Invalid(format!("broker {id} is not in the metadata"))
            })?;
            let connection = Connection::connect(&broker.address(), &self.connect_options())?;
            self.connections.insert(id, connection);
        }
        let missing = || ClientError::Invalid(format!("no connection to broker {id}"));
        let limit = self
            .deadline
            .map(|_| self.connect_options().request_timeout);
        let connection = self.connections.get_mut(&id).ok_or_else(missing)?;
        if let Some(limit) = limit {
            connection.set_request_timeout(limit)?;
        }
        Ok(connection)
    }

    /// So long from now, or when the operation has to be over.
    fn until(&self, longest: Duration) -> Instant {
        let until = Instant::now() + longest;
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }

    /// Drops the connection to broker `id`; the next use opens a new one.
    pub fn disconnect(&mut self, id: i32) {
        self.connections.remove(&id);
    }

    /// Drops every connection.
    pub fn disconnect_all(&mut self) {
        self.connections.clear();
        self.first = None;
    }

    /// Sends `request` to some broker, again while that may help.
    ///
    /// # Errors
    /// The last error.
    pub fn call_any<R: Request>(&mut self, request: &R) -> Result<R::Response> {
        self.retry(|cluster| cluster.any()?.call(request))
    }

    /// Repeats `attempt` as long as its error says that it may help, up to `retry_for`. Between two tries
    /// connections are dropped or metadata forgotten as the error advises.
    ///
    /// # Errors
    /// The last error.
    pub fn retry<T>(&mut self, mut attempt: impl FnMut(&mut Cluster) -> Result<T>) -> Result<T> {
        let deadline = self.until(self.options.retry_for);
        let mut pause = self.options.retry_backoff;
        loop {
            let error = match attempt(self) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !self.prepare_retry(&error) || Instant::now() + pause > deadline {
                return Err(error);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// As [`Cluster::retry`], about something that is to exist: where the broker says that there is no such
    /// topic, asking again does not make it appear.
    pub(crate) fn retry_on_existing<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Cluster) -> Result<T>,
    ) -> Result<T> {
        self.retry(|cluster| match attempt(cluster) {
            Err(e) if e.code() == Some(ErrorCode::UnknownTopicOrPartition) => Ok(Err(e)),
            other => other.map(Ok),
        })?
    }

    /// Does what `error` advises before another try; false when another try is of no use.
    pub(crate) fn prepare_retry(&mut self, error: &ClientError) -> bool {
        match error.advice() {
            Advice::Retry => true,
            Advice::RefreshAndRetry => {
                self.topics.clear();
                true
            }
            Advice::ReconnectAndRetry => {
                self.disconnect_all();
                self.topics.clear();
                true
            }
            Advice::GiveUp => false,
        }
    }

    /// Does what `error` advises after a call over [`Cluster::any`]: other connections may have answers on
    /// their way.
    pub(crate) fn prepare_retry_somewhere(&mut self, error: &ClientError) {
        if error.advice() == Advice::ReconnectAndRetry {
            self.first = None;
        }
    }

    /// Like [`Cluster::prepare_retry`], but touches no connection except that to `broker`, over which the
    /// error came: others may have answers on their way.
    pub(crate) fn prepare_retry_at(&mut self, broker: i32, error: &ClientError) -> bool {
        match error.advice() {
            Advice::Retry => true,
            Advice::RefreshAndRetry => {
                self.topics.clear();
                true
            }
            Advice::ReconnectAndRetry => {
                self.disconnect(broker);
                self.first = None;
                self.topics.clear();
                true
            }
            Advice::GiveUp => false,
        }
    }

    /// Brokers of the last metadata answer, by id.
    #[must_use]
    pub fn brokers(&self) -> Vec<Broker> {
        let mut brokers: Vec<Broker> = self.brokers.values().cloned().collect();
        brokers.sort_by_key(|b| b.id);
        brokers
    }

    /// Controller id of the last metadata answer, -1 when not known.
    #[must_use]
    pub fn controller(&self) -> i32 {
        self.controller
    }

    /// Cluster id of the last metadata answer.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// All topics, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn list_topics(&mut self) -> Result<Vec<Topic>> {
        let request = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        let response = self.call_any(&request)?;
        self.adopt_brokers(&response);
        let mut topics = Vec::new();
        for topic in &response.topics {
            topics.push(topic_of(topic)?);
        }
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        let known = topics
            .iter()
            .map(|t| (t.name.clone(), Known::now(t.clone())));
        self.topics = known.collect();
        Ok(topics)
    }

    /// One topic, from the cache or the broker. Right after a topic was created its leaders may not be
    /// known everywhere: this waits for the first. Others may be without one for long, when a disk failed:
    /// see [`Topic::leaderless`]. They are asked for again now and then.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with UNKNOWN_TOPIC_OR_PARTITION when it does not exist (at once with
    /// [`MissingTopic::Refuse`]).
    pub fn topic(&mut self, name: &str, missing: MissingTopic) -> Result<&Topic> {
        match self.topics.get(name).map(Known::is_due) {
            Some(false) => {}
            Some(true) => self.look_for_leaders(name),
            None => {
                let topic = match missing {
                    MissingTopic::Refuse => self.fetch_existing_topic(name)?,
                    MissingTopic::Create => self.retry(|c| c.fetch_topic(name, missing))?,
                };
                self.topics.insert(name.to_owned(), Known::now(topic));
            }
        }
        let known = self.topics.get(name);
        known
            .map(|known| &known.topic)
            .ok_or_else(|| unknown_topic(name))
    }

    /// What is known of a topic stays when nothing newer can be learned.
    fn look_for_leaders(&mut self, name: &str) {
        match self.fetch_topic(name, MissingTopic::Refuse) {
            Ok(topic) => {
                self.topics.insert(name.to_owned(), Known::now(topic));
            }
            Err(error) => {
                self.prepare_retry_somewhere(&error);
                if let Some(known) = self.topics.get_mut(name) {
                    known.asked = Instant::now();
                }
            }
        }
    }

    fn fetch_existing_topic(&mut self, name: &str) -> Result<Topic> {
        self.retry_on_existing(|cluster| cluster.fetch_topic(name, MissingTopic::Refuse))
    }

    fn fetch_topic(&mut self, name: &str, missing: MissingTopic) -> Result<Topic> {
        let wanted = MetadataRequestTopic {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![wanted]),
            allow_auto_topic_creation: missing == MissingTopic::Create,
            ..Default::default()
        };
        let response = self.any()?.call(&request)?;
        self.adopt_brokers(&response);
        let found = response
            .topics
            .iter()
            .find(|t| t.name.as_deref() == Some(name));
        let topic = topic_of(found.ok_or_else(|| unknown_topic(name))?)?;
        if topic.partitions.iter().all(|p| p.leader < 0) {
            let code = ErrorCode::LeaderNotAvailable as i16;
            ClientError::check(code, || format!("find the leaders of topic {name}"), None)?;
        }
        Ok(topic)
    }

    /// Broker id of the leader of a partition.
    ///
    /// # Errors
    /// As [`Cluster::topic`]; LEADER_NOT_AVAILABLE when it has none at the moment; [`ClientError::Invalid`]
    /// when the topic has no such partition.
    pub fn leader(&mut self, topic: &str, partition: i32) -> Result<i32> {
        let found = self.topic(topic, MissingTopic::Refuse)?;
        let known = found.partitions.iter().find(|p| p.index == partition);
        let leader = known
            .map(|p| p.leader)
            .ok_or_else(|| no_partition(found, partition))?;
        if leader < 0 {
            let code = ErrorCode::LeaderNotAvailable as i16;
            let what = || format!("find the leader of {topic}-{partition}");
            ClientError::check(code, what, None)?;
        }
        Ok(leader)
    }

    /// Forgets topics, so that the next use asks again.
    pub fn forget_topics(&mut self) {
        self.topics.clear();
    }

    /// Asks some broker which brokers there are, once.
    pub(crate) fn refresh_brokers(&mut self) -> Result<()> {
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            ..Default::default()
        };
        let response = self.any()?.call(&request)?;
        self.adopt_brokers(&response);
        Ok(())
    }

    /// A broker that another answer than that to a metadata request named.
    pub(crate) fn learn_broker(&mut self, broker: &Broker) {
        let same = |known: &Broker| known.host == broker.host && known.port == broker.port;
        if !self.brokers.get(&broker.id).is_some_and(same) {
            self.disconnect(broker.id);
            self.brokers.insert(broker.id, broker.clone());
        }
    }

    fn adopt_brokers(&mut self, response: &MetadataResponse) {
        let brokers = response.brokers.iter().map(|b| Broker {
            id: b.node_id,
            host: b.host.clone(),
            port: b.port,
            rack: b.rack.clone(),
        });
        self.brokers = brokers.map(|b| (b.id, b)).collect();
        self.controller = response.controller_id;
        self.cluster_id.clone_from(&response.cluster_id);
    }
}

pub(crate) fn no_partition(topic: &Topic, partition: i32) -> ClientError {
    ClientError::Invalid(format!(
        "topic {} has no partition {partition}; it has {}",
        topic.name,
        topic.partitions.len()
    ))
}

fn unknown_topic(name: &str) -> ClientError {
    ClientError::Refused {
        what: format!("topic {name}"),
        code: ErrorCode::UnknownTopicOrPartition as i16,
        message: None,
    }
}

fn topic_of(topic: &MetadataResponseTopic) -> Result<Topic> {
    let name = topic.name.clone().unwrap_or_default();
    ClientError::check(topic.error_code, || format!("topic {name}"), None)?;
    let mut partitions: Vec<Partition> = topic.partitions.iter().map(partition_of).collect();
    partitions.sort_by_key(|p| p.index);
    Ok(Topic {
        name,
        id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions,
    })
}

fn partition_of(p: &MetadataResponsePartition) -> Partition {
    Partition {
        index: p.partition_index,
        leader: p.leader_id,
        leader_epoch: p.leader_epoch,
        replicas: p.replica_nodes.clone(),
        isr: p.isr_nodes.clone(),
        offline: p.offline_replicas.clone(),
        core: (p.core >= 0).then_some(p.core),
    }
}
