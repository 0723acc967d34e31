//! Kafka's wire protocol: frames, messages and record batches.
//!
//! This room turns bytes into typed values and back. It owns the codec (generated from our own
//! notation of the protocol's facts), the tables of API keys and error codes, and everything about
//! record batches. It refuses to know sockets, clocks, and what a request *means*; it never copies
//! record bytes, and never believes a length that came from the network (rule BI-7).
//!
//! # Order of calls
//! A broker hands each frame (without its size) to [`frame::decode_request_header`], decodes the
//! body with [`Message::decode`] and calls [`wire::Decoder::finish`]; it answers with
//! [`frame::encode_response`]. Batches inside `records` fields go through [`records`].
//!
//! Start reading at [`frame`], then [`wire`], then `codegen/mod.rs` for how [`messages`] comes
//! about.

mod api_key;
mod error_code;
pub mod frame;
mod message;
pub mod messages;
pub mod records;
pub mod wire;

pub use api_key::ApiKey;
pub use error_code::ErrorCode;
pub use message::{Message, MetadataRecord, Request};
pub use wire::Records;
