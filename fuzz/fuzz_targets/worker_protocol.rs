//! Reader of the worker protocol. No bytes from the other end may make it panic, keep more than a line, or become a
//! message that the protocol cannot carry again.

#![no_main]

use straingauge_fuzz::fuzz_target;

fuzz_target!(|bytes: &[u8]| remote::check_lines(bytes));
