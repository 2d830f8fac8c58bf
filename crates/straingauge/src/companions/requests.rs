//! Requests of a point, counted on the server by `observe`.

use super::server::ServerWatch;
use super::{Companion, UpcomingLoad};
use crate::measured::{MeasuredPoint, client_side};
use crate::server::RunningServer;
use observe::Group;
use observe::watch::point::WatchedPoint;
use record::ClientSide;
use remote::{RequestWatch, RequestWatchPlan};

/// Starts counting requests, on this machine or the server's. Returns the local counter, or why requests are not
/// counted. A remote watcher reports its own counts.
pub fn watch_requests(
    how: &RequestWatchPlan,
    watch: &mut ServerWatch,
    port: u16,
    server: Option<&RunningServer>,
    server_cpus: &[usize],
) -> (Option<RequestWatch>, Option<String>) {
    let here = match watch {
        // The point has this doubt already.
        ServerWatch::Not(doubt) => return (Some(RequestWatch(Err(doubt.what.clone()))), None),
        ServerWatch::Elsewhere(watcher) => match watcher.count_requests(how) {
            Ok(why_not) => return (None, why_not),
            Err(why) => RequestWatch(Err(why)),
        },
        ServerWatch::Here(_) => {
            let group = server.and_then(RunningServer::pid).map_or(Group::ListeningOn(port), Group::Tree);
            RequestWatch::start(how, port, group, server.and_then(RunningServer::netns_pid), server_cpus)
        }
    };
    let why_not = here.why_not().map(str::to_string);
    (Some(here), why_not)
}

impl Companion for RequestWatch {
    fn load_begins(&mut self, _load: &UpcomingLoad<'_>) {
        if let Ok(watch) = &mut self.0 {
            watch.load_begins();
        }
    }

    fn window_begins(&mut self, load: &UpcomingLoad<'_>) {
        if let Ok(watch) = &mut self.0 {
            watch.window_begins(load.plan.duration_ns);
        }
    }

    fn window_ends(&mut self) {
        if let Ok(watch) = &mut self.0 {
            watch.window_ends();
        }
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        let WatchedPoint { figures, watched, doubts } = self.watched_point(&client_side(&measured.result));
        measured.point.figures.extend(figures);
        measured.point.watched = Some(watched);
        measured.point.doubts.extend(doubts);
    }

    fn load_failed(&mut self) {
        self.watched_point(&ClientSide::default());
    }
}
