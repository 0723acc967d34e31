//! What a client, an operator and a crash see: the real binary, over real sockets and files.
//!
//! Every test starts its own broker on its own folder and ports, and waits for what it asks about, never
//! for time alone. From outside: `THALWEG_TEST_SHARDS` (2), `THALWEG_TEST_LONG=1` for the long forms,
//! `THALWEG_TEST_AGAINST` to ask another broker.

mod administering;
mod any_damage;
mod batch;
mod blaming;
mod broker;
mod cold_reads;
mod command_consume;
mod command_group;
mod command_line;
mod command_produce;
mod committed;
mod compacting;
mod configuring;
mod connecting;
mod damage;
mod disk;
mod doctor;
mod durable;
mod engine;
mod failpoints;
mod fetching;
mod gate;
mod group_offsets;
mod groups;
mod holding_still;
mod idempotence;
mod kill_loop;
mod limits;
mod log_dirs;
mod moving;
mod newer_groups;
mod offsets;
mod producing;
mod refusals;
mod restarting;
mod retention;
mod scrubbing;
mod seeing;
mod service;
mod sessions;
mod smoke;
mod stalled;
mod starting;
mod tool;
mod topics;
mod traps;
mod wire;
