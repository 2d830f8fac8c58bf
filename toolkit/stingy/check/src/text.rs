//! Formats what a cache-aware memory layout could win.

use crate::check::Check;
use record::text::plain;
use record::units::{format_bytes, grouped};
use report::text::{list, wrap};
use verdict::Remedy;

/// Formats the answer, then its basis.
pub fn text(check: &Check) -> String {
    let Check { loads, user_us, won, .. } = check;
    let answer = match check.remedy {
        Some(Remedy::Loop) => "another event loop (admission, cold connections) could help; the slab alone would not",
        Some(Remedy::Slab) => "the slab could help: all requests fit in it, and the server's memory outgrew the cache",
        Some(Remedy::Neither) => "neither a new loop nor the slab is worth it",
        None => "it is not known whether a new loop or the slab would help",
    };
    let first = format!("{:.2} to {:.2} times as many requests: {answer}", won.at_least, won.at_most);
    let mut out = wrap(&first, "", "  ");
    let share = format!(
        "at most {:.2} times as many by changes in user space alone: {:.0} % of the CPU time of a request is user time \
         (n = {} points)",
        won.amdahl,
        check.user_ratio * 100.0,
        check.n
    );
    let growth = format!(
        "user time {:.2} us at up to {} connections, {:.2} us at up to {}: only this growth, within three standard \
         errors, can be cache misses",
        user_us.0,
        grouped(loads.0),
        user_us.1,
        grouped(loads.1)
    );
    let is_shown = won.at_least > 1.0;
    let growth = growth + if is_shown { "" } else { "; it is within its error, so there may be no gain" };
    let cache = check.cache_bytes.map_or("not known".into(), |bytes| format_bytes(bytes as f64));
    let mut rests = vec![share, growth, format!("second-level cache: {cache}")];
    rests.extend(check.memory_per_connection.map(|bytes| {
        let bytes = format_bytes(bytes.abs());
        let way = if check.memory_per_connection < Some(0.0) { "less" } else { "more" };
        format!("resident memory: {bytes} {way} for each further connection")
    }));
    rests.extend(check.largest.as_ref().map(|largest| {
        format!(
            "memwalk: most at stage {}: {} bytes, {} lines for each request{}; {} requests fit in half of the cache",
            plain(&largest.stage, 100),
            range(largest.bytes.0 as f64, largest.bytes.1 as f64),
            range(largest.lines.0 as f64, largest.lines.1 as f64),
            if largest.is_bound { "" } else { " or more" },
            range(largest.fit.0, largest.fit.1)
        )
    }));
    out.push_str(&list("rests on", &rests));
    out.push_str(&list("not measured", &check.not_measured));
    out
}

/// Formats `225 to 65,760`, or one number.
fn range(least: f64, most: f64) -> String {
    if least == most { grouped(most) } else { format!("{} to {}", grouped(least), grouped(most)) }
}
