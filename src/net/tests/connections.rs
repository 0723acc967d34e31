//! Real sockets on the loopback, against a service that does what each frame says.

mod rig;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rig::{Rig, frame, run};
use thalweg_metrics::CloseReason;
use thalweg_net::Limits;
use thalweg_reactor::task;

const SHORT: Duration = Duration::from_millis(60);

#[test]
fn bi1_foreign_bytes_close_only_their_own_connection() {
    run(Limits::default(), async |rig: Rig| {
        let mut good = rig.connect().await;
        good.send(&frame(b"e0")).await;
        assert_eq!(good.answer().await.as_deref(), Some(&b"e0"[..]));
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        let noise = [0xd3, 0x81, 0xa7, 0x40, 0x9e, 0x11, 0x6d];
        for bytes in [
            &b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            &hello,
            &noise,
        ] {
            let mut bad = rig.connect().await;
            bad.send(bytes).await;
            assert_eq!(bad.answer().await, None);
        }
        good.send(&frame(b"e1")).await;
        assert_eq!(good.answer().await.as_deref(), Some(&b"e1"[..]));
        rig.until_closed(CloseReason::BadFrame, 3).await;
        assert_eq!(rig.metrics(|m| m.counters.frames_refused), 3);
    });
}

#[test]
fn bi2_size_prefixes_outside_the_limits_close_without_a_charge() {
    run(Limits::default(), async |rig: Rig| {
        for prefix in [0, -1, i32::MIN, i32::MAX, 100 * 1024 * 1024 + 1] {
            let mut client = rig.connect().await;
            client.send(&prefix.to_be_bytes()).await;
            assert_eq!(client.answer().await, None, "{prefix}");
        }
        rig.until_closed(CloseReason::BadFrame, 5).await;
        assert_eq!((rig.net.budget().used(), rig.net.budget().waits()), (0, 0));
    });
}

#[test]
fn bi4_half_a_frame_then_silence_is_closed() {
    let limits = Limits {
        frame_window: SHORT,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let whole = frame(b"e-long-enough");
        for cut in [1, 3, 4, 9] {
            let mut client = rig.connect().await;
            client.send(&whole[..cut]).await;
            assert_eq!(client.answer().await, None, "cut at {cut}");
        }
        rig.until_closed(CloseReason::SlowFrame, 4).await;
        assert_eq!(
            rig.net.budget().used(),
            0,
            "the permit of the body came back"
        );
    });
}

#[test]
fn bi4_a_client_that_never_reads_is_not_read_and_then_closed() {
    let limits = Limits {
        write_window: SHORT,
        backlog_bytes_max: 1 << 20,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let client = rig.connect().await;
        let asks: Vec<u8> = (0..200).flat_map(|_| frame(b"b1000000")).collect();
        client.send(&asks).await;
        rig.until_closed(CloseReason::SlowReader, 1).await;
        let dispatched = rig.service.dispatched.get();
        assert!(
            dispatched < 50,
            "{dispatched} requests were read from a client that takes nothing"
        );
    });
}

/// Many clients that read nothing hold a bounded memory together, and whoever waits for that memory
/// gets it after a while.
#[test]
fn bi4_unread_answers_of_all_connections_have_one_bound() {
    const LIMIT: usize = 40 << 20;
    const ANSWER: usize = 8 << 20;
    let limits = Limits {
        answer_memory_bytes: LIMIT,
        answer_pressure: SHORT,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut greedy = Vec::new();
        for _ in 0..20 {
            let client = rig.connect().await;
            let ask = frame(format!("b{ANSWER}").as_bytes());
            client.send(&ask.repeat(4)).await;
            greedy.push(client);
        }
        rig.until(|rig| {
            rig.net.refresh_gauges();
            rig.metrics(|m| m.counters.answer_memory_used) >= LIMIT as u64
        })
        .await;
        let mut witness = rig.connect().await;
        witness.send(&frame(b"e1")).await;
        let most = Rc::new(Cell::new(0));
        let answered = Rc::new(Cell::new(false));
        let told = Rc::clone(&answered);
        let waiting = task::spawn(async move {
            assert_eq!(witness.answer().await.as_deref(), Some(&b"e1"[..]));
            told.set(true);
        });
        rig.until(|rig| {
            rig.net.refresh_gauges();
            let used = rig.metrics(|m| m.counters.answer_memory_used);
            most.set(most.get().max(used));
            answered.get()
        })
        .await;
        assert_eq!(waiting.await, Some(()));
        assert!(most.get() < (LIMIT + ANSWER) as u64, "{} bytes", most.get());
        let closed = rig.metrics(|m| m.closed(CloseReason::SlowReader));
        assert!((1..20).contains(&closed), "{closed} of 20 were closed");
    });
}

#[test]
fn bi4_an_idle_connection_is_closed_unless_it_is_owed_an_answer() {
    let limits = Limits {
        idle: SHORT,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut owed = rig.connect().await;
        owed.send(&frame(b"w1")).await;
        rig.service.parked.wait().await;
        let mut idle = rig.connect().await;
        assert_eq!(idle.answer().await, None);
        rig.until_closed(CloseReason::Idle, 1).await;
        assert_eq!(rig.net.open_connections(), 1);
        rig.service.release(b"w1");
        assert_eq!(owed.answer().await.as_deref(), Some(&b"w1"[..]));
    });
}

#[test]
fn bi5_frames_that_arrive_byte_by_byte_are_answered() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let stream: Vec<u8> = [&b"e1"[..], b"e22", b"e333"]
            .into_iter()
            .flat_map(frame)
            .collect();
        for byte in &stream {
            client.send(&[*byte]).await;
            thalweg_reactor::task::yield_now().await;
        }
        for want in [&b"e1"[..], b"e22", b"e333"] {
            assert_eq!(client.answer().await.as_deref(), Some(want));
        }
    });
}

#[test]
fn bi5_a_frame_of_many_reads_arrives_whole() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let mut body = vec![b'e'; 3_000_001];
        body[1..]
            .iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = (i % 251) as u8);
        for _ in 0..3 {
            client.exchange(&frame(&body), &body).await;
        }
    });
}

#[test]
fn bi5_pipelined_requests_are_answered_in_their_order() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let asks = [&b"w1"[..], b"e2", b"w3", b"e4"];
        client
            .send(&asks.into_iter().flat_map(frame).collect::<Vec<_>>())
            .await;
        rig.service.parked.wait().await;
        rig.service.parked.wait().await;
        rig.service.release(b"w3");
        rig.service.release(b"w1");
        for want in asks {
            assert_eq!(client.answer().await.as_deref(), Some(want));
        }
    });
}

#[test]
fn bi5_a_request_that_waits_in_its_dispatch_holds_up_only_what_follows_it() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let asks = [&b"d1"[..], b"e2"];
        client
            .send(&asks.into_iter().flat_map(frame).collect::<Vec<_>>())
            .await;
        rig.service.parked.wait().await;
        let mut other = rig.connect().await;
        other.exchange(&frame(b"e3"), b"e3").await;
        assert_eq!(rig.service.dispatched.get(), 2, "the first and the other's");
        rig.service.release(b"wd1");
        for want in [&b"wd1"[..], b"e2"] {
            assert_eq!(client.answer().await.as_deref(), Some(want));
        }
    });
}

#[test]
fn bi5_small_answers_that_are_ready_together_leave_together() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let asks: Vec<u8> = (b'a'..=b'l').flat_map(|c| frame(&[b'e', c])).collect();
        client.send(&asks).await;
        for c in b'a'..=b'l' {
            assert_eq!(client.answer().await, Some(vec![b'e', c]));
        }
        let (sent, writes) =
            rig.metrics(|m| (m.counters.responses_sent, m.counters.response_writes));
        assert_eq!(sent, 12);
        assert!(writes <= 4, "{writes} writes");
    });
}

/// What waits there may hold what other connections wait for, such as the turn of large requests.
#[test]
fn bi4_answers_get_ready_behind_a_client_that_does_not_read() {
    const ANSWER: usize = 48 << 20;
    let limits = Limits {
        backlog_bytes_max: 2 * ANSWER,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut client = rig.connect().await;
        let first = format!("b{ANSWER}");
        let asks: Vec<u8> = [first.as_bytes(), b"w before"]
            .into_iter()
            .flat_map(frame)
            .collect();
        client.send(&asks).await;
        rig.service.parked.wait().await;
        rig.until_stuck().await;
        client.send(&frame(b"w while")).await;
        rig.service.parked.wait().await;
        for name in [&b"w before"[..], b"w while"] {
            rig.service.release(name);
            rig.service.dropped.wait().await;
        }
        client.discard(ANSWER).await;
        for name in [&b"w before"[..], b"w while"] {
            assert_eq!(client.answer().await.as_deref(), Some(name));
        }
    });
}

#[test]
fn a_silent_request_takes_no_slot() {
    let limits = Limits {
        in_flight_max: 1,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut client = rig.connect().await;
        let asks: Vec<u8> = [&b"s"[..], b"s", b"s", b"e1", b"s", b"e2"]
            .into_iter()
            .flat_map(frame)
            .collect();
        client.send(&asks).await;
        assert_eq!(client.answer().await.as_deref(), Some(&b"e1"[..]));
        assert_eq!(client.answer().await.as_deref(), Some(&b"e2"[..]));
        assert_eq!(rig.service.dispatched.get(), 6);
    });
}

#[test]
fn bi6_a_refused_request_closes_after_earlier_answers_left() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        let asks: Vec<u8> = [&b"w1"[..], b"c", b"e9"]
            .into_iter()
            .flat_map(frame)
            .collect();
        client.send(&asks).await;
        rig.service.parked.wait().await;
        rig.service.release(b"w1");
        assert_eq!(client.answer().await.as_deref(), Some(&b"w1"[..]));
        assert_eq!(client.answer().await, None);
        rig.until_closed(CloseReason::BadRequest, 1).await;
        assert_eq!(
            rig.service.dispatched.get(),
            2,
            "nothing after the refused one"
        );
    });
}

#[test]
fn bi4_a_close_does_not_wait_for_ever_for_earlier_answers() {
    let limits = Limits {
        write_window: SHORT,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut client = rig.connect().await;
        client.send(&[frame(b"w1"), frame(b"c")].concat()).await;
        assert_eq!(client.answer().await, None);
        rig.until_closed(CloseReason::BadRequest, 1).await;
    });
}

#[test]
fn bi35_a_client_that_is_gone_frees_what_it_waits_for() {
    run(Limits::default(), async |rig: Rig| {
        let client = rig.connect().await;
        client.send(&frame(b"w1")).await;
        rig.service.parked.wait().await;
        assert!(rig.net.budget().used() > 0);
        drop(client);
        rig.service.dropped.wait().await;
        rig.until_closed(CloseReason::ClientClosed, 1).await;
        assert_eq!(rig.net.budget().used(), 0);
    });
}

#[test]
fn bi31_giants_in_line_do_not_hold_up_small_requests() {
    let limits = Limits {
        request_memory_bytes: 0,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let giant = (50u32 * 1024 * 1024).to_be_bytes();
        let mut giants = Vec::new();
        for _ in 0..8 {
            let client = rig.connect().await;
            client.send(&giant).await;
            client.send(b"e and so on").await;
            giants.push(client);
        }
        rig.until(|rig| rig.net.budget().waiting() == 7).await;
        let mut small = rig.connect().await;
        for _ in 0..10 {
            small.send(&frame(b"e1")).await;
            assert_eq!(small.answer().await.as_deref(), Some(&b"e1"[..]));
        }
        assert!(rig.net.budget().used() <= rig.net.budget().limit());
        drop(giants);
        rig.until(|rig| rig.net.budget().used() == 0).await;
    });
}

#[test]
fn bi31_declared_sizes_hold_up_nobody() {
    run(Limits::default(), async |rig: Rig| {
        for declared in [65_000u32, 70_000, 50 << 20] {
            let mut slow = Vec::new();
            for _ in 0..500 {
                let client = rig.connect().await;
                client.send(&declared.to_be_bytes()).await;
                client.send(&[b'e'; 100]).await;
                slow.push(client);
            }
            let mut honest = rig.connect().await;
            for size in [10usize, 60_000, 70_000, 3 << 20] {
                let body = vec![b'e'; size];
                honest.exchange(&frame(&body), &body).await;
            }
            assert!(rig.net.budget().used() < 500 * 4_096);
            assert_eq!(rig.net.budget().waits(), 0);
            drop(slow);
            rig.until(|rig| rig.net.open_connections() == 1).await;
            drop(honest);
            rig.until(|rig| rig.net.budget().used() == 0).await;
        }
    });
}

#[test]
fn bi31_the_slowest_go_when_others_wait_for_their_memory() {
    let limits = Limits {
        request_memory_bytes: 0,
        arrival_pressure: SHORT,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut slow = Vec::new();
        for _ in 0..20 {
            let client = rig.connect().await;
            client.send(&60_000u32.to_be_bytes()).await;
            client.send(&[b'e'; 59_000]).await;
            slow.push(client);
        }
        rig.until(|rig| rig.net.budget().waiting() > 0).await;
        let mut honest = rig.connect().await;
        honest.exchange(&frame(b"e whole"), b"e whole").await;
        let body = [b'e'; 50_000];
        let whole = frame(&body);
        honest.send(&whole[..20_000]).await;
        honest.send(&whole[20_000..]).await;
        assert_eq!(honest.answer().await.as_deref(), Some(&body[..]));
        assert!(rig.metrics(|m| m.closed(CloseReason::SlowFrame)) > 0);
        assert!(rig.net.budget().used() <= rig.net.budget().limit());
    });
}

#[test]
fn bi30_an_idle_connection_gives_its_read_buffer_back_and_goes_on() {
    let limits = Limits {
        write_window: SHORT,
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut client = rig.connect().await;
        for round in 0..2 {
            client.send(&frame(b"e1")).await;
            assert_eq!(
                client.answer().await.as_deref(),
                Some(&b"e1"[..]),
                "round {round}"
            );
            rig.until(|rig| rig.net.connections().iter().all(|c| !c.holds_read_buffer()))
                .await;
        }
        assert_eq!(rig.net.connections()[0].requests(), 2);
    });
}

#[test]
fn stopping_answers_what_was_asked_and_closes_the_rest() {
    run(Limits::default(), async |rig: Rig| {
        let mut owed = rig.connect().await;
        let mut idle = rig.connect().await;
        owed.send(&frame(b"w1")).await;
        rig.service.parked.wait().await;
        rig.net.begin_stop();
        assert_eq!(idle.answer().await, None);
        rig.service.release(b"w1");
        assert_eq!(owed.answer().await.as_deref(), Some(&b"w1"[..]));
        assert_eq!(owed.answer().await, None);
        rig.net.wait_empty().await;
        assert_eq!(rig.metrics(|m| m.closed(CloseReason::Stopping)), 2);
    });
}

#[test]
fn close_all_drops_what_is_parked() {
    run(Limits::default(), async |rig: Rig| {
        let mut client = rig.connect().await;
        client.send(&frame(b"w1")).await;
        rig.service.parked.wait().await;
        rig.net.close_all();
        rig.service.dropped.wait().await;
        assert_eq!(client.answer().await, None);
        rig.net.wait_empty().await;
    });
}

/// `socket.send.buffer.bytes`: of an answer that its client does not take, no first piece is with the kernel.
#[test]
fn a_send_buffer_is_as_large_as_the_limits_say() {
    let limits = Limits {
        send_buffer_bytes: Some(16 * 1024),
        ..Limits::default()
    };
    run(limits, async |rig: Rig| {
        let mut slow = rig.connect().await;
        slow.send(&frame(b"b8000000")).await;
        let mut other = rig.connect().await;
        for _ in 0..20 {
            other.exchange(&frame(b"e"), b"e").await;
        }
        let sent = |rig: &Rig| rig.metrics(|m| m.counters.bytes_out);
        assert_eq!(sent(&rig), 20 * 5);
        slow.discard(8_000_000).await;
        rig.until(|rig| sent(rig) == 8_000_100).await;
    });
}
