//! The few tests that also run on one shard in `scripts/test`.

use crate::batch::{compressed, plain, read_all, values};
use crate::broker::Broker;
use thalweg_protocol::records::Codec;

#[test]
fn records_survive_a_stop_and_a_kill() {
    let mut broker = Broker::start_with(crate::broker::Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("smoke", 3, &[]);
    for partition in 0..3 {
        client.append(&topic, partition, plain(&["one", "two"]));
    }
    broker.stop();
    broker.start_again();
    let mut client = broker.connect();
    for partition in 0..3 {
        assert_eq!(
            client.append(&topic, partition, compressed(Codec::Lz4, &["three"])),
            2
        );
    }
    broker.kill();
    broker.start_again();
    let mut client = broker.connect();
    for partition in 0..3 {
        let got = read_all(&mut client, &topic, partition, 0);
        assert_eq!(
            values(&got),
            [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]
        );
    }
}
