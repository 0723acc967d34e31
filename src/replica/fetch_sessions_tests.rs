//! What `fetch_sessions.rs` promises.

use std::sync::Arc;

use super::{
    Begun, FetchKey, FetchSessions, FetchTopicKey, Fetcher, Found, More, SessionAsk, Wanted,
};
use thalweg_protocol::ErrorCode;
use thalweg_types::limits::{FETCH_SESSION_EVICTION_MS, FETCH_SESSIONS_MAX};
use thalweg_types::{LeaderEpoch, Offset, Uuid};

fn key(partition: i32) -> FetchKey {
    FetchKey {
        topic: FetchTopicKey::Name(Arc::from("t")),
        partition,
    }
}

fn wanted(partition: i32, offset: i64) -> Wanted {
    Wanted {
        key: key(partition),
        offset: Offset(offset),
        bytes_max: 100,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
    }
}

fn ask(id: i32, epoch: i32) -> SessionAsk {
    SessionAsk {
        id,
        epoch,
        from: Fetcher::Consumer,
    }
}

fn at(high_watermark: i64, more: More) -> Found {
    Found {
        high_watermark: Offset(high_watermark),
        log_start: Offset(0),
        more,
    }
}

/// Draws that are random enough for ids.
fn draws() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 20
    }
}

fn finish(
    cache: &mut FetchSessions,
    now: u64,
    begun: Begun,
    rows: &[(Wanted, Found)],
    draw: &mut dyn FnMut() -> u64,
) -> Result<(i32, Vec<bool>), ErrorCode> {
    let all = rows.iter().map(|(wanted, found)| (wanted, *found));
    let finished = cache.finish(now, begun, all, draw);
    cache.check();
    let (id, told) = finished?;
    Ok((id, (0..rows.len()).map(|row| told.has(row)).collect()))
}

fn opened(cache: &mut FetchSessions, now: u64, count: i32, draw: &mut dyn FnMut() -> u64) -> i32 {
    let named: Vec<_> = (0..count).map(|p| wanted(p, 0)).collect();
    let (begun, fetch) = cache
        .begin(now, ask(0, 0), named, [])
        .expect("a new session");
    let rows: Vec<_> = fetch
        .into_iter()
        .map(|w| (w, at(5, More::Nothing)))
        .collect();
    finish(cache, now, begun, &rows, draw).expect("told").0
}

fn partitions(all: &[Wanted]) -> Vec<i32> {
    all.iter().map(|wanted| wanted.key.partition).collect()
}

#[test]
fn bi_36_names_that_no_topic_can_have_are_not_kept() {
    let named = |length: usize| Wanted {
        key: FetchKey {
            topic: FetchTopicKey::Name(Arc::from("x".repeat(length))),
            partition: 0,
        },
        ..wanted(0, 0)
    };
    let (mut cache, mut draw) = (FetchSessions::new(0, 1), draws());
    // It is told what is wrong with it, without a session.
    let (begun, fetch) = cache
        .begin(0, ask(0, 0), vec![named(250)], [])
        .expect("served");
    assert_eq!(fetch.len(), 1);
    let rows = [(named(250), at(-1, More::Error))];
    let told = finish(&mut cache, 0, begun, &rows, &mut draw);
    assert_eq!(told, Ok((0, vec![true])));
    // None comes into a session that there is.
    let id = opened(&mut cache, 0, 2, &mut draw);
    let begun = cache.begin(1, ask(id, 1), vec![named(249)], []);
    assert_eq!(begun.expect("known").1.len(), 3);
    let begun = cache.begin(2, ask(id, 2), vec![named(250)], []);
    assert_eq!(begun, Err(ErrorCode::FetchSessionIdNotFound));
    assert!(cache.is_empty());
    cache.check();
}

#[test]
fn only_what_changed_is_told_and_who_had_records_waits() {
    let (mut cache, mut draw) = (FetchSessions::new(1, 3), draws());
    let id = opened(&mut cache, 0, 3, &mut draw);
    assert!(id > 0 && id % 3 == 1);
    // Nothing named: the same three again.
    let (begun, fetch) = cache.begin(1, ask(id, 1), vec![], []).expect("known");
    assert_eq!(partitions(&fetch), [0, 1, 2]);
    let found = [
        at(5, More::Nothing),
        at(7, More::Records),
        at(6, More::Nothing),
    ];
    let rows: Vec<_> = fetch.into_iter().zip(found).collect();
    let told = finish(&mut cache, 1, begun, &rows, &mut draw);
    assert_eq!(told, Ok((id, vec![false, true, true])));
    // Partition 1 had records: it is last now. 0 is forgotten, 3 is new.
    let named = vec![wanted(3, 0), wanted(1, 7)];
    let (begun, fetch) = cache.begin(2, ask(id, 2), named, [key(0)]).expect("known");
    assert_eq!(partitions(&fetch), [2, 1, 3]);
    assert_eq!(fetch[1].offset, Offset(7));
    let found = [
        at(-1, More::Error),
        at(7, More::Nothing),
        at(5, More::Nothing),
    ];
    let rows: Vec<_> = fetch.into_iter().zip(found).collect();
    let told = finish(&mut cache, 2, begun, &rows, &mut draw);
    assert_eq!(told, Ok((id, vec![true, false, true])));
    // The error is over: that is news.
    let (begun, fetch) = cache.begin(3, ask(id, 3), vec![], []).expect("known");
    let rows: Vec<_> = fetch
        .into_iter()
        .map(|w| (w, at(6, More::Nothing)))
        .collect();
    let (_, told) = finish(&mut cache, 3, begun, &rows, &mut draw).expect("told");
    assert!(told[0]);
}

#[test]
fn rp_55_unknown_sessions_and_wrong_epochs() {
    let (mut cache, mut draw) = (FetchSessions::new(0, 1), draws());
    let id = opened(&mut cache, 0, 2, &mut draw);
    let mut refused = |ask, named| cache.begin(1, ask, named, []).map(|_| ());
    assert_eq!(
        refused(ask(id + 1, 1), vec![]),
        Err(ErrorCode::FetchSessionIdNotFound)
    );
    assert_eq!(
        refused(ask(id, 2), vec![]),
        Err(ErrorCode::InvalidFetchSessionEpoch)
    );
    let by_id = Wanted {
        key: FetchKey {
            topic: FetchTopicKey::Id(Uuid([1; 16])),
            partition: 0,
        },
        ..wanted(0, 0)
    };
    assert_eq!(
        refused(ask(id, 1), vec![by_id]),
        Err(ErrorCode::FetchSessionTopicIdError)
    );
    // Two requests at once: the first has lost its place.
    let (first, _) = cache.begin(1, ask(id, 1), vec![], []).expect("known");
    let (_second, _) = cache.begin(1, ask(id, 2), vec![], []).expect("known");
    let told = finish(&mut cache, 1, first, &[], &mut draw);
    assert_eq!(told, Err(ErrorCode::InvalidFetchSessionEpoch));
    // The last epoch ends it, and so does forgetting everything.
    cache.begin(1, ask(id, -1), vec![], []).expect("no session");
    assert!(cache.is_empty());
    let id = opened(&mut cache, 0, 2, &mut draw);
    let (begun, fetch) = cache
        .begin(1, ask(id, 1), vec![], [key(0), key(1)])
        .expect("known");
    assert!(fetch.is_empty() && cache.is_empty());
    assert_eq!(
        finish(&mut cache, 1, begun, &[], &mut draw),
        Ok((0, vec![]))
    );
}

#[test]
fn rp_55_a_full_cache_keeps_the_young_and_the_large() {
    let (mut cache, mut draw) = (FetchSessions::new(0, 1), draws());
    for _ in 0..FETCH_SESSIONS_MAX {
        assert_ne!(opened(&mut cache, 0, 2, &mut draw), 0);
    }
    assert_eq!(opened(&mut cache, 1, 2, &mut draw), 0, "all are young");
    let late = FETCH_SESSION_EVICTION_MS;
    assert_ne!(opened(&mut cache, late, 1, &mut draw), 0, "all are idle");
    assert_eq!(cache.len(), FETCH_SESSIONS_MAX);
}

#[test]
fn epochs_begin_again() {
    assert_eq!(super::next_epoch(i32::MAX), 1);
}
