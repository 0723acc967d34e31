//! The machine without a shell: text scenarios, random sequences against a plain model, records.

mod beats;
mod dice;
mod draws;
mod expiring;
mod many_names;
mod random;
mod random_classic;
mod random_newer;
mod records;
mod scenarios;
mod script;
mod slices;
mod world;
