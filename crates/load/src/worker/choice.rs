use super::protocol::{Connect, Http1, Http2, InOrder, Memcached, Redis, Tcp, Traces, WireProtocol};
use super::source::{ClosedLoop, OpenLoop, Replay, Source};
use super::transport::{Plain, Tls};
use super::{Task, Worker, WorkerReport};
use crate::framing::HeadCache;
use crate::poller::Poller;
use crate::socket::Errno;
use record::Pace;
use record::protocol::Protocol;

pub(crate) fn run(mut task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    match (task.feed.take(), task.plan.pace) {
        // `check` refuses logs for protocols other than HTTP.
        (Some(feed), _) => run_http(Replay::new(&task, feed), task, poller),
        (None, Pace::Open { rate_per_sec, arrival }) => {
            run_any(OpenLoop::new(&task, rate_per_sec, arrival), task, poller)
        }
        (None, Pace::Closed) => run_any(ClosedLoop::new(&task), task, poller),
    }
}

fn run_any<S: Source>(source: S, task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    let (plan, seed, share) = (task.plan, task.plan.seed, task.share);
    let depth = plan.protocol.pipeline();
    match &plan.protocol {
        Protocol::Http | Protocol::Http2(_) | Protocol::Grpc(_) => run_http(source, task, poller),
        Protocol::Redis(redis) => over_any(InOrder::new(Redis::new(redis, seed, share), depth), source, task, poller),
        Protocol::Memcached(memcached) => {
            over_tcp(InOrder::new(Memcached::new(memcached, seed, share), depth), source, task, poller)
        }
        Protocol::Connect => over_any(Connect, source, task, poller),
        Protocol::Tcp(tcp) => over_tcp(InOrder::new(Tcp::new(tcp), depth), source, task, poller),
    }
}

fn run_http<S: Source>(source: S, task: Task<'_>, poller: Poller) -> Result<WorkerReport, Errno> {
    if task.plan.protocol.is_over_http_2() {
        let protocol = Http2::new(task.plan, task.requests.body.clone(), task.connections)?;
        return over_any(protocol, source, task, poller);
    }
    let traces = Traces::new(task.plan, task.connections)?;
    let heads = match S::IS_LOG {
        true => HeadCache::for_both(),
        false => HeadCache::new(task.requests.is_head, task.requests.targets.len()),
    };
    over_any(Http1::new(heads, traces), source, task, poller)
}

fn over_any<S: Source, A: WireProtocol>(
    protocol: A,
    source: S,
    task: Task<'_>,
    poller: Poller,
) -> Result<WorkerReport, Errno> {
    match task.tls {
        None => over_tcp(protocol, source, task, poller),
        Some(tls) => {
            let transport = Tls::new(tls, task.connections);
            Worker::new(task, poller, source, transport, protocol).run()
        }
    }
}

fn over_tcp<S: Source, A: WireProtocol>(
    protocol: A,
    source: S,
    task: Task<'_>,
    poller: Poller,
) -> Result<WorkerReport, Errno> {
    Worker::new(task, poller, source, Plain, protocol).run()
}
