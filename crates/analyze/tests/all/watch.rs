//! Findings of recordings of a watch, and the headroom during it.

mod full;
mod headroom;
mod lines;
mod processes;
mod recording;
mod stalls;
