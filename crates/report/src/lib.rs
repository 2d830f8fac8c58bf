//! Renders recorded data ([`record`]) and findings ([`analyze`]) as text for a terminal, JSON, HTML pages and charts.
//! This crate measures and decides nothing.
//!
//! [`text`] has tables, widths and number words; [`run`] is the text of a run and of a point, [`page`] the report of
//! a run ([`live`] while it is measured), [`chart`] its SVG, [`export`] its profiles for other programs, [`markdown`]
//! and [`junit`] the output for CI systems. [`compare`], [`doctor`], [`predict`], [`profile`] (with [`flame`]),
//! [`proof`], [`runs`] and [`watch`] render those commands.

pub mod chart;
pub mod check;
pub mod compare;
pub mod doctor;
pub mod doubt;
pub mod export;
pub mod flame;
pub mod json;
pub mod junit;
pub mod live;
pub mod markdown;
pub mod metrics;
pub mod page;
pub mod predict;
pub mod price;
pub mod profile;
pub mod proof;
pub mod run;
pub mod runs;
pub mod text;
pub mod watch;
