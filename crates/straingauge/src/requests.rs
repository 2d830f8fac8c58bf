//! Requests of a load's points, seen from the server's side: the watch of `observe`, started once, asked in every point.

use crate::cli::{WatchWord, WatchingOptions};
use crate::failure::wrong_usage;
use crate::quantity::Share;
use crate::server::Server;
use crate::watching::Watch;
use anyhow::Result;
use load::LoadResult;
use observe::Group;
use observe::watch::pack::{BUILT_IN, Pack};
use observe::watch::point::{self, ClientSide, PointSeen};
use observe::watch::{Mode, SizeClasses};
use record::{Doubt, Point};
use remote::{RequestWatch, RequestWatchPlan};

/// Checks the options of the watch of requests; `None`: not at all. `default`: what holds when nothing was typed.
pub fn request_watch_plan(options: &WatchingOptions, default: WatchWord) -> Result<Option<RequestWatchPlan>> {
    let classes = classes(options.response_classes.as_deref())?;
    let overhead_ratio = overhead_ratio(options.overhead)?;
    let mode = match options.detail.unwrap_or(default) {
        WatchWord::Off => return Ok(None),
        WatchWord::Zero => Mode::Zero,
        WatchWord::Counts => Mode::Counts,
        WatchWord::Default => Mode::Default,
        WatchWord::Exact => Mode::Exact,
    };
    let pack = options.pack.as_deref().map(|word| pack(word, mode)).transpose()?;
    let classes_text = options.response_classes.clone();
    Ok(Some(RequestWatchPlan { mode, overhead_ratio, classes, classes_text, pack }))
}

/// `--response-classes`.
pub fn classes(typed: Option<&str>) -> Result<SizeClasses> {
    let parsed = typed.map(SizeClasses::parse).transpose();
    Ok(parsed.map_err(|error| wrong_usage(format!("--response-classes: {error}")))?.unwrap_or_default())
}

/// `--overhead`.
pub fn overhead_ratio(typed: Option<Share>) -> Result<f64> {
    let ratio = typed.unwrap_or(crate::defaults::OVERHEAD).0;
    if ratio <= 0.0 {
        return Err(wrong_usage("--overhead must be above 0, as in 1%; --detail zero costs least"));
    }
    Ok(ratio)
}

/// A pack and its text, checked before anything is started.
pub fn pack(word: &str, mode: Mode) -> Result<(Pack, String)> {
    if matches!(mode, Mode::Zero | Mode::Exact) {
        return Err(wrong_usage("--pack has windows of its own: use it with --detail default or counts"));
    }
    Pack::open_with_text(word).map_err(|error| {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        wrong_usage(format!("--pack: {error} (a file, or one of {})", names.join(", ")))
    })
}

/// A watch that stands while points are measured.
pub enum RequestGauge {
    /// This machine's.
    Here(RequestWatch),
    /// A watcher on the server's machine does it, and tells with the rest of what it saw; or it tells why it cannot.
    Elsewhere(Option<String>),
}

/// What the client says of a load that is over.
pub fn client_side(result: &LoadResult) -> ClientSide {
    ClientSide {
        completed_in_window: result.counts.completed_in_window,
        window_ns: result.window_ns,
        answered_in_all: result.answered_in_all,
        given_up: result.counts.outcomes.errors().saturating_add(result.counts.outcomes.unfinished),
    }
}

impl RequestGauge {
    /// Has the requests counted by whoever watches the server, here or there.
    pub fn beside(
        how: &RequestWatchPlan,
        watch: &mut Result<Watch, Doubt>,
        port: u16,
        server: Option<&Server>,
        server_cpus: &[usize],
    ) -> RequestGauge {
        match watch {
            Err(doubt) => RequestGauge::Here(RequestWatch::Not(doubt.what.clone())),
            Ok(Watch::There(watcher)) => match watcher.watch_requests(how) {
                Ok(why_not) => RequestGauge::Elsewhere(why_not),
                Err(why) => RequestGauge::Here(RequestWatch::Not(why)),
            },
            Ok(Watch::Here(_)) => {
                let group = server.and_then(Server::pid).map_or(Group::ListeningOn(port), Group::Tree);
                let netns_pid = server.and_then(Server::netns_pid);
                RequestGauge::Here(RequestWatch::start(how, port, group, netns_pid, server_cpus))
            }
        }
    }

    /// Why requests are not counted.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            RequestGauge::Here(watch) => watch.why_not(),
            RequestGauge::Elsewhere(why) => why.as_deref(),
        }
    }

    /// A load begins; returns when what was there before it is known.
    pub fn load_begins(&mut self) {
        if let RequestGauge::Here(watch) = self {
            watch.load_begins();
        }
    }

    /// Its window begins.
    pub fn window_begins(&mut self, planned_ns: u64) {
        if let RequestGauge::Here(watch) = self {
            watch.window_begins(planned_ns);
        }
    }

    /// Its window ends.
    pub fn window_ends(&mut self) {
        if let RequestGauge::Here(watch) = self {
            watch.window_ends();
        }
    }

    /// The load is over: what was seen of it.
    pub fn seen(&mut self, client: &ClientSide) -> PointSeen {
        match self {
            RequestGauge::Elsewhere(_) => point::not_watched("the watcher on the server's machine did not tell"),
            RequestGauge::Here(watch) => watch.seen(client),
        }
    }

    /// The load is over: puts what was seen into its point.
    pub fn note(&mut self, point: &mut Point, result: &LoadResult) {
        if matches!(self, RequestGauge::Elsewhere(_)) && point.watched.is_some() {
            return;
        }
        let PointSeen { figures, watched, doubts } = self.seen(&client_side(result));
        point.figures.extend(figures);
        point.watched = Some(watched);
        point.doubts.extend(doubts);
    }
}
