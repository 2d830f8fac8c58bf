use super::*;

pub(super) const RULE: Rule = Rule {
    id: "tls-handshakes",
    cause: "TLS handshakes fill the server's CPU",
    evidence: "`client.tls_handshakes_per_sec` over `client.throughput_per_sec`, `client.tls_resumed_ratio`, under \
               strain; whether a CPU of the server is saturated",
    threshold: "at least one handshake for every 5 requests in the median point under strain, less than half of them \
                resumed, a CPU saturated",
    refuted_by: "over persistent connections, the same requests cost as much CPU time",
    remedy: "persistent connections, session tickets, an ECDSA P-256 certificate",
    source: "RFC 8446, section 2.2: a resumed session needs no signature; Coarfa, Druschel and Wallach, \"Performance \
             Analysis of TLS Web Servers\" (2006)",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "cpu-quota"],
    judge,
};

const LEAST_PER_REQUEST: f64 = 0.2;
const MOST_RESUMED: f64 = 0.5;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    let (handshakes, rate) = (typical(&points, names::TLS_HANDSHAKES)?, typical(&points, names::THROUGHPUT)?);
    let each = handshakes / rate.max(f64::MIN_POSITIVE);
    let resumed = typical(&points, names::TLS_RESUMED).unwrap_or(0.0);
    if each < LEAST_PER_REQUEST || resumed >= MOST_RESUMED || evidence.is_saturated(&points) != Some(true) {
        return None;
    }
    let (took, alone) =
        (typical(&points, names::TLS_HANDSHAKE_P50), typical(&evidence.lowest(), names::TLS_HANDSHAKE_P50));
    let took = took.map_or(String::new(), |us| format!("; one takes {} (median)", format_nanos(us * 1e3)));
    let alone = alone.map_or(String::new(), |us| format!(", {} at the lowest load", format_nanos(us * 1e3)));
    let command = format!("straingauge load {}", requests(evidence.run, &["--requests-per-connection"]));
    finding(
        format!(
            "TLS handshakes fill the server's CPU: beyond the yield point it made {}/s, {each:.1} per request, {} of \
             them resumed{took}{alone}.",
            format_si(handshakes),
            percent(resumed)
        ),
        format!(
            "To try: persistent connections (keep-alive), session tickets, and an ECDSA P-256 certificate; `{command}` \
             without `--requests-per-connection` shows the cost of a request then."
        ),
        &[command],
    )
}
