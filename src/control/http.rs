//! Metrics and health over HTTP: `/metrics`, `/healthz`, `/readyz`; and what Kafka's protocol has no request
//! for: `/groups/NAME/lag`, `/groups/NAME/history`, `/log-dirs`, `/slow`, `/top`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use thalweg_metrics::{CONTENT_TYPE, CoreMetrics, Snapshot, render_prometheus};
use thalweg_reactor::{mailbox, oneshot};
use thalweg_types::limits::{BUSY_PARTITIONS_TOLD_MAX, SLOW_REQUESTS_TOLD_MAX};

use crate::facts::Facts;
use crate::history::{self, HistoryAnswer};
use crate::lag::{self, LagAnswer, LagLine, Positioned};
use crate::readiness::Readiness;
use crate::requests::ShardCommand;
use crate::unserved::{self, DirectoryLine, LogDirsAnswer};
use crate::{slow, top};

/// A shard that does not answer a scrape within this time is left out of it, and `/healthz` fails.
const SCRAPE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Slow requests that are told where nobody says how many.
const SLOW_REQUESTS_TOLD: usize = 20;
/// Partitions that are told where nobody says how many.
const BUSY_PARTITIONS_TOLD: usize = 20;

/// What the endpoints read.
pub struct HttpState {
    /// Whether the broker serves.
    pub readiness: Arc<Readiness>,
    /// What the control plane knows of the process.
    pub facts: Arc<Facts>,
    /// One mailbox per shard, in order of shard id.
    pub shards: Vec<mailbox::Sender<ShardCommand>>,
    /// Asks for the numbers of the accept loop.
    pub control: mailbox::Sender<oneshot::Sender<CoreMetrics>>,
}

/// Binds the endpoint.
///
/// # Errors
/// The error of `bind`, for example when another process has the port.
pub async fn bind(address: SocketAddr) -> io::Result<(tokio::net::TcpListener, SocketAddr)> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves until the runtime ends.
///
/// # Errors
/// The error of the accept loop.
pub async fn serve(listener: tokio::net::TcpListener, state: HttpState) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/slow", get(slow_requests))
        .route("/top", get(top_of_all))
        .route("/groups/{group}/lag", get(group_lag))
        .route("/groups/{group}/history", get(group_history))
        .route("/log-dirs", get(log_dirs))
        .with_state(Arc::new(state));
    axum::serve(listener, routes).await
}

async fn metrics(State(state): State<Arc<HttpState>>) -> Response {
    let mut cores = scrape_all(&state).await;
    let (reply, control) = oneshot::channel();
    if state.control.send(reply).await.is_ok() {
        cores.extend(control.await);
    }
    let lag = match state.readiness.is_ready() {
        true => Some(lag::of_all(&state.shards, SCRAPE_WAIT_MAX).await),
        false => None,
    };
    let text = render_prometheus(&Snapshot {
        process: state.facts.get(),
        cores,
        lag,
    });
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

/// Alive means that every shard still takes turns.
async fn healthz(State(state): State<Arc<HttpState>>) -> Response {
    if state.readiness.is_ready() {
        for shard in 0..state.shards.len() {
            if scrape(&state, shard).await.is_none() {
                let line = format!("shard {shard} did not answer within {SCRAPE_WAIT_MAX:?}\n");
                return (StatusCode::SERVICE_UNAVAILABLE, line).into_response();
            }
        }
    }
    (StatusCode::OK, "ok\n").into_response()
}

async fn readyz(State(state): State<Arc<HttpState>>) -> Response {
    let status = match state.readiness.is_ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let word = state.readiness.word();
    let so_far = state.facts.opening().get();
    let line = match state.readiness.is_starting() && so_far.logs > 0 {
        true => format!(
            "{word}: {} of {} logs open, {} bytes checked in {:.1} s\n",
            so_far.open,
            so_far.logs,
            so_far.bytes_checked,
            so_far.took.as_secs_f64()
        ),
        false => format!("{word}\n"),
    };
    (status, line).into_response()
}

/// How far one group is behind. A group that is not there has committed nothing.
async fn group_lag(
    State(state): State<Arc<HttpState>>,
    Path(group): Path<String>,
    _: NoQuery,
) -> Response {
    let of = Positioned::Group(group.clone());
    let found = lag::look(&state.shards, of, SCRAPE_WAIT_MAX).await;
    json(&LagAnswer {
        group,
        // So that a client can tell whether it asks the cluster that it means.
        cluster_id: state.facts.get().cluster_id,
        partitions: found.rows.into_iter().map(LagLine::from).collect(),
    })
}

/// The last rebalances of one group.
async fn group_history(
    State(state): State<Arc<HttpState>>,
    Path(group): Path<String>,
    _: NoQuery,
) -> Response {
    json(&HistoryAnswer {
        rebalances: history::look(&state.shards, &group, SCRAPE_WAIT_MAX).await,
        group,
        cluster_id: state.facts.get().cluster_id,
    })
}

/// The log directories, and what is not served of what lies in them.
async fn log_dirs(State(state): State<Arc<HttpState>>, _: NoQuery) -> Response {
    let (unserved, shards_missing) = unserved::look(&state.shards, SCRAPE_WAIT_MAX).await;
    let facts = state.facts.get();
    json(&LogDirsAnswer {
        cluster_id: facts.cluster_id,
        broker: facts.node_id,
        directories: facts
            .log_dirs
            .into_iter()
            .map(DirectoryLine::from)
            .collect(),
        offline: unserved.offline,
        quarantined: unserved.quarantined,
        not_moved: unserved.not_moved,
        shards_missing,
        left_out: unserved.left_out,
    })
}

/// The slowest requests of the last minute or two, `?n=COUNT` of them.
async fn slow_requests(State(state): State<Arc<HttpState>>, RawQuery(query): RawQuery) -> Response {
    match told(query.as_deref(), SLOW_REQUESTS_TOLD, SLOW_REQUESTS_TOLD_MAX) {
        Ok(count) => json(&slow::of(&scrape_all(&state).await, &state.facts, count)),
        Err(line) => (StatusCode::BAD_REQUEST, line).into_response(),
    }
}

/// What the broker does now, with the `?n=COUNT` busiest partitions.
async fn top_of_all(State(state): State<Arc<HttpState>>, RawQuery(query): RawQuery) -> Response {
    match told(
        query.as_deref(),
        BUSY_PARTITIONS_TOLD,
        BUSY_PARTITIONS_TOLD_MAX,
    ) {
        Ok(count) => json(&top::of(&scrape_all(&state).await, &state.facts, count)),
        Err(line) => (StatusCode::BAD_REQUEST, line).into_response(),
    }
}

/// Of a path where nothing can be asked by a query: one is refused.
struct NoQuery;

impl NoQuery {
    fn of(query: Option<&str>) -> Result<NoQuery, (StatusCode, &'static str)> {
        match query.is_none_or(str::is_empty) {
            true => Ok(NoQuery),
            false => Err((
                StatusCode::BAD_REQUEST,
                "nothing can be asked here by a query\n",
            )),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<NoQuery, Self::Rejection> {
        NoQuery::of(parts.uri.query())
    }
}

/// How many things a query asks for by `n=COUNT`: `usual` where it does not say, at most `most`.
fn told(query: Option<&str>, usual: usize, most: usize) -> Result<usize, String> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(usual);
    };
    let count = query.strip_prefix("n=").and_then(|n| n.parse().ok());
    let count: usize = count.ok_or("only n=COUNT can be asked, with a number\n")?;
    Ok(count.min(most))
}

fn json<T: Serialize>(answer: &T) -> Response {
    match serde_json::to_string(answer) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The numbers of every shard that answers in time.
async fn scrape_all(state: &HttpState) -> Vec<CoreMetrics> {
    let mut cores = Vec::new();
    for shard in 0..state.shards.len() {
        cores.extend(scrape(state, shard).await);
    }
    cores
}

async fn scrape(state: &HttpState, shard: usize) -> Option<CoreMetrics> {
    let (reply, answer) = oneshot::channel();
    let ask = async {
        state.shards[shard]
            .send(ShardCommand::Scrape { reply })
            .await
            .ok()?;
        answer.await
    };
    tokio::time::timeout(SCRAPE_WAIT_MAX, ask)
        .await
        .ok()
        .flatten()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::{NoQuery, told};

    #[test]
    fn a_query_where_none_can_be_made_is_refused() {
        let status = |query| NoQuery::of(query).err().map(|(status, _)| status);
        assert_eq!([status(None), status(Some(""))], [None, None]);
        assert_eq!(status(Some("n=3")), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn a_query_asks_for_a_bounded_count() {
        let count = |query| told(query, 20, 500);
        assert_eq!([count(None), count(Some(""))], [Ok(20), Ok(20)]);
        assert_eq!(count(Some("n=7")), Ok(7));
        assert_eq!(count(Some("n=4000000000")), Ok(500));
        for bad in ["n=", "n=-1", "m=3", "n=3&x"] {
            assert!(count(Some(bad)).is_err(), "{bad}");
        }
    }
}
