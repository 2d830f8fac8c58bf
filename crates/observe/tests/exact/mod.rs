//! The exact profile. If this machine's kernel refuses it, the test reports that. In the guest with a stock kernel,
//! it is measured and compared with the sampled one, on a clock that counts instructions.

pub mod inside;
pub mod load;
mod refusal;
