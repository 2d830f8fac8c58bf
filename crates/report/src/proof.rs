//! The result of `find --prove`.

use crate::text::wrap;
use record::text::plain;
use record::units::{count, format_si};
use verdict::proof::Proof;

/// A block of a few lines for a terminal; the conclusion comes last.
pub fn text(proof: &Proof) -> String {
    let [title, lines @ ..] = &parts(proof)[..] else { return String::new() };
    let block: String = lines.iter().map(|line| wrap(line, "  ", "    ")).collect();
    format!("\n{}{block}", wrap(title, "", "  "))
}

/// One sentence for the page.
pub fn sentence(proof: &Proof) -> String {
    format!("{}.", parts(proof).join("; "))
}

/// The title, the measurement, and the conclusion.
fn parts(proof: &Proof) -> Vec<String> {
    let stage = if proof.stage.is_empty() { "none" } else { &proof.stage };
    let mut lines = vec![format!("Proof of the limit: {}", plain(stage, 200))];
    let axis = proof.axis.as_deref();
    if let Some((axis, effect)) = axis.and_then(|axis| Some((axis, axis.effect.as_ref()?))) {
        let (us, place) = (effect.most_added_us, plain(&proof.place, 120));
        let connections = count(proof.connections, "connection");
        let n = count(axis.repeats, "repeat");
        lines.push(format!("added: up to {us:.1} us of CPU time a request (n = {n}), at {place}, with {connections}"));
    }
    if let Some(change) = axis.and_then(|axis| axis.throughput_change.as_ref()) {
        let (from, to) = (format_si(change.from), format_si(change.to));
        lines.push(format!("throughput: {from}/s to {to}/s (n = {})", count(change.ratio.n, "repeat")));
    }
    if let Some(slope) = axis.and_then(|axis| axis.effect.as_ref()?.time) {
        let ends = slope.interval().map(|(low, high)| format!("{low:.3} to {high:.3}, 95 % interval, "));
        let (ends, n) = (ends.unwrap_or_default(), count(slope.n, "repeat"));
        lines.push(format!("measured: 1 / throughput grew by {:.3} us per us added ({ends}n = {n})", slope.value));
    }
    if let Some(predicted) = proof.predicted {
        let because = match 1.0 / predicted {
            at_once if at_once.is_finite() => {
                format!("the stage serves {} at a time", (at_once * 100.0).round() / 100.0)
            }
            _ => "the stage takes no time of the server's threads".into(),
        };
        lines.push(format!("predicted: {predicted:.3} us per us, because {because}"));
    }
    lines.push(format!("{}: {}", proof.conclusion.word(), plain(&proof.why, 300)));
    lines
}
