//! A cluster of one broker for tests.

use thalweg_config::BrokerConfig;
use thalweg_metadata::controller::{Registration, initial_records};
use thalweg_metadata::{BrokerEndpoint, Controller, Image, Record};
use thalweg_protocol::messages::create_topics_request::CreatableTopic;
use thalweg_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use thalweg_types::{BrokerId, Uuid};

pub const LOCAL: BrokerId = BrokerId(1);

pub fn registration(id: BrokerId) -> Registration {
    Registration {
        id,
        incarnation: Uuid([7; 16]),
        endpoints: vec![BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9_092,
            security_protocol: 0,
        }],
        features: Vec::new(),
        rack: None,
        log_dirs: vec![Uuid([9; 16])],
    }
}

pub fn after(image: &Image, records: &[Record]) -> Image {
    let (next, _) = image.apply(records).expect("own records apply");
    next.check();
    next
}

pub fn formatted() -> Image {
    let image = after(&Image::default(), &initial_records());
    let register = image.register_broker(&registration(LOCAL));
    after(&image, &[register])
}

pub fn config(settings: &[&str]) -> BrokerConfig {
    BrokerConfig::from_settings(settings.iter().copied())
        .expect("valid settings")
        .config
}

/// Bytes that are random enough for ids.
pub fn draws() -> impl FnMut() -> [u8; 16] {
    let mut state = 1u64;
    move || {
        let mut bytes = [0; 16];
        for b in &mut bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *b = (state >> 33) as u8;
        }
        bytes
    }
}

pub fn topic(name: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: -1,
        ..CreatableTopic::default()
    }
}

pub fn create(image: &Image, topics: Vec<CreatableTopic>) -> (Image, CreateTopicsResponse) {
    let (config, mut draw) = (config(&[]), draws());
    let request = CreateTopicsRequest {
        topics,
        ..CreateTopicsRequest::default()
    };
    let decision = Controller::new(image, &config, &mut draw).create_topics(&request);
    (after(image, &decision.records), decision.answer)
}
