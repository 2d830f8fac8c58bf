use observe::Group;
use observe::watch::pack::Pack;
use observe::watch::point::{self, WatchedPoint};
use observe::watch::{PointWatch, SizeClasses, WatchOptions};
use record::watch::Mode;
use record::{ClientSide, PlainText};
use serde::{Deserialize, Serialize};

/// How to watch requests, on this machine or another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestWatchPlan {
    /// Mode of the watch.
    pub mode: Mode,
    /// Share of the server's CPU time that [`Mode::Budgeted`] may use.
    pub overhead_ratio: f64,
    /// Boundaries of the size classes in bytes of response, as typed; absent for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<String>,
    /// Name and text of a pack, which lists the server's functions that mark its phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<(String, String)>,
}

impl RequestWatchPlan {
    /// The options for the server on `port`. A driver's request may be anything, so the error is one sentence.
    #[doc(hidden)]
    pub fn options(&self, port: u16) -> Result<WatchOptions, String> {
        if !(self.overhead_ratio > 0.0 && self.overhead_ratio.is_finite()) {
            return Err("the budget for watching must be above 0".into());
        }
        let classes = self.classes.as_deref().map(SizeClasses::parse).transpose();
        let pack = self.pack.as_ref().map(|(origin, text)| Pack::parse(&PlainText::new(origin, 80), text)).transpose();
        Ok(WatchOptions {
            mode: self.mode,
            overhead_ratio: self.overhead_ratio,
            classes: classes.map_err(|error| format!("invalid size classes: {error}"))?.unwrap_or_default(),
            pack: pack.map_err(|error| format!("invalid pack: {error}"))?,
            ..WatchOptions::of_port(port)
        })
    }
}

/// A watch of requests on this machine, perhaps without BPF programs (every point then gives the reason), or why it
/// does not run.
#[derive(Debug)]
pub struct RequestWatch(pub Result<Box<PointWatch>, String>);

impl RequestWatch {
    /// Watches the server on `port` in the network namespace of `netns_pid`, from CPUs other than the server's.
    pub fn start(
        plan: &RequestWatchPlan,
        port: u16,
        group: Group,
        netns_pid: Option<u32>,
        server_cpus: &[usize],
    ) -> RequestWatch {
        let started = plan.options(port).and_then(|options| {
            let options = WatchOptions { group, netns_pid, ..options };
            PointWatch::start(options, server_cpus.to_vec()).map_err(|error| error.to_string())
        });
        RequestWatch(started.map(Box::new))
    }

    /// Why requests are not counted.
    pub fn why_not(&self) -> Option<&str> {
        match &self.0 {
            Ok(watch) => watch.why_not(),
            Err(why) => Some(why),
        }
    }

    /// Returns the observation of the load that has ended.
    pub fn watched_point(&mut self, client: &ClientSide) -> WatchedPoint {
        match &mut self.0 {
            Err(why) => point::not_watched(why),
            Ok(watch) => match watch.load_ended() {
                None => point::not_watched("the watch's thread does not answer"),
                Some(readings) => point::watched_point(&readings, watch.classes(), client, watch.why_not()),
            },
        }
    }
}
