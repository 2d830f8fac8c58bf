//! The watch of a server's requests, which stays attached between loads: locally, or on behalf of a driver.

use crate::protocol::WireWatch;
use observe::Group;
use observe::watch::pack::Pack;
use observe::watch::point::{self, PointSeen};
use observe::watch::{PointWatch, SizeClasses, WatchOptions};
use record::watch::Mode;
use record::{ClientSide, PlainText};

/// How requests are to be watched.
#[derive(Debug, Clone)]
pub struct RequestWatchPlan {
    /// The mode of the watch.
    pub mode: Mode,
    /// Share of the server's CPU time that [`Mode::Budgeted`] may cost.
    pub overhead_ratio: f64,
    /// Size classes by bytes of response.
    pub classes: SizeClasses,
    /// The classes' boundaries as typed, for another machine; `None` for the defaults.
    pub classes_text: Option<String>,
    /// Functions of the server that mark its phases, with their source text for another machine.
    pub pack: Option<(Pack, String)>,
}

impl RequestWatchPlan {
    /// The form that is sent to another machine.
    pub(crate) fn to_wire(&self) -> WireWatch {
        WireWatch {
            mode: self.mode.word().into(),
            overhead_ratio: self.overhead_ratio,
            classes: self.classes_text.clone(),
            pack: self.pack.as_ref().map(|(pack, text)| (pack.origin.clone(), text.clone())),
        }
    }

    /// Reads a driver's request; the error is one sentence.
    pub(crate) fn from_wire(how: &WireWatch) -> Result<RequestWatchPlan, String> {
        let known = Mode::ALL.into_iter().find(|mode| mode.word() == how.mode);
        let mode = known.ok_or("the driver asks for a way of watching that this straingauge does not know")?;
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
                let pack = Pack::parse(&PlainText::new(origin, 80), text);
                Some((pack.map_err(|error| format!("the driver's pack is refused: {error}"))?, text.clone()))
            }
            None => None,
        };
        let classes_text = how.classes.clone();
        Ok(RequestWatchPlan { mode, overhead_ratio: how.overhead_ratio, classes, classes_text, pack })
    }
}

/// A watch of requests on this machine.
#[derive(Debug)]
pub enum RequestWatch {
    /// It runs, perhaps without BPF programs; every point then has the reason.
    Watching(Box<PointWatch>),
    /// It does not run; the reason.
    Not(String),
}

impl RequestWatch {
    /// Watches the server on `port` in the network namespace of `netns_pid`, from CPUs other than the server's.
    pub fn start(
        plan: &RequestWatchPlan,
        port: u16,
        group: Group,
        netns_pid: Option<u32>,
        server_cpus: &[usize],
    ) -> RequestWatch {
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
            Ok(watch) => RequestWatch::Watching(Box::new(watch)),
            Err(error) => RequestWatch::Not(error.to_string()),
        }
    }

    /// Why requests are not counted.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            RequestWatch::Watching(watch) => watch.why_not(),
            RequestWatch::Not(why) => Some(why),
        }
    }

    /// A load begins; returns when the state before it is known.
    pub fn load_begins(&mut self) {
        if let RequestWatch::Watching(watch) = self {
            watch.load_begins();
        }
    }

    /// Its window begins: a separate thread reads while the caller continues.
    pub fn window_begins(&mut self, planned_ns: u64) {
        if let RequestWatch::Watching(watch) = self {
            watch.window_begins(planned_ns);
        }
    }

    /// Its window ends.
    pub fn window_ends(&mut self) {
        if let RequestWatch::Watching(watch) = self {
            watch.window_ends();
        }
    }

    /// The load is over: returns its observation.
    pub fn seen(&mut self, client: &ClientSide) -> PointSeen {
        match self {
            RequestWatch::Not(why) => point::not_watched(why),
            RequestWatch::Watching(watch) => match watch.load_ended() {
                None => point::not_watched("the watch's thread does not answer"),
                Some(readings) => point::seen(&readings, watch.classes(), client, watch.why_not()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_machine_is_asked_comes_back_as_it_was_meant() {
        for mode in Mode::ALL {
            let pack = matches!(mode, Mode::Counts | Mode::Budgeted).then(|| Pack::open_with_text("nginx").unwrap());
            let plan = RequestWatchPlan {
                mode,
                overhead_ratio: 0.02,
                classes: SizeClasses::parse("1KiB,64KiB").unwrap(),
                classes_text: Some("1KiB,64KiB".into()),
                pack,
            };
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
