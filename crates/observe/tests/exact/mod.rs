//! The exact profile. Where this machine's kernel refuses it, the test reports that; in the guest with a stock kernel
//! it is measured and compared with the sampled one, on a clock that counts instructions.

pub mod inside;
pub mod load;
mod refusal;
