//! The metadata room from outside: records, decisions, random histories.

mod common;
mod controller;
mod random;
mod records;
