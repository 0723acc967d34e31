//! A lack of file descriptors. Alone in its process, whose limit it lowers.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

mod common;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_reactor::net::{Listener, Stream};
use thalweg_reactor::{Runtime, RuntimeOptions, stats, task, time};

#[test]
fn accepting_pauses_without_spinning_and_goes_on() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 200, hard).unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let client = Stream::connect(address).await.unwrap();
        let mut hoard = Vec::new();
        let error = loop {
            match std::fs::File::open("/dev/null") {
                Ok(file) => hoard.push(file),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(nix::libc::EMFILE));
        let open = fs::open("/dev/null".as_ref(), OpenMode::Read)
            .await
            .unwrap_err();
        assert_eq!(fs::os_error(&open), Some(nix::libc::EMFILE));

        let accepting = task::spawn(async move { listener.accept().await.unwrap() });
        let began = time::now();
        while stats::read().accept_pauses < 3 {
            task::yield_now().await;
        }
        // 10 + 20 ms of pauses lie between three tries.
        assert!(began.elapsed() >= time::Duration::from_millis(30));
        assert!(!accepting.is_finished());
        drop(hoard);
        let (accepted, _) = accepting.await.unwrap();
        assert_eq!(accepted.peer_addr(), client.local_addr().unwrap());
        fs::open("/dev/null".as_ref(), OpenMode::Read)
            .await
            .unwrap();
    });
}
