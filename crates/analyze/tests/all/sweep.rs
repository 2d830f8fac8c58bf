//! Parts of the planners: the order of loads, and the length of trials and of the warm-up.

mod length;
mod share;
mod turns;
mod warm_up;
