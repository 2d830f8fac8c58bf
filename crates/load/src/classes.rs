//! Results by class of request. A request in flight when the window begins counts when it ends.

use crate::tally::WindowRelation;
use record::workload::{ClassResult, DocumentKind, Grouping};
use record::{Latency, LoadPlan};
use serde::{Deserialize, Serialize};

/// The counts of one class, for requests of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Requests sent in the window, or in flight when it began.
    pub requests: u64,
    /// Complete responses with status 2xx or 3xx.
    pub ok: u64,
    /// Failed requests: errors and other statuses.
    pub failed: u64,
    /// Requests in flight at the end of the run.
    pub unfinished: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Response times of the complete responses.
    pub response: Latency,
}

record::adds_up!(ClassCounts { requests, ok, failed, unfinished, body_bytes, response });

#[derive(Debug, Clone, Copy, Default)]
struct ClassRequest {
    class: u8,
    body_bytes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Classes {
    classes: Vec<ClassCounts>,
    under_way: Vec<ClassRequest>,
}

impl Classes {
    pub(crate) fn new(plan: &LoadPlan, slots: usize) -> Option<Box<Self>> {
        let workload = &plan.workload;
        if workload.classes.is_empty() && workload.trace.is_none() {
            return None;
        }
        let classes = vec![ClassCounts::default(); workload.classes.len().max(1)];
        Some(Box::new(Classes { classes, under_way: vec![ClassRequest::default(); slots] }))
    }

    fn class_of(&mut self, slot: usize) -> &mut ClassCounts {
        let class = usize::from(self.under_way[slot].class).min(self.classes.len() - 1);
        &mut self.classes[class]
    }

    #[inline]
    pub(crate) fn sent(&mut self, slot: usize, class: u8, is_counted: bool) {
        self.under_way[slot] = ClassRequest { class, body_bytes: 0 };
        self.class_of(slot).requests += u64::from(is_counted);
    }

    #[inline]
    pub(crate) fn received(&mut self, slot: usize, body_bytes: usize) {
        self.under_way[slot].body_bytes += body_bytes as u64;
    }

    /// Counts a complete response; returns the bytes of its body.
    pub(crate) fn completed(&mut self, slot: usize, is_ok: bool, response_ns: u64, belongs: WindowRelation) -> u64 {
        let body_bytes = self.under_way[slot].body_bytes;
        if let Some(class) = self.ended(slot, belongs) {
            class.ok += u64::from(is_ok);
            class.failed += u64::from(!is_ok);
            class.body_bytes += body_bytes;
            class.response.record_ns(response_ns);
        }
        body_bytes
    }

    pub(crate) fn failed(&mut self, slot: usize, belongs: WindowRelation) {
        let body_bytes = self.under_way[slot].body_bytes;
        if let Some(class) = self.ended(slot, belongs) {
            class.failed += 1;
            class.body_bytes += body_bytes;
        }
    }

    pub(crate) fn unfinished(&mut self, slot: usize, belongs: WindowRelation) {
        if let Some(class) = self.ended(slot, belongs) {
            class.unfinished += 1;
        }
    }

    fn ended(&mut self, slot: usize, belongs: WindowRelation) -> Option<&mut ClassCounts> {
        let class = self.class_of(slot);
        class.requests += u64::from(belongs == WindowRelation::CarriedIn);
        belongs.is_counted().then_some(class)
    }

    pub(crate) fn into_counts(self) -> Vec<ClassCounts> {
        self.classes
    }
}

pub(crate) fn add(mine: &mut Vec<ClassCounts>, other: &[ClassCounts]) {
    mine.resize_with(mine.len().max(other.len()), ClassCounts::default);
    for (mine, theirs) in mine.iter_mut().zip(other) {
        mine.add(theirs);
    }
}

pub(crate) fn results(plan: &LoadPlan, counts: &[ClassCounts]) -> Vec<ClassResult> {
    let workload = &plan.workload;
    let asked: Vec<f64> = (0..workload.classes.len())
        .map(|class| {
            let of_class = workload.weights.iter().zip(&workload.class_of).filter(|(_, of)| usize::from(**of) == class);
            of_class.map(|(weight, _)| weight).sum()
        })
        .collect();
    let sum: f64 = asked.iter().sum();
    let share = |class: usize| (sum > 0.0).then(|| asked[class] / sum);
    let mut results: Vec<ClassResult> = workload
        .classes
        .iter()
        .zip(counts)
        .enumerate()
        .map(|(class, (named, tally))| result(Grouping::Size, &named.label, share(class), tally))
        .collect();
    if workload.has_dynamic() {
        for (kind, label) in [(DocumentKind::Static, "static"), (DocumentKind::Dynamic, "dynamic")] {
            let mut whole = ClassCounts::default();
            let mut ratio = None;
            let of_kind = workload.classes.iter().zip(counts).enumerate().filter(|(_, (named, _))| named.kind == kind);
            for (class, (_, counts)) in of_kind {
                whole.add(counts);
                ratio = share(class).map(|more| more + ratio.unwrap_or(0.0));
            }
            results.push(result(Grouping::Kind, label, ratio, &whole));
        }
    }
    results
}

fn result(grouping: Grouping, label: &str, asked_ratio: Option<f64>, tally: &ClassCounts) -> ClassResult {
    ClassResult {
        asked_ratio,
        requests: tally.requests,
        ok: tally.ok,
        failed: tally.failed,
        unfinished: tally.unfinished,
        body_bytes: tally.body_bytes,
        ..ClassResult::new(grouping, label, &tally.response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::scenario::RequestTarget;
    use record::workload::RequestClass;

    #[test]
    fn kinds_are_the_sums_of_their_classes() {
        let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        plan.targets = ["/a", "/b", "/c"].map(|path| RequestTarget { path: path.into() }).into();
        let class = |label: &str, kind| RequestClass { label: label.into(), kind, largest_bytes: None };
        plan.workload.classes = vec![
            class("small", DocumentKind::Static),
            class("large", DocumentKind::Static),
            class("dynamic", DocumentKind::Dynamic),
        ];
        plan.workload.weights = vec![3.0, 1.0, 4.0];
        plan.workload.class_of = vec![0, 1, 2];
        let mut classes = Classes::new(&plan, 3).unwrap();
        for slot in 0..3 {
            classes.sent(slot, slot as u8, true);
            classes.received(slot, 10);
            classes.completed(slot, slot != 2, 1000 * (slot as u64 + 1), WindowRelation::Sent);
        }
        classes.sent(0, 0, false);
        classes.unfinished(0, WindowRelation::CarriedIn);
        let results = results(&plan, &classes.into_counts());
        let labels: Vec<&str> = results.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["small", "large", "dynamic", "static", "dynamic"]);
        assert_eq!((results[3].requests, results[3].ok, results[3].unfinished, results[3].body_bytes), (3, 2, 1, 20));
        assert_eq!(results[3].asked_ratio, Some(0.5));
        assert_eq!((results[4].requests, results[4].failed), (1, 1));
        assert_eq!(results[0].asked_ratio, Some(0.375));
    }
}
