//! The exact profile. Where this machine's kernel refuses it, that is said; in a guest with a stock kernel it is measured
//! and compared with the sampled one, on a clock that counts instructions.
#![cfg(feature = "bpf")]

#[path = "../../../testbed/guest/boot.rs"]
mod boot;
#[path = "exact/guest.rs"]
mod guest;
#[path = "exact/inside.rs"]
mod inside;
#[path = "exact/load.rs"]
mod load;
#[path = "exact/refusal.rs"]
mod refusal;
