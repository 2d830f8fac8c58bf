use super::protocol::{Connect, Http1, Http2, InOrder, Memcached, OrderedProtocol, Redis, Tcp, Traces, WireProtocol};
use super::source::{ClosedLoop, OpenLoop, Replay, Source};
use super::transport::{LimitedPace, Plain, ReadPace, SampledPace, Tls, Transport};
use super::{Task, Worker, WorkerReport};
use crate::poller::Poller;
use crate::socket::Errno;
use record::Pace;
use record::protocol::Protocol;

pub(crate) fn run(task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    let (seed, share) = (task.plan.seed, task.share);
    match &task.plan.protocol {
        Protocol::Http | Protocol::Http2(_) | Protocol::Grpc(_) => run_http(task, poller),
        Protocol::Redis(plan) => run_any(in_order(Redis::new(plan, seed, share), &task), task, poller),
        Protocol::Memcached(plan) => run_plain(in_order(Memcached::new(plan, seed, share), &task), task, poller),
        Protocol::Connect => run_any(Connect, task, poller),
        Protocol::Tcp(plan) => run_plain(in_order(Tcp::new(plan), &task), task, poller),
    }
}

fn sampled(task: &Task<'_>) -> (SampledPace, Option<Errno>) {
    match SampledPace::new(task.plan, task.connections) {
        Ok(pace) => (pace, None),
        Err(error) => (SampledPace::never(task.plan), Some(error)),
    }
}

fn in_order<K: OrderedProtocol>(protocol: K, task: &Task<'_>) -> InOrder<K> {
    InOrder::new(protocol, task.plan.protocol.pipeline())
}

fn run_any<A: WireProtocol>(protocol: A, task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    match task.tls {
        None => run_plain(protocol, task, poller),
        Some(tls) => {
            let (pace, has_no_stamps) = sampled(&task);
            let transport = Tls::new(tls, task.connections, pace);
            run_over(transport, protocol, task, poller, has_no_stamps)
        }
    }
}

fn run_plain<A: WireProtocol>(protocol: A, task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    let (pace, has_no_stamps) = sampled(&task);
    run_over(Plain::new(pace), protocol, task, poller, has_no_stamps)
}

/// Only these sources are compiled for protocols other than HTTP: `check` refuses logs for them.
fn run_over<A: WireProtocol, T: Transport>(
    transport: T,
    protocol: A,
    task: Task<'_>,
    poller: Poller,
    has_no_stamps: Option<Errno>,
) -> Result<WorkerReport, Errno> {
    let report = match task.plan.pace {
        Pace::Open { rate_per_sec, arrival } => {
            let source = OpenLoop::new(&task, rate_per_sec, arrival);
            Worker::new(task, poller, source, transport, protocol).run()
        }
        Pace::Closed => {
            let source = ClosedLoop::new(&task);
            Worker::new(task, poller, source, transport, protocol).run()
        }
    }?;
    Ok(WorkerReport { has_no_stamps, ..report })
}

fn run_http(mut task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    match (task.feed.take(), task.plan.pace) {
        (Some(feed), _) => run_http_from(Replay::new(&task, feed), task, poller),
        (None, Pace::Open { rate_per_sec, arrival }) => {
            run_http_from(OpenLoop::new(&task, rate_per_sec, arrival), task, poller)
        }
        (None, Pace::Closed) => run_http_from(ClosedLoop::new(&task), task, poller),
    }
}

fn run_http_from<S: Source>(source: S, task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    if task.plan.protocol.is_over_http_2() {
        let protocol = Http2::new(task.plan, task.requests.body.clone(), task.connections)?;
        return run_paced(protocol, source, task, poller);
    }
    let traces = Traces::new(task.plan, task.connections)?;
    run_paced(Http1::new(source.heads(task.requests), traces), source, task, poller)
}

fn run_paced<S: Source, A: WireProtocol>(
    protocol: A,
    source: S,
    task: Task<'_>,
    poller: Poller,
) -> Result<WorkerReport, Errno> {
    if let Some(pace) = LimitedPace::new(&task.plan.clients, task.connections) {
        // A paced client leaves bytes unread on purpose, so it does not sample arrivals.
        return run_at(pace, protocol, source, task, poller);
    }
    let (pace, has_no_stamps) = sampled(&task);
    let report = run_at(pace, protocol, source, task, poller)?;
    Ok(WorkerReport { has_no_stamps, ..report })
}

fn run_at<S: Source, P: ReadPace, A: WireProtocol>(
    pace: P,
    protocol: A,
    source: S,
    task: Task<'_>,
    poller: Poller,
) -> Result<WorkerReport, Errno> {
    match task.tls {
        None => Worker::new(task, poller, source, Plain::new(pace), protocol).run(),
        Some(tls) => {
            let transport = Tls::new(tls, task.connections, pace);
            Worker::new(task, poller, source, transport, protocol).run()
        }
    }
}
