//! Requests of a load's points, seen from the server's side: the watch of `observe`, started once, asked in every point.

use crate::cli::{WatchWord, WatchingOptions};
use crate::failure::wrong_usage;
use anyhow::Result;
use load::LoadResult;
use observe::Group;
use observe::watch::point::{self, ClientSide, PointSeen};
use observe::watch::{Mode, PointWatch, SizeClasses, WatchOptions};
use record::Point;

/// How requests are to be watched, as typed.
#[derive(Debug, Clone)]
pub struct RequestWatchPlan {
    mode: Mode,
    overhead_ratio: f64,
    classes: SizeClasses,
}

impl RequestWatchPlan {
    /// Checks the options; `None`: not at all. `default`: what holds when nothing was typed.
    pub fn new(options: &WatchingOptions, default: WatchWord) -> Result<Option<RequestWatchPlan>> {
        let classes = match &options.watch_classes {
            Some(text) => SizeClasses::parse(text).map_err(|error| wrong_usage(format!("--watch-classes: {error}")))?,
            None => SizeClasses::default(),
        };
        let overhead_ratio = options.watch_overhead.map_or(0.01, |share| share.0);
        if overhead_ratio <= 0.0 {
            return Err(wrong_usage("--watch-overhead must be above 0, as in 1%; --watch zero costs least"));
        }
        let mode = match options.watch.unwrap_or(default) {
            WatchWord::Off => return Ok(None),
            WatchWord::Zero => Mode::Zero,
            WatchWord::Counts => Mode::Counts,
            WatchWord::Default => Mode::Default,
            WatchWord::Exact => Mode::Exact,
        };
        Ok(Some(RequestWatchPlan { mode, overhead_ratio, classes }))
    }
}

/// A watch that stands while points are measured.
pub enum RequestGauge {
    /// It runs, perhaps without programs; then every point says why.
    Watching(Box<PointWatch>),
    /// There is none, and why.
    Not(String),
}

impl RequestGauge {
    /// Watches whoever serves `port`, in the network namespace of `netns_pid`, from CPUs that are not the server's.
    pub fn start(
        plan: &RequestWatchPlan,
        port: u16,
        group: Group,
        netns_pid: Option<u32>,
        server_cpus: &[usize],
    ) -> RequestGauge {
        let options = WatchOptions {
            group,
            netns_pid,
            mode: plan.mode,
            overhead_ratio: plan.overhead_ratio,
            classes: plan.classes.clone(),
            ..WatchOptions::of_port(port)
        };
        match PointWatch::start(options, server_cpus.to_vec()) {
            Ok(watch) => RequestGauge::Watching(Box::new(watch)),
            Err(error) => RequestGauge::Not(error.to_string()),
        }
    }

    /// Why requests are not counted.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            RequestGauge::Watching(watch) => watch.why_not(),
            RequestGauge::Not(why) => Some(why),
        }
    }

    /// A load begins; returns when what was there before it is known.
    pub fn load_begins(&mut self) {
        if let RequestGauge::Watching(watch) = self {
            watch.load_begins();
        }
    }

    /// Its window begins.
    pub fn window_begins(&mut self, planned_ns: u64) {
        if let RequestGauge::Watching(watch) = self {
            watch.window_begins(planned_ns);
        }
    }

    /// Its window ends.
    pub fn window_ends(&mut self) {
        if let RequestGauge::Watching(watch) = self {
            watch.window_ends();
        }
    }

    /// The load is over: puts what was seen into its point.
    pub fn note(&mut self, point: &mut Point, result: &LoadResult) {
        let seen = match self {
            RequestGauge::Not(why) => point::not_watched(why),
            RequestGauge::Watching(watch) => match watch.load_ended() {
                None => point::not_watched("the watch's thread does not answer"),
                Some(readings) => {
                    let outcomes = &result.outcomes;
                    let client = ClientSide {
                        completed_in_window: result.completed_in_window,
                        window_ns: result.window_ns,
                        answered_in_all: result.answered_in_all,
                        given_up: outcomes.errors().saturating_add(outcomes.unfinished),
                    };
                    point::seen(&readings, watch.classes(), &client, watch.why_not())
                }
            },
        };
        let PointSeen { figures, watched, doubts } = seen;
        point.figures.extend(figures);
        point.watched = Some(watched);
        point.doubts.extend(doubts);
    }
}
