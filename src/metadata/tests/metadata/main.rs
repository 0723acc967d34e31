//! The metadata room from outside: records, decisions, random histories.

mod admin;
mod common;
mod controller;
mod random;
mod records;
