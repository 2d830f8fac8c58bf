//! What the caches of a processor would make of a server and its kernel: for now the model of the caches.

pub mod cache;
