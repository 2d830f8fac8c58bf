//! Parts of the findings: curves, knees, failed trials, capacities, and their words.

mod capacity;
mod curve;
mod failure;
mod knee;
mod words;
