//! Tests of the whole room against synthetic servers, whose true yield and failure points are known.

mod properties;
mod reference;
mod search;
mod server;
