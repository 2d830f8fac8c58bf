//! Tests of the plugin without an emulator.

mod accesses;
mod block_words;
