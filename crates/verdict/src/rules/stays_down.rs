use super::*;

pub(super) const RULE: Rule = Rule {
    id: "stays-down",
    cause: "the server stays down after overload",
    evidence: "good answers per second on the way down compared with the way up, load by load within repeats \
               (`find --unload`)",
    threshold: "at a load that held on the way up, at most three quarters in the median of at least 3 repeats, and 90 \
                % at the upper end of the interval. If the server never came back: as much at two or more of the \
                lowest loads, compared with its throughput before, in all of at least 5 later visits; always a \
                possibility",
    refuted_by: "the next way up is as slow: then the server slows down with time",
    remedy: "a limit on waiting work (requests in progress, a timeout for queued work), retries with a budget and \
             backoff; until then lower the load below the recovery point",
    source: "Bronson and others, \"Metastable Failures in Distributed Systems\" (HotOS 2021); Huang and others, \
             \"Metastable Failures in the Wild\" (OSDI 2022): the overload outlasts its cause",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client", "client-ports", "slows-with-time"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let unloading = evidence.findings.unloading.as_ref()?;
    unloading.widest()?;
    let below = match (&unloading.recovery_point.held, &unloading.recovery_point.failed) {
        (Some(back), _) => {
            format!("until then it recovers when the load falls to {}", load_words(*back, Sweep::Connections))
        }
        _ if unloading.never_back => "until then only a restart helps".into(),
        _ => "until then only a restart or a load below the lowest one measured helps".into(),
    };
    let mut found = finding(
        format!("The overload outlasts its cause. {}", unloading.sentence()),
        format!(
            "To try: limit waiting work (a limit on requests in progress, a timeout for queued work), and give retries \
             a budget and a backoff; {below}."
        ),
        &[],
    )?;
    if unloading.never_back {
        let lowest = unloading.levels.first().map_or(1.0, |level| level.load);
        let command = again(evidence.run, "load", &format!("--connections {lowest:.0}"));
        found.remedy = format!(
            "{} To decide: restart the server and run `{command}`; if throughput is again as before, the load brought \
             the server down, otherwise something else did.",
            found.remedy
        );
        found.commands = vec![command];
    }
    // The server came down only once, so another event at that moment may be the cause.
    found.proven_if(!unloading.never_back && unloading.doubts.is_empty())
}
