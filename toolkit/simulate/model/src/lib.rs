//! Code that the program, the plugin and the guest's first process share: the cache model, the rule by which
//! instructions are charged to layers, and the messages between the three.

pub mod attribution;
pub mod cache;
pub mod exchange;
pub mod geometry;
pub mod job;
pub mod objects;
