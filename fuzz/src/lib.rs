//! What the fuzz targets have in common.

#[cfg(feature = "fuzz")]
pub use libfuzzer_sys::fuzz_target;

/// A target without libFuzzer: a function of its input, which the tests call with the seeds.
#[cfg(not(feature = "fuzz"))]
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:expr) => {
        pub fn target($input: &[u8]) {
            $body
        }
    };
    (|$input:ident: &str| $body:expr) => {
        pub fn target(bytes: &[u8]) {
            if let Ok($input) = std::str::from_utf8(bytes) {
                $body
            }
        }
    };
}
