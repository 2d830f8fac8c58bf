use super::search::{Search, SearchEnd};
use analyze::sweep::WarmUp;
use analyze::zones::cpu_us;
use anyhow::Result;
use record::machine::HUNG_IN_WARM_UP;
use record::units::format_nanos;
use record::{DoubtKind, LoadPlan, Pace, Sweep, names};
use std::time::Instant;

/// Connections that keep most servers busy.
const CONNECTIONS: u64 = 8;
/// A server that is restarted for each turn is warmed up again if its cost fell by more than this share in the first
/// warm-up.
const FALL_RATIO: f64 = 0.1;
const AGAIN_PART: u64 = 8;
/// A server that did not answer in this part of the last window may hang; the points show whether it does.
const HUNG: f64 = 0.5;

impl Search<'_> {
    /// Loads the server until the CPU time per request stops falling. These loads are not points; their duration is
    /// kept with the server's facts. Returns whether that ends the search.
    pub fn warm_up(&mut self) -> Result<Option<SearchEnd>> {
        let (sweep, side) = (&self.plan.sweep, self.now);
        let budget_ns = match self.is_slow_at_first[side] {
            None => sweep.budget_ns,
            Some(true) => sweep.budget_ns / AGAIN_PART,
            Some(false) => return Ok(None),
        };
        let connections = CONNECTIONS.min(sweep.connections_max.max(sweep.connections_min).max(1));
        let mut warm_up = WarmUp::new(budget_ns);
        let session = self.session()?;
        let round_trip_ns = session.round_trip_ns();
        let plan = LoadPlan {
            connections,
            pace: Pace::Closed,
            duration_ns: WarmUp::WINDOW_NS + round_trip_ns,
            warmup_ns: 2 * round_trip_ns,
            threads: 1,
            ..session.plan.clone()
        };
        let (begun, mut loaded_ns, mut is_cpu) = (Instant::now(), 0, true);
        let mut answers = 0;
        let hangs = loop {
            let measured = session.runner.point(&plan, Sweep::Single, 0, &mut session.progress)?;
            if measured.result.interrupted {
                return Ok(Some(SearchEnd::Interrupted));
            }
            let gone = session.server_end_reason().map(|how| format!("the server {how} in its warm-up"));
            if let Some(lost) = gone.or_else(|| session.runner.lost_client()) {
                return Ok(Some(SearchEnd::Lost(lost)));
            }
            let point = &measured.point;
            answers += point.outcomes.ok;
            let stall_us = point.value(names::STALL_MAX).unwrap_or(0.0);
            let hangs =
                answers > 0 && (point.outcomes.completed() == 0 || stall_us * 1e3 > HUNG * point.duration_ns as f64);
            loaded_ns += plan.warmup_ns + point.duration_ns;
            is_cpu &= cpu_us(point).is_some();
            let cost_us = if is_cpu { cpu_us(point) } else { point.value(names::RESPONSE_P50) };
            if !warm_up.continues(point.outcomes.completed(), cost_us, begun.elapsed().as_nanos() as u64) {
                break hangs;
            }
        };
        let what = if is_cpu { "CPU time" } else { "response time" };
        let took = format_nanos(loaded_ns as f64);
        let said = match warm_up.fell() {
            Some((first, last)) => {
                let (first, last) = (format_nanos(first * 1e3), format_nanos(last * 1e3));
                format!("{took}, {what} per request from {first} to {last}")
            }
            None => took,
        };
        session.progress.say(&format!("warm-up: {said}"));
        if self.is_slow_at_first[side].is_some() {
            return Ok(None);
        }
        let fell_far = warm_up.fell().is_some_and(|(first, last)| last < first * (1.0 - FALL_RATIO));
        self.is_slow_at_first[side] = Some(fell_far);
        let still_falls = warm_up.fell().is_some() && !warm_up.is_settled();
        let record = self.record_mut();
        record.server_facts.insert("warm-up".into(), said.clone());
        if hangs {
            let said = format!("{answers} requests were answered with {connections} connections, and then none");
            record.server_facts.insert(HUNG_IN_WARM_UP.into(), said);
        }
        if still_falls {
            record.doubts.push(DoubtKind::Drift.warning(
                format!("{what} per request still fell at the end of the warm-up ({said})"),
                "the first points may show too high a cost: warm the server up before, or raise --budget",
            ));
        }
        Ok(None)
    }
}
