use super::protocol::{
    Connect, Http1, Http2, InOrder, Memcached, OrderedProtocol, Protocol as Spoken, Redis, Tcp, Traces,
};
use super::source::{Closed, Open, Replay, Source};
use super::transport::{Limited, Pace as ReadPace, Plain, Sampled, Tls, Transport};
use super::{Report, Task, Worker};
use crate::poller::Poller;
use crate::socket::Errno;
use record::Pace;
use record::protocol::Protocol;

pub(crate) fn run(task: Task<'_>, poller: Poller) -> Result<Report, Errno> {
    let (seed, share) = (task.plan.seed, task.share);
    match &task.plan.protocol {
        Protocol::Http | Protocol::Http2(_) | Protocol::Grpc(_) => run_http(task, poller),
        Protocol::Redis(plan) => run_any(in_order(Redis::new(plan, seed, share), &task), task, poller),
        Protocol::Memcached(plan) => run_plain(in_order(Memcached::new(plan, seed, share), &task), task, poller),
        Protocol::Connect => run_any(Connect, task, poller),
        Protocol::Tcp(plan) => run_plain(in_order(Tcp::new(plan), &task), task, poller),
    }
}

fn sampled(task: &Task<'_>) -> (Sampled, Option<Errno>) {
    match Sampled::new(task.plan, task.connections) {
        Ok(pace) => (pace, None),
        Err(error) => (Sampled::never(task.plan), Some(error)),
    }
}

fn in_order<K: OrderedProtocol>(talk: K, task: &Task<'_>) -> InOrder<K> {
    InOrder::new(talk, task.plan.protocol.pipeline())
}

fn run_any<A: Spoken>(protocol: A, task: Task<'_>, poller: Poller) -> Result<Report, Errno> {
    match task.tls {
        None => run_plain(protocol, task, poller),
        Some(tls) => {
            let (pace, has_no_stamps) = sampled(&task);
            let transport = Tls::new(tls, task.connections, pace);
            run_over(transport, protocol, task, poller, has_no_stamps)
        }
    }
}

fn run_plain<A: Spoken>(protocol: A, task: Task<'_>, poller: Poller) -> Result<Report, Errno> {
    let (pace, has_no_stamps) = sampled(&task);
    run_over(Plain::new(pace), protocol, task, poller, has_no_stamps)
}

/// Only these sources are compiled for protocols other than HTTP: `check` refuses logs for them.
fn run_over<A: Spoken, T: Transport>(
    transport: T,
    protocol: A,
    task: Task<'_>,
    poller: Poller,
    has_no_stamps: Option<Errno>,
) -> Result<Report, Errno> {
    let report = match task.plan.pace {
        Pace::Open { rate_per_sec, arrival } => {
            let source = Open::new(&task, rate_per_sec, arrival);
            Worker::new(task, poller, source, transport, protocol).run()
        }
        Pace::Closed => {
            let source = Closed::new(&task);
            Worker::new(task, poller, source, transport, protocol).run()
        }
    }?;
    Ok(Report { has_no_stamps, ..report })
}

fn run_http(mut task: Task<'_>, poller: Poller) -> Result<Report, Errno> {
    match (task.feed.take(), task.plan.pace) {
        (Some(feed), _) => run_http_from(Replay::new(&task, feed), task, poller),
        (None, Pace::Open { rate_per_sec, arrival }) => {
            run_http_from(Open::new(&task, rate_per_sec, arrival), task, poller)
        }
        (None, Pace::Closed) => run_http_from(Closed::new(&task), task, poller),
    }
}

fn run_http_from<S: Source>(source: S, task: Task<'_>, poller: Poller) -> Result<Report, Errno> {
    if task.plan.protocol.is_over_http_2() {
        let protocol = Http2::new(task.plan, task.requests.body.clone(), task.connections)?;
        return run_paced(protocol, source, task, poller);
    }
    let traces = Traces::new(task.plan, task.connections)?;
    run_paced(Http1::new(source.heads(task.requests), traces), source, task, poller)
}

fn run_paced<S: Source, A: Spoken>(protocol: A, source: S, task: Task<'_>, poller: Poller) -> Result<Report, Errno> {
    if let Some(pace) = Limited::new(&task.plan.clients, task.connections) {
        // A paced client leaves bytes unread on purpose, so it does not sample arrivals.
        return run_at(pace, protocol, source, task, poller);
    }
    let (pace, has_no_stamps) = sampled(&task);
    let report = run_at(pace, protocol, source, task, poller)?;
    Ok(Report { has_no_stamps, ..report })
}

fn run_at<S: Source, P: ReadPace, A: Spoken>(
    pace: P,
    protocol: A,
    source: S,
    task: Task<'_>,
    poller: Poller,
) -> Result<Report, Errno> {
    match task.tls {
        None => Worker::new(task, poller, source, Plain::new(pace), protocol).run(),
        Some(tls) => {
            let transport = Tls::new(tls, task.connections, pace);
            Worker::new(task, poller, source, transport, protocol).run()
        }
    }
}
