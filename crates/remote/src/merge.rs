use load::{LoadResult, SeriesSum};
use record::Doubt;

/// The sum of the results so far. Results are merged one by one, so that a thousand of them need the memory of two.
#[derive(Debug, Default)]
pub struct Sum {
    all: Option<LoadResult>,
    series: SeriesSum,
    doubts: Vec<(String, Doubt)>,
    count: usize,
}

impl Sum {
    pub fn add(&mut self, name: &str, mut result: LoadResult, more: Option<Doubt>) {
        self.count += 1;
        result.counts.slowest.sent_by(name);
        self.doubts.extend(result.doubts.iter().cloned().chain(more).map(|doubt| (name.to_string(), doubt)));
        self.series.add(&result.series_csv);
        match &mut self.all {
            Some(all) => all.merge(result),
            None => self.all = Some(result),
        }
    }

    /// The sum, or `None` without results. Each doubt names its worker.
    pub fn finish(self) -> Option<LoadResult> {
        let mut all = self.all?;
        if self.count > 1 {
            all.series_csv = self.series.csv();
        }
        all.doubts = one_of_each(self.doubts);
        Some(all)
    }
}

/// Keeps one doubt of each kind, the most severe, with the number of workers that have it.
fn one_of_each(doubts: Vec<(String, Doubt)>) -> Vec<Doubt> {
    let mut kept: Vec<(usize, String, Doubt)> = Vec::new();
    for (name, doubt) in doubts {
        match kept.iter_mut().find(|(_, _, known)| known.kind == doubt.kind) {
            Some((count, first, known)) => {
                *count += usize::from(*first != name);
                if doubt.severity > known.severity {
                    (*first, *known) = (name, doubt);
                }
            }
            None => kept.push((1, name, doubt)),
        }
    }
    let words = |(count, name, mut doubt): (usize, String, Doubt)| {
        let others = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
        doubt.what = format!("{name}{others}: {}", doubt.what);
        doubt
    };
    kept.into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::protocol::Protocol;
    use record::{Arrival, LoadPlan, Pace};

    fn plan() -> LoadPlan {
        LoadPlan {
            body: b"\0body".to_vec(),
            pace: Pace::Open { rate_per_sec: 1000.0, arrival: Arrival::Poisson },
            connections: 11,
            ..LoadPlan::simple("127.0.0.1:80".parse().unwrap())
        }
    }

    #[test]
    fn the_protocol_carries_a_plan_with_its_body_and_password() {
        use crate::protocol::{LineReader, PlanMessage, ToWorker, line};
        let redis = record::protocol::RedisPlan { password: "secret".into(), pipeline: 3, ..Default::default() };
        let of_redis = LoadPlan { protocol: Protocol::Redis(redis), targets: Vec::new(), ..plan() };
        for plan in [plan(), of_redis] {
            let text = line(&ToWorker::Plan(Box::new(PlanMessage::new(plan.clone()))));
            match LineReader::new(text.as_bytes()).next::<ToWorker>().unwrap() {
                Some(ToWorker::Plan(message)) => assert_eq!(message.into_plan(), plan),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn merged_histograms_equal_the_histogram_of_all_samples() {
        let (left, right) = ([5_000, 70_000, 900], [1_000_000, 5_000]);
        let both: Vec<u64> = left.iter().chain(&right).copied().collect();
        let mut sum = Sum::default();
        sum.add("client 1", of_requests(&left), None);
        sum.add("client 2", of_requests(&right), None);
        let merged = sum.finish().unwrap();
        assert_eq!(merged.counts.times, of_requests(&both).counts.times);
        assert_eq!(merged.counts.outcomes.ok, 5);
        assert!(Sum::default().finish().is_none());
    }

    fn of_requests(values: &[u64]) -> LoadResult {
        let mut one = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        for value in values {
            let times = &mut one.counts.times;
            for latency in [&mut times.response, &mut times.service, &mut times.first_byte] {
                latency.record_ns(*value);
            }
            // Each request counts as if it was sampled after it had waited a tenth of its time.
            times.sampled.record_ns(*value);
            times.reap.record_ns(value / 10);
            times.arrived.record_ns(value - value / 10);
        }
        one.counts.outcomes.sent = values.len() as u64;
        one.counts.outcomes.ok = values.len() as u64;
        one
    }
}
