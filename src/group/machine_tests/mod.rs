//! The machine without a shell: text scenarios, random sequences against a plain model, records.

mod dice;
mod draws;
mod expiring;
mod random;
mod records;
mod scenarios;
mod script;
mod world;
