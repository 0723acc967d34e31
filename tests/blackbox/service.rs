//! What a service manager sees: `sd_notify`.

use std::os::unix::net::UnixDatagram;

use crate::broker::{Broker, Options, PATIENCE};

#[test]
fn the_service_manager_is_told_when_it_serves_and_when_it_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let variable = format!("NOTIFY_SOCKET={}", path.display());
    let mut broker = Broker::start_with(Options {
        wrapper: vec!["env", Box::leak(variable.into_boxed_str())],
        ..Options::default()
    });
    let next = || {
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let ready = next();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    broker.stop();
    let stopping = next();
    assert!(
        stopping.lines().any(|line| line == "STOPPING=1"),
        "{stopping}"
    );
}
