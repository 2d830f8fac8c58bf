//! Requests of a load's points, seen from the server's side: the watch of `observe`, started once, asked in every point.

use crate::cli::{WatchWord, WatchingOptions};
use crate::failure::wrong_usage;
use crate::quantity::Share;
use crate::server::Server;
use crate::watching::Watch;
use crate::worker::{WireWatch, clean};
use anyhow::Result;
use load::LoadResult;
use observe::Group;
use observe::watch::pack::{BUILT_IN, Pack};
use observe::watch::point::{self, ClientSide, PointSeen};
use observe::watch::{Mode, PointWatch, SizeClasses, WatchOptions};
use record::{Doubt, Point};

/// How requests are to be watched, as typed.
#[derive(Debug, Clone)]
pub struct RequestWatchPlan {
    mode: Mode,
    overhead_ratio: f64,
    classes: SizeClasses,
    /// Their boundaries as typed, which another machine is told.
    classes_text: Option<String>,
    /// Functions of the server that mark its phases, with their text, which another machine is told.
    pack: Option<(Pack, String)>,
}

/// Modes by their words on the wire and in files.
const MODES: [(&str, Mode); 4] =
    [("zero", Mode::Zero), ("counts", Mode::Counts), ("default", Mode::Default), ("exact", Mode::Exact)];

impl RequestWatchPlan {
    /// Checks the options; `None`: not at all. `default`: what holds when nothing was typed.
    pub fn new(options: &WatchingOptions, default: WatchWord) -> Result<Option<RequestWatchPlan>> {
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

    /// As a driver asks another machine for it.
    pub fn to_wire(&self) -> WireWatch {
        let mode = MODES.iter().find(|(_, mode)| *mode == self.mode).map_or("", |(word, _)| word);
        WireWatch {
            mode: mode.into(),
            overhead_ratio: self.overhead_ratio,
            classes: self.classes_text.clone(),
            pack: self.pack.as_ref().map(|(pack, text)| (pack.origin.clone(), text.clone())),
        }
    }

    /// As a driver asked for it; else why it cannot be meant, in one sentence.
    pub fn from_wire(how: &WireWatch) -> Result<RequestWatchPlan, String> {
        let known = MODES.iter().find(|(word, _)| *word == how.mode);
        let (_, mode) = known.ok_or("the driver asks for a way of watching that this straingauge does not know")?;
        if !(how.overhead_ratio > 0.0 && how.overhead_ratio.is_finite()) {
            return Err("the driver's budget for watching is not above 0".into());
        }
        let classes = match &how.classes {
            Some(text) => {
                SizeClasses::parse(text).map_err(|error| format!("the driver's size classes are refused: {error}"))?
            }
            None => SizeClasses::default(),
        };
        let pack = match &how.pack {
            Some((origin, text)) => {
                let pack = Pack::parse(&clean(origin, 80), text);
                Some((pack.map_err(|error| format!("the driver's pack is refused: {error}"))?, text.clone()))
            }
            None => None,
        };
        let classes_text = how.classes.clone();
        Ok(RequestWatchPlan { mode: *mode, overhead_ratio: how.overhead_ratio, classes, classes_text, pack })
    }
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
    /// It runs, perhaps without programs; then every point says why.
    Watching(Box<PointWatch>),
    /// A watcher on the server's machine does it, and tells with the rest of what it saw; or it tells why it cannot.
    Elsewhere(Option<String>),
    /// There is none, and why.
    Not(String),
}

/// What the client says of a load that is over.
pub fn client_side(result: &LoadResult) -> ClientSide {
    ClientSide {
        completed_in_window: result.completed_in_window,
        window_ns: result.window_ns,
        answered_in_all: result.answered_in_all,
        given_up: result.outcomes.errors().saturating_add(result.outcomes.unfinished),
    }
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
            pack: plan.pack.as_ref().map(|(pack, _)| pack.clone()),
            ..WatchOptions::of_port(port)
        };
        match PointWatch::start(options, server_cpus.to_vec()) {
            Ok(watch) => RequestGauge::Watching(Box::new(watch)),
            Err(error) => RequestGauge::Not(error.to_string()),
        }
    }

    /// Has the requests counted by whoever watches the server, here or there.
    pub fn beside(
        how: &RequestWatchPlan,
        watch: &mut Result<Watch, Doubt>,
        port: u16,
        server: Option<&Server>,
        server_cpus: &[usize],
    ) -> RequestGauge {
        match watch {
            Err(doubt) => RequestGauge::Not(doubt.what.clone()),
            Ok(Watch::There(watcher)) => match watcher.watch_requests(how.to_wire()) {
                Ok(why_not) => RequestGauge::Elsewhere(why_not),
                Err(why) => RequestGauge::Not(why),
            },
            Ok(Watch::Here(_)) => {
                let group = server.and_then(Server::pid).map_or(Group::ListeningOn(port), Group::Tree);
                RequestGauge::start(how, port, group, server.and_then(Server::netns_pid), server_cpus)
            }
        }
    }

    /// Why requests are not counted.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            RequestGauge::Watching(watch) => watch.why_not(),
            RequestGauge::Elsewhere(why) => why.as_deref(),
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

    /// The load is over: what was seen of it.
    pub fn seen(&mut self, client: &ClientSide) -> PointSeen {
        match self {
            RequestGauge::Not(why) => point::not_watched(why),
            RequestGauge::Elsewhere(_) => point::not_watched("the watcher on the server's machine did not tell"),
            RequestGauge::Watching(watch) => match watch.load_ended() {
                None => point::not_watched("the watch's thread does not answer"),
                Some(readings) => point::seen(&readings, watch.classes(), client, watch.why_not()),
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_machine_is_asked_comes_back_as_it_was_meant() {
        for watch in [WatchWord::Zero, WatchWord::Counts, WatchWord::Default, WatchWord::Exact] {
            let typed = WatchingOptions {
                detail: Some(watch),
                response_classes: Some("1KiB,64KiB".into()),
                pack: matches!(watch, WatchWord::Counts | WatchWord::Default).then(|| "nginx".into()),
                ..WatchingOptions::default()
            };
            let plan = RequestWatchPlan::new(&typed, WatchWord::Off).unwrap().unwrap();
            let back = RequestWatchPlan::from_wire(&plan.to_wire()).unwrap();
            assert_eq!((back.mode, back.overhead_ratio), (plan.mode, plan.overhead_ratio));
            assert_eq!((back.classes, back.pack), (plan.classes, plan.pack));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words() {
        let good = WireWatch { mode: "counts".into(), overhead_ratio: 0.01, classes: None, pack: None };
        assert!(RequestWatchPlan::from_wire(&good).is_ok());
        for (bad, word) in [
            (WireWatch { mode: "closely".into(), ..good.clone() }, "way of watching"),
            (WireWatch { overhead_ratio: f64::NAN, ..good.clone() }, "budget"),
            (WireWatch { classes: Some("9KiB,1KiB".into()), ..good.clone() }, "ascend"),
            (WireWatch { pack: Some(("mine".into(), "parsed\n".into())), ..good.clone() }, "mine, line 1"),
        ] {
            let why = RequestWatchPlan::from_wire(&bad).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
