//! The metadata room from outside: records, decisions, random histories.

mod admin;
mod common;
mod controller;
mod placement;
mod random;
mod records;
