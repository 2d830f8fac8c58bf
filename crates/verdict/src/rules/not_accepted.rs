use super::*;

pub(super) const RULE: Rule = Rule {
    id: "not-accepted",
    cause: "connections wait to be accepted while the server has idle time",
    evidence: "`client.silent_connections`, `tcp.accept_queue_max`, the connection state `listen`, \
               `server.cpus_busy_ratio`",
    threshold: "in most points of a load and of the loads above it a connection without any answer, and as many in an \
                accept queue; a connection in it at the lowest load, too, below 85 % CPU",
    refuted_by: "the accept queues of all listening sockets are empty after the load",
    remedy: "`ss -ltnp 'sport = :PORT'` shows each listening socket's queue and process",
    source: "socket(7), SO_REUSEPORT: the kernel gives each listening socket its share of the connections, whether \
             its process accepts them or not",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client", "hangs", "descriptors", "connection-limit"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let value = |point: &Point, name| point.value(name).unwrap_or(0.0);
    let lowest = evidence.lowest();
    let is_left = |point: &&Point| {
        value(point, names::ACCEPT_QUEUE_MAX) >= 1.0
            && point.value(names::SERVER_CPU_BUSY).is_some_and(|busy| busy < super::super::NEARLY_FULL)
    };
    let (at, points) = evidence.first_level(|point| {
        let silent = value(point, names::SILENT);
        silent >= 1.0 && value(point, names::ACCEPT_QUEUE_MAX) >= silent
    })?;
    if lowest.is_empty() || !lowest.iter().all(is_left) {
        return None;
    }
    let listening = points.iter().filter_map(|point| point.connection_states.get("listen")?.value).fold(0.0, f64::max);
    let several = if listening > 1.5 {
        format!(
            " The port has {} listening sockets: a process or thread that owns one does not accept.",
            grouped(listening)
        )
    } else {
        String::new()
    };
    let command = format!("ss -ltnp 'sport = :{}'", served_port(evidence.run));
    finding(
        format!(
            "From {at} on, {:.0} of the connections got no answer, and {:.0} were in an accept queue; {:.0} were there \
             at the lowest load, too, when the server had idle time.{several}",
            typical(&points, names::SILENT)?,
            typical(&points, names::ACCEPT_QUEUE_MAX)?,
            typical(&lowest, names::ACCEPT_QUEUE_MAX)?,
        ),
        format!(
            "To try: `{command}` under load shows each listening socket's queue (Recv-Q) and its process; see why that \
             process does not accept, or end it."
        ),
        &[command],
    )
}
