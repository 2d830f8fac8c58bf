//! Shares and sums: a plan split over workers, and their results as one. Counts and histograms are added, so the totals
//! and percentiles are those of all requests together; a rate's window is the longest of the workers'.

use load::LoadResult;
use record::{Doubt, LoadPlan, Pace};

/// The share of a plan that falls to one of several workers. Rates and connections are split, seeds differ.
pub fn share(plan: &LoadPlan, index: usize, of: usize, threads: Option<usize>) -> LoadPlan {
    let (index, of) = (index as u64, of as u64);
    let mut share = plan.clone();
    share.connections = plan.connections / of + u64::from(index < plan.connections % of);
    if let Pace::Open { rate_per_sec, arrival } = plan.pace {
        share.pace = Pace::Open { rate_per_sec: rate_per_sec / of as f64, arrival };
    }
    share.connect_rate_per_sec = plan.connect_rate_per_sec / of as f64;
    share.seed = plan.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    share.threads = threads.unwrap_or(0);
    share.cpus = Vec::new();
    share
}

/// The results of several workers as one; `None` of none. The text before each doubt names its worker.
pub fn merge(results: Vec<(String, LoadResult)>) -> Option<LoadResult> {
    let of = results.len();
    let mut results = results.into_iter();
    let (name, mut all) = results.next()?;
    let mut doubts = named(&name, &all.doubts);
    let mut memory_bytes = all.engine.memory_bytes_per_connection * all.outcomes.connects as f64;
    let mut series = vec![std::mem::take(&mut all.series_csv)];
    for (name, one) in results {
        doubts.extend(named(&name, &one.doubts));
        memory_bytes += one.engine.memory_bytes_per_connection * one.outcomes.connects as f64;
        add(&mut all, &one);
        series.push(one.series_csv);
    }
    if all.outcomes.connects > 0 {
        all.engine.memory_bytes_per_connection = memory_bytes / all.outcomes.connects as f64;
    }
    all.series_csv = if of == 1 { series.remove(0) } else { add_series(&series) };
    all.first_errors.truncate(8);
    all.doubts = one_of_each(doubts);
    Some(all)
}

fn add(all: &mut LoadResult, one: &LoadResult) {
    all.window_ns = all.window_ns.max(one.window_ns);
    all.outcomes.add(&one.outcomes);
    for (mine, theirs) in [
        (&mut all.response, &one.response),
        (&mut all.service, &one.service),
        (&mut all.first_byte, &one.first_byte),
        (&mut all.lag, &one.lag),
        (&mut all.connection_wait, &one.connection_wait),
        (&mut all.own_lag, &one.own_lag),
        (&mut all.connect, &one.connect),
        (&mut all.unfinished_age, &one.unfinished_age),
    ] {
        mine.merge(theirs);
    }
    for (mine, theirs) in [
        (&mut all.never_sent, one.never_sent),
        (&mut all.body_bytes, one.body_bytes),
        (&mut all.received_bytes, one.received_bytes),
        (&mut all.sent_bytes, one.sent_bytes),
        (&mut all.completed_in_window, one.completed_in_window),
        (&mut all.ok_in_window, one.ok_in_window),
        (&mut all.received_in_window_bytes, one.received_in_window_bytes),
        (&mut all.stray_responses, one.stray_responses),
        (&mut all.engine.cpu_user_ns, one.engine.cpu_user_ns),
        (&mut all.engine.cpu_system_ns, one.engine.cpu_system_ns),
        (&mut all.engine.polling_ns, one.engine.polling_ns),
        (&mut all.engine.system_calls, one.engine.system_calls),
        (&mut all.engine.memory_bytes_fixed, one.engine.memory_bytes_fixed),
    ] {
        *mine = mine.saturating_add(theirs);
    }
    let (mine, theirs) = (&mut all.engine, &one.engine);
    mine.busiest_thread_ratio = mine.busiest_thread_ratio.max(theirs.busiest_thread_ratio);
    mine.run_queue_wait_ratio = match (mine.run_queue_wait_ratio, theirs.run_queue_wait_ratio) {
        (Some(left), Some(right)) => Some(left.max(right)),
        (left, right) => left.or(right),
    };
    mine.threads += theirs.threads;
    for (status, count) in &one.status_counts {
        let mine = all.status_counts.entry(*status).or_default();
        *mine = mine.saturating_add(*count);
    }
    all.first_errors.extend(one.first_errors.iter().cloned());
    all.interrupted |= one.interrupted;
}

fn named(name: &str, doubts: &[Doubt]) -> Vec<(String, Doubt)> {
    doubts.iter().map(|doubt| (name.to_string(), doubt.clone())).collect()
}

/// One doubt of each kind, the most severe, with how many workers have it.
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

/// Rows of the same time added up. Percentiles of a step cannot be added: their cells are empty.
fn add_series(of: &[String]) -> String {
    let mut rows: Vec<(String, [f64; 4], f64)> = Vec::new();
    for text in of {
        for (place, row) in text.lines().skip(1).enumerate() {
            let cells: Vec<&str> = row.split(',').collect();
            let &[time, completed, failed, received, _, _, lag, connections] = cells.as_slice() else { continue };
            let number = |cell: &str| cell.parse::<f64>().ok().filter(|value| value.is_finite()).unwrap_or(0.0);
            let counts = [number(completed), number(failed), number(received), number(connections)];
            if place == rows.len() && time.parse::<f64>().is_ok() {
                rows.push((time.to_string(), counts, number(lag)));
            } else if let Some((_, sums, longest)) = rows.get_mut(place) {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                *longest = longest.max(number(lag));
            }
        }
    }
    let mut csv = String::from(load::SERIES_HEADER);
    for (time, [completed, failed, received, connections], lag) in rows {
        csv.push_str(&format!("{time},{completed},{failed},{received},,,{lag:.1},{connections}\n"));
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::scenario::{Arrival, RequestTarget};

    fn plan() -> LoadPlan {
        LoadPlan {
            addresses: vec!["127.0.0.1:80".parse().unwrap()],
            host: "h".into(),
            method: "GET".into(),
            targets: vec![RequestTarget { path: "/".into() }],
            headers: Vec::new(),
            body: b"\0body".to_vec(),
            pace: Pace::Open { rate_per_sec: 1000.0, arrival: Arrival::Poisson },
            connections: 11,
            requests_per_connection: 0,
            threads: 1,
            cpus: vec![0],
            warmup_ns: 0,
            duration_ns: 100_000_000,
            timeout_ns: 1_000_000_000,
            connect_timeout_ns: 1_000_000_000,
            connect_rate_per_sec: 0.0,
            source_addresses: Vec::new(),
            seed: 1,
            precise: false,
            workload: Default::default(),
            clients: Default::default(),
        }
    }

    #[test]
    fn shares_add_up_to_the_plan_and_no_two_send_the_same_schedule() {
        let shares: Vec<LoadPlan> = (0..4).map(|index| share(&plan(), index, 4, None)).collect();
        assert_eq!(shares.iter().map(|share| share.connections).sum::<u64>(), 11);
        let rate: f64 = shares
            .iter()
            .map(|share| match share.pace {
                Pace::Open { rate_per_sec, .. } => rate_per_sec,
                _ => 0.0,
            })
            .sum();
        assert!((rate - 1000.0).abs() < 1e-6);
        let seeds: std::collections::HashSet<u64> = shares.iter().map(|share| share.seed).collect();
        assert_eq!(seeds.len(), 4);
    }

    #[test]
    fn a_plan_comes_through_the_protocol_with_its_body_and_a_rate_over_its_cap_is_refused() {
        use crate::worker::protocol::{Lines, PlanMessage, ToWorker, line};
        let through = |cap| {
            let text = line(&ToWorker::Plan(Box::new(PlanMessage::new(plan(), cap))));
            match Lines::new(text.as_bytes()).next::<ToWorker>().unwrap() {
                Some(ToWorker::Plan(message)) => message.into_plan(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(through(Some(1000.0)).unwrap(), plan());
        assert!(through(Some(999.0)).unwrap_err().to_string().contains("cap"));
    }

    #[test]
    fn merged_histograms_equal_those_of_all_samples_together() {
        let result = |values: &[u64]| {
            let mut one = empty();
            for value in values {
                one.response.record_ns(*value);
            }
            one.outcomes.sent = values.len() as u64;
            one.outcomes.ok = values.len() as u64;
            one
        };
        let (left, right) = ([5_000, 70_000, 900], [1_000_000, 5_000]);
        let both: Vec<u64> = left.iter().chain(&right).copied().collect();
        let merged = merge(vec![("client 1".into(), result(&left)), ("client 2".into(), result(&right))]).unwrap();
        assert_eq!(merged.response, result(&both).response);
        assert_eq!(merged.outcomes.ok, 5);
        assert!(merge(Vec::new()).is_none());
    }

    #[test]
    fn a_result_comes_through_the_protocol_unchanged() {
        use crate::worker::protocol::{FromWorker, Lines, WireResult, line};
        let mut sent = empty();
        (1..2000u64).for_each(|value| sent.response.record_ns(value * 7919));
        sent.status_counts.insert(200, 1999);
        sent.engine.run_queue_wait_ratio = Some(0.25);
        sent.first_errors.push("connection reset".into());
        let text = line(&FromWorker::Result(Box::new(WireResult::new(&sent, 0).unwrap())));
        let Some(FromWorker::Result(wire)) = Lines::new(text.as_bytes()).next::<FromWorker>().unwrap() else {
            panic!()
        };
        let came = wire.into_result().unwrap();
        assert_eq!(came.response.buckets(), sent.response.buckets());
        assert_eq!(line(&FromWorker::Result(Box::new(WireResult::new(&came, 0).unwrap()))), text);
    }

    fn empty() -> LoadResult {
        LoadResult {
            started_unix_ms: 0,
            window_ns: 1_000_000_000,
            warmup_ns: 0,
            outcomes: Default::default(),
            response: Default::default(),
            service: Default::default(),
            first_byte: Default::default(),
            lag: Default::default(),
            connection_wait: Default::default(),
            own_lag: Default::default(),
            connect: Default::default(),
            unfinished_age: Default::default(),
            never_sent: 0,
            body_bytes: 0,
            received_bytes: 0,
            sent_bytes: 0,
            completed_in_window: 0,
            ok_in_window: 0,
            received_in_window_bytes: 0,
            stray_responses: 0,
            series_csv: String::new(),
            engine: Default::default(),
            status_counts: Default::default(),
            first_errors: Vec::new(),
            bits_per_sec: Vec::new(),
            tls: None,
            interrupted: false,
            workload: Default::default(),
            doubts: Vec::new(),
        }
    }
}
