//! What a request waited for is told by stage, and not of others.

mod rig;

use std::time::{Duration, Instant};

use rig::{Rig, frame, run};
use thalweg_metrics::Cause;
use thalweg_net::Limits;
use thalweg_reactor::task;

const SHORT: Duration = Duration::from_millis(60);

fn blamed(rig: &Rig, cause: Cause) -> (u64, u64) {
    rig.metrics(|m| {
        let times = m.blame.stage(cause);
        (times.count(), times.sum_us())
    })
}

#[test]
fn a_client_that_does_not_read_is_to_blame_for_its_answer() {
    const ANSWER: usize = 48 << 20;
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        client.send(&frame(format!("b{ANSWER}").as_bytes())).await;
        rig.until_stuck().await;
        let stuck = Instant::now();
        while stuck.elapsed() < 2 * SHORT {
            task::yield_now().await;
        }
        client.discard(ANSWER).await;
        rig.until(|rig| blamed(rig, Cause::SocketStall).0 > 0).await;
        let (count, stalled_us) = blamed(&rig, Cause::SocketStall);
        assert_eq!(count, 1);
        assert!(u128::from(stalled_us) >= (2 * SHORT).as_micros());
        let told = rig.metrics(|m| m.blame.slow.slowest(1)[0].clone());
        assert!(u64::from(told.total_us) >= stalled_us);
        assert_eq!(told.response_bytes, ANSWER as u64);
    });
}

#[test]
fn waits_before_and_behind_a_request_have_stages_of_their_own() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let first = frame(b"w1");
        client.send(&first[..5]).await;
        rig.until(|rig| rig.metrics(|m| m.counters.bytes_in) == 5)
            .await;
        client.send(&first[5..]).await;
        rig.service.parked.wait().await;
        client.send(&frame(b"e2")).await;
        rig.until(|rig| rig.service.dispatched.get() == 2).await;
        task::yield_now().await;
        rig.service.release(b"w1");
        assert_eq!(client.answer().await.as_deref(), Some(&b"w1"[..]));
        assert_eq!(client.answer().await.as_deref(), Some(&b"e2"[..]));
        rig.until(|rig| rig.metrics(|m| m.blame.total().count()) == 2)
            .await;
        assert_eq!(
            blamed(&rig, Cause::Receive).0,
            1,
            "of the one in two pieces"
        );
        assert_eq!(blamed(&rig, Cause::Order).0, 1, "of the one behind it");
        assert_eq!(blamed(&rig, Cause::Queue).0, 2);
        assert_eq!(blamed(&rig, Cause::SocketStall).0, 0);
    });
}

#[test]
fn a_wait_for_memory_is_blamed_on_the_throttle() {
    let limits = Limits {
        request_memory_bytes: 0,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        // There is one place for a large request.
        let large = |first: u8| [&[first][..], &[b'.'; 100_000]].concat();
        let (held, body) = (large(b'w'), large(b'e'));
        let holder = rig.connect().await;
        holder.send(&frame(&held)).await;
        rig.service.parked.wait().await;
        let mut throttled = rig.connect().await;
        throttled.send(&frame(&body)).await;
        rig.until(|rig| rig.net.budget().waiting() == 1).await;
        let since = Instant::now();
        while since.elapsed() < SHORT {
            task::yield_now().await;
        }
        rig.service.release(&held);
        assert!(throttled.answer().await.expect("an answer") == body);
        rig.until(|rig| rig.metrics(|m| m.blame.total().count()) == 2)
            .await;
        let (count, waited_us) = blamed(&rig, Cause::Throttle);
        assert_eq!(count, 1);
        assert!(u128::from(waited_us) >= SHORT.as_micros(), "{waited_us}");
    });
}
