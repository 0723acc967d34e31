//! First contact: ApiVersions, SASL on a plaintext listener, who the cluster is.

use std::collections::BTreeMap;

use thalweg_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, SaslAuthenticateRequest,
    SaslHandshakeRequest,
};
use thalweg_protocol::{ErrorCode, Message, frame};

use crate::broker::Broker;
use crate::wire::{error, newest};

fn hello() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "blackbox".to_owned(),
        client_software_version: "1.0".to_owned(),
    }
}

fn table(response: &ApiVersionsResponse) -> BTreeMap<i16, (i16, i16)> {
    let rows = response.api_keys.iter();
    rows.map(|row| (row.api_key, (row.min_version, row.max_version)))
        .collect()
}

#[test]
fn api_versions_answers_alike_in_every_version() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let newest_table = table(&client.call(&hello(), newest::<ApiVersionsRequest>()));
    assert_eq!(newest_table[&18], (0, 4));
    for version in ApiVersionsRequest::VERSIONS {
        let response = client.call(&hello(), version);
        assert_eq!(error(response.error_code), ErrorCode::None);
        assert_eq!(table(&response), newest_table, "version {version}");
    }
}

/// The table of docs/api.md is what the broker says.
#[test]
fn api_versions_equal_the_documented_table() {
    let broker = Broker::start_with(crate::broker::Options::default());
    let mut client = broker.connect();
    let served = table(&client.call(&hello(), newest::<ApiVersionsRequest>()));
    let text = include_str!("../../docs/api.md");
    let documented: BTreeMap<i16, (i16, i16)> = text
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
            let versions = cells.get(2)?;
            let (lowest, highest) = versions.split_once('–').unwrap_or((versions, versions));
            Some((
                cells[0].parse().ok()?,
                (lowest.parse().ok()?, highest.parse().ok()?),
            ))
        })
        .collect();
    assert_eq!(served, documented);
}

/// KIP-511: a version that is too new is answered in version 0 with error 35 and the range to use.
#[test]
fn bi_6_trap_2_api_versions_of_the_future_is_answered_in_version_0() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let (_, mut bytes) = client.encode(&hello(), newest::<ApiVersionsRequest>());
    bytes[6..8].copy_from_slice(&9_i16.to_be_bytes());
    client.send_bytes(&bytes);
    let answer = client
        .read_frame()
        .expect("an answer, not a closed connection");
    let (_, response) =
        frame::decode_response::<ApiVersionsRequest>(answer, 0).expect("a version 0 body");
    assert_eq!(error(response.error_code), ErrorCode::UnsupportedVersion);
    let own = response
        .api_keys
        .iter()
        .find(|row| row.api_key == 18)
        .expect("its own row");
    assert_eq!((own.min_version, own.max_version), (0, 4));
    // The connection goes on.
    assert_eq!(client.call(&hello(), 3).error_code, 0);
}

#[test]
fn bi_6_trap_2_a_client_name_outside_kip_511_is_refused() {
    let broker = Broker::start();
    for name in ["", "-x", "a b", "x\ny", "a/b"] {
        let mut client = broker.connect();
        let request = ApiVersionsRequest {
            client_software_name: name.to_owned(),
            ..hello()
        };
        let response = client.call(&request, 3);
        assert_eq!(
            error(response.error_code),
            ErrorCode::InvalidRequest,
            "{name:?}"
        );
    }
}

/// librdkafka before 2.2.0 reads past a tag that holds a default value, so none is sent: features
/// are either named or absent.
#[test]
fn trap_1_default_tags_are_left_out() {
    let broker = Broker::start();
    let mut client = broker.connect();
    client.send(&hello(), 3);
    let frame = client.read_frame().expect("an answer");
    // Correlation id and error code, then rows of three numbers and an empty tag section, then the
    // throttle time. The number of rows is below 128, so it has one byte.
    let rows = usize::from(frame[6]) - 1;
    let mut tags = &frame[7 + rows * 7 + 4..];
    for _ in 0..take_varint(&mut tags) {
        let (tag, size) = (take_varint(&mut tags), take_varint(&mut tags));
        let (value, rest) = tags.split_at(size);
        let is_default = match tag {
            0 | 2 => value == [1], // an empty array
            1 => value == (-1_i64).to_be_bytes(),
            _ => value == [0],
        };
        assert!(!is_default, "tag {tag} holds its default");
        tags = rest;
    }
    assert!(tags.is_empty());
}

fn take_varint(bytes: &mut &[u8]) -> usize {
    let length = bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    let (varint, rest) = bytes.split_at(length);
    *bytes = rest;
    varint
        .iter()
        .rev()
        .fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f))
}

/// BI-3: on a plaintext listener there is nothing to authenticate, and asking for it is told so. The half
/// about what is accepted before authentication is owed to SASL.
#[test]
fn bi_3_sasl_is_refused_as_on_a_plaintext_listener() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let request = SaslHandshakeRequest {
        mechanism: "PLAIN".to_owned(),
    };
    for version in SaslHandshakeRequest::VERSIONS {
        let response = client.call(&request, version);
        assert_eq!(error(response.error_code), ErrorCode::IllegalSaslState);
    }
    for version in SaslAuthenticateRequest::VERSIONS {
        let response = client.call(&SaslAuthenticateRequest::default(), version);
        assert_eq!(error(response.error_code), ErrorCode::IllegalSaslState);
    }
}

#[test]
fn describe_cluster_names_this_broker() {
    let broker = Broker::start();
    let mut client = broker.connect();
    for version in DescribeClusterRequest::VERSIONS {
        let response = client.call(&DescribeClusterRequest::default(), version);
        assert_eq!(error(response.error_code), ErrorCode::None);
        assert_eq!(response.brokers.len(), 1);
        assert_eq!(response.brokers[0].port, i32::from(broker.address().port()));
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
        assert_eq!(
            response.cluster_id,
            client.metadata(&[]).cluster_id.expect("an id")
        );
    }
    // Endpoint type 2 asks for controllers, which this listener does not serve.
    let controllers = DescribeClusterRequest {
        endpoint_type: 2,
        ..Default::default()
    };
    let response = client.call(&controllers, newest::<DescribeClusterRequest>());
    assert_eq!(
        error(response.error_code),
        ErrorCode::MismatchedEndpointType
    );
}
