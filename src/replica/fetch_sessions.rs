//! Fetch sessions (KIP-227): a client names its partitions once, and then only what changes; the broker
//! tells only what changed.
//!
//! One cache per shard, for the connections of that shard. Order of calls for each fetch:
//! [`FetchSessions::begin`], the fetch itself, [`FetchSessions::finish`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thalweg_protocol::ErrorCode;
use thalweg_types::limits::{
    FETCH_SESSION_EVICTION_MS, FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX,
    TOPIC_NAME_BYTES_MAX,
};
use thalweg_types::{LeaderEpoch, Offset, TopicId};

/// Epoch of a request that opens a session.
const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request that wants none.
const FINAL_EPOCH: i32 = -1;
/// "No session" on the wire.
const NO_SESSION: i32 = 0;

/// A topic as a request names it: by name before Fetch 13, by id from there on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FetchTopicKey {
    /// By name.
    Name(Arc<str>),
    /// By id.
    Id(TopicId),
}

impl FetchTopicKey {
    /// A name that no topic can have.
    fn is_too_long(&self) -> bool {
        match self {
            FetchTopicKey::Name(name) => name.len() > TOPIC_NAME_BYTES_MAX,
            FetchTopicKey::Id(_) => false,
        }
    }
}

/// A partition as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FetchKey {
    /// Its topic.
    pub topic: FetchTopicKey,
    /// Its index.
    pub partition: i32,
}

/// One partition that is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub key: FetchKey,
    /// First offset wanted.
    pub offset: Offset,
    /// Most bytes of it.
    pub bytes_max: i32,
    /// Leader epoch that the client believes in, -1 for none.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record the client has, -1 for none.
    pub last_fetched_epoch: LeaderEpoch,
}

/// What a request says of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionAsk {
    /// `session_id`.
    pub id: i32,
    /// `session_epoch`.
    pub epoch: i32,
    /// Whether a follower asks: its sessions give way last.
    pub from: Fetcher,
}

/// Who fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetcher {
    /// A client.
    Consumer,
    /// A replica.
    Follower,
}

/// How a fetch that has begun is to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sessionless,
    Opening(Fetcher),
    Continuing { id: i32, epoch: i32 },
}

/// What the fetch found in one partition, as far as sessions need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// High watermark told.
    pub high_watermark: Offset,
    /// Log start told.
    pub log_start: Offset,
    /// Whether there is more to tell than these two.
    pub more: More,
}

/// Which rows of a fetch are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Each.
    All,
    /// Those that are true here, in the order of the rows.
    Some(Vec<bool>),
}

impl Told {
    /// Whether the row with this index is.
    #[must_use]
    pub fn has(&self, row: usize) -> bool {
        match self {
            Told::All => true,
            Told::Some(rows) => rows.get(row).is_some_and(|told| *told),
        }
    }
}

/// What there is to tell beside the offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// Nothing.
    Nothing,
    /// Records: the partition goes to the end of the queue, so that each has its turn.
    Records,
    /// Something that is not an error, but must be told: where histories part.
    Divergence,
    /// An error; when it is over, that is told too.
    Error,
}

#[derive(Debug)]
struct Cached {
    wanted: Wanted,
    high_watermark: Offset,
    log_start: Offset,
}

#[derive(Debug)]
struct Session {
    /// Epoch that the next request must have.
    epoch: i32,
    from: Fetcher,
    opened_ms: u64,
    used_ms: u64,
    /// In the order in which they are fetched.
    queue: BTreeMap<u64, Cached>,
    places: HashMap<FetchKey, u64>,
    next_place: u64,
}

/// The sessions of one shard.
#[derive(Debug)]
pub struct FetchSessions {
    sessions: HashMap<i32, Session>,
    /// Partitions of all sessions.
    partitions: usize,
    shard: i32,
    shards: i32,
}

impl FetchSessions {
    /// No sessions yet. Ids of different shards, `shard` of `shards`, never meet.
    #[must_use]
    pub fn new(shard: u16, shards: u16) -> FetchSessions {
        FetchSessions {
            sessions: HashMap::new(),
            partitions: 0,
            shard: i32::from(shard),
            shards: i32::from(shards.max(1)),
        }
    }

    /// A request has come: which partitions are to be fetched, in which order, and how to finish.
    ///
    /// # Errors
    /// The code that the whole answer carries: no such session, or the client and this broker do not
    /// agree where in it they are. The client then opens another.
    pub fn begin(
        &mut self,
        now_ms: u64,
        ask: SessionAsk,
        named: Vec<Wanted>,
        forgotten: impl IntoIterator<Item = FetchKey>,
    ) -> Result<(Begun, Vec<Wanted>), ErrorCode> {
        // Nothing has such a name, and a session would keep it, and tell so each time.
        let is_keepable = !named.iter().any(|wanted| wanted.key.topic.is_too_long());
        if ask.epoch == INITIAL_EPOCH || ask.epoch == FINAL_EPOCH {
            self.remove(ask.id);
            let kind = match ask.epoch {
                INITIAL_EPOCH if is_keepable => Kind::Opening(ask.from),
                _final => Kind::Sessionless,
            };
            return Ok((Begun(kind), named));
        }
        let session = self
            .sessions
            .get_mut(&ask.id)
            .ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if !named.iter().all(|wanted| session.names_alike(&wanted.key)) {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        if session.epoch != ask.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        let before = session.queue.len();
        let grown = before + named.len();
        let is_full = self.partitions - before + grown > FETCH_SESSION_PARTITIONS_MAX;
        if is_full || !is_keepable {
            // Rather a new start, which may go on without a session, than a session without bounds.
            self.remove(ask.id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        for wanted in named {
            session.name(wanted);
        }
        for key in forgotten {
            session.forget(&key);
        }
        self.partitions = self.partitions - before + session.queue.len();
        if session.queue.is_empty() {
            self.remove(ask.id);
            return Ok((Begun(Kind::Sessionless), Vec::new()));
        }
        session.epoch = next_epoch(session.epoch);
        session.used_ms = now_ms;
        let (id, epoch) = (ask.id, session.epoch);
        let all = session.queue.values().map(|cached| cached.wanted.clone());
        Ok((Begun(Kind::Continuing { id, epoch }), all.collect()))
    }

    /// Partitions that the session `id` stands for; 0 when there is none.
    #[must_use]
    pub fn partitions_of(&self, id: i32) -> usize {
        self.sessions
            .get(&id)
            .map_or(0, |session| session.queue.len())
    }

    /// The fetch is done: the session id to answer, and which partitions to tell. `rows` are those
    /// that `begin` gave, with what was found in each.
    ///
    /// # Errors
    /// Another request has moved the session on meanwhile.
    pub fn finish<'r>(
        &mut self,
        now_ms: u64,
        begun: Begun,
        rows: impl ExactSizeIterator<Item = (&'r Wanted, Found)>,
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<(i32, Told), ErrorCode> {
        match begun.0 {
            Kind::Sessionless => Ok((NO_SESSION, Told::All)),
            Kind::Opening(from) => Ok((self.open(now_ms, from, rows, draw), Told::All)),
            Kind::Continuing { id, epoch } => {
                let session = self
                    .sessions
                    .get_mut(&id)
                    .ok_or(ErrorCode::FetchSessionIdNotFound)?;
                if session.epoch != epoch {
                    return Err(ErrorCode::InvalidFetchSessionEpoch);
                }
                let told = rows.map(|(wanted, found)| session.tell(&wanted.key, found));
                Ok((id, Told::Some(told.collect())))
            }
        }
    }

    /// Sessions kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Asserts what must always hold.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        let sum: usize = self.sessions.values().map(|s| s.queue.len()).sum();
        assert_eq!(sum, self.partitions, "the count is right");
        assert!(self.sessions.len() <= FETCH_SESSIONS_MAX);
        assert!(self.partitions <= FETCH_SESSION_PARTITIONS_MAX);
        for session in self.sessions.values() {
            assert_eq!(session.queue.len(), session.places.len());
            for (place, cached) in &session.queue {
                assert_eq!(session.places.get(&cached.wanted.key), Some(place));
            }
        }
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.queue.len();
        }
    }

    fn open<'r>(
        &mut self,
        now_ms: u64,
        from: Fetcher,
        rows: impl ExactSizeIterator<Item = (&'r Wanted, Found)>,
        draw: &mut dyn FnMut() -> u64,
    ) -> i32 {
        if rows.len() == 0 || !self.make_room(now_ms, from, rows.len()) {
            return NO_SESSION;
        }
        let mut session = Session {
            epoch: next_epoch(INITIAL_EPOCH),
            from,
            opened_ms: now_ms,
            used_ms: now_ms,
            queue: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        };
        let rows: Vec<_> = rows.collect();
        for (wanted, _) in &rows {
            session.name((*wanted).clone());
        }
        // Behind all others goes who had records already.
        for (wanted, found) in rows {
            session.tell(&wanted.key, found);
        }
        let id = self.new_id(draw);
        self.partitions += session.queue.len();
        self.sessions.insert(id, session);
        id
    }

    /// Lets sessions go until one of `size` partitions fits. One that was not used for long goes
    /// first, then a smaller one that is not young; a follower's only for a follower.
    fn make_room(&mut self, now_ms: u64, from: Fetcher, size: usize) -> bool {
        let fits = |cache: &FetchSessions| {
            cache.sessions.len() < FETCH_SESSIONS_MAX
                && cache.partitions + size <= FETCH_SESSION_PARTITIONS_MAX
        };
        if size > FETCH_SESSION_PARTITIONS_MAX {
            return false;
        }
        let aged = |since: u64| now_ms.saturating_sub(since) >= FETCH_SESSION_EVICTION_MS;
        while !fits(self) {
            let idle = self.sessions.iter().filter(|(_, s)| aged(s.used_ms));
            let idlest = idle.min_by_key(|(_, s)| s.used_ms).map(|(id, _)| *id);
            let gives_way = |s: &Session| {
                let yields = s.from == Fetcher::Consumer || from == Fetcher::Follower;
                yields && aged(s.opened_ms) && s.queue.len() < size
            };
            let smaller = self.sessions.iter().filter(|(_, s)| gives_way(s));
            let smallest = smaller
                .min_by_key(|(_, s)| s.queue.len())
                .map(|(id, _)| *id);
            match idlest.or(smallest) {
                Some(id) => self.remove(id),
                None => return false,
            }
        }
        true
    }

    /// A positive number that no session has and that belongs to this shard.
    fn new_id(&self, draw: &mut dyn FnMut() -> u64) -> i32 {
        let most = i32::MAX / self.shards;
        loop {
            let drawn = i32::try_from(draw() % u64::from(most.unsigned_abs())).unwrap_or(0);
            let id = drawn * self.shards + self.shard;
            if id != NO_SESSION && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Session {
    /// A session is by name or by id, never both.
    fn names_alike(&self, key: &FetchKey) -> bool {
        let by_name = |key: &FetchKey| match key.topic {
            FetchTopicKey::Name(_) => true,
            FetchTopicKey::Id(_) => false,
        };
        let first = self.queue.values().next();
        first.is_none_or(|cached| by_name(&cached.wanted.key) == by_name(key))
    }

    fn name(&mut self, wanted: Wanted) {
        if let Some(place) = self.places.get(&wanted.key)
            && let Some(cached) = self.queue.get_mut(place)
        {
            cached.wanted = wanted;
            return;
        }
        self.places.insert(wanted.key.clone(), self.next_place);
        let cached = Cached {
            wanted,
            high_watermark: Offset(-1),
            log_start: Offset(-1),
        };
        self.queue.insert(self.next_place, cached);
        self.next_place += 1;
    }

    fn forget(&mut self, key: &FetchKey) {
        if let Some(place) = self.places.remove(key) {
            self.queue.remove(&place);
        }
    }

    /// Whether the client must hear of the partition; remembers what it hears.
    fn tell(&mut self, key: &FetchKey, found: Found) -> bool {
        let Some(place) = self.places.get_mut(key) else {
            return true;
        };
        let Some(cached) = self.queue.get_mut(place) else {
            return true;
        };
        let moved =
            cached.high_watermark != found.high_watermark || cached.log_start != found.log_start;
        cached.high_watermark = found.high_watermark;
        cached.log_start = found.log_start;
        match found.more {
            More::Nothing => moved,
            More::Divergence => true,
            More::Error => {
                // Whatever comes after the error is news.
                cached.high_watermark = Offset(-1);
                true
            }
            More::Records => {
                if let Some(cached) = self.queue.remove(place) {
                    *place = self.next_place;
                    self.queue.insert(self.next_place, cached);
                    self.next_place += 1;
                }
                true
            }
        }
    }
}

/// Epochs go from 1 and begin again at 1.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
#[path = "fetch_sessions_tests.rs"]
mod tests;
