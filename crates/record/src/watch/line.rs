use super::{Headroom, Mode, Rates, Reading, SizeClass};
use crate::Doubt;
use serde::{Deserialize, Serialize};

/// One JSON object per line, identified by `kind`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// First line of a recording.
    Watch(Beginning),
    /// One reading of the watch's counters.
    Reading(Box<Taken>),
}

impl Line {
    /// Reads a line. The code is here and not at the callers, because it takes half a megabyte.
    ///
    /// # Errors
    /// The text is not a line of a watch, or a part of it has another type.
    pub fn parse(text: &[u8]) -> Result<Line, serde_json::Error> {
        serde_json::from_slice(text)
    }
}

/// The first line of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Beginning {
    /// Version of the format of `run.json` that the writer uses.
    pub schema: u32,
    /// The recorded watch.
    #[serde(flatten)]
    pub watching: Watching,
}

/// Options of a watch, also part of `run.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Watching {
    /// The server's port.
    pub port: u16,
    /// The level of detail.
    pub mode: Mode,
    /// Size classes of the response.
    pub classes: Vec<SizeClass>,
    /// The highest average cost to the server, as a share of its CPU time.
    pub overhead_limit_ratio: f64,
}

/// A reading as it is printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Taken {
    /// Counts since the watch began.
    pub totals: Reading,
    /// Rates since the previous reading.
    pub rates: Rates,
    /// Headroom, estimated from the readings so far: how much more load the server can take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// Reasons to doubt the reading.
    pub doubts: Vec<Doubt>,
}

impl Line {
    /// The text of the line with its line end; members are in alphabetical order.
    pub fn text(&self) -> String {
        let value = serde_json::to_value(self).expect("a line has only string keys");
        format!("{value}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    fn read(text: &str) -> Taken {
        match serde_json::from_str(text).unwrap() {
            Line::Reading(taken) => *taken,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn uncounted_values_stay_absent() {
        let taken = read(r#"{"kind":"reading","totals":{"elapsed_ns":5,"connections":{},"cpu":{},"cost":{}}}"#);
        assert_eq!(taken.totals, Reading { elapsed_ns: 5, cpu: Some(CpuTotals::default()), ..Reading::default() });
        let taken = read(r#"{"kind":"reading","totals":{"connections":{"accepted":3},"processes":[{"pid":7}]}}"#);
        assert_eq!(
            taken.totals.connections.counted,
            Counts::from_fn(|counter| (counter == Counter::Accepted).then_some(3))
        );
        assert_eq!((taken.totals.processes[0].pid, taken.totals.processes[0].counted), (7, None));
    }

    #[test]
    fn counters_keep_the_names_and_places_that_runs_on_disk_have() {
        let kept = r#"{"kind":"reading","totals":{"elapsed_ns":5,"connections":{
            "states":{"listen":1},"accepted":10,"closed":9,"aborted":8,"retransmits":null,"resets_sent":6,
            "resets_received":5,"closed_bytes_received":4,"closed_bytes_acked":3,
            "closed_data_segments_in":2,"closed_data_segments_out":1,"connects":10,"connect_elapsed_ns":7},
            "losses":{"displaced_open":11,"displaced_answered":12,"unanswered":13}}}"#;
        let written: serde_json::Value = serde_json::from_str(&Line::Reading(Box::new(read(kept))).text()).unwrap();
        let kept: serde_json::Value = serde_json::from_str(kept).unwrap();
        for object in ["connections", "losses"] {
            for (name, number) in kept["totals"][object].as_object().unwrap() {
                assert_eq!(&written["totals"][object][name], number, "{object}.{name}");
            }
        }
        assert_eq!(read(&kept.to_string()).totals.count(Counter::Retransmits), None);
        assert_eq!(read(&kept.to_string()).totals.connections.connects.unwrap().connect_elapsed_ns, 7);
    }

    #[test]
    fn a_reading_is_read_back_as_it_was_written() {
        let mut class = ClassTotals { requests: 3, cpu_ns: -1, timed: 3, ..ClassTotals::default() };
        class.elapsed.0[4] = 3;
        let means = [Some(Mean { mean: 2.5, half_width: Some(0.5), requests: 3, windows: 5 }), None, None];
        let phases = PhaseTotals { requests: 3, elapsed_ns: means, ..PhaseTotals::default() };
        let mut totals = Reading {
            at_ns: 7,
            classes: vec![class],
            phases: vec![phases.clone()],
            pack: Some(PackTotals { by_events: vec![phases], ..PackTotals::default() }),
            open: Some(OpenTotals { waiting: 1, sending: 0, longest: vec![OpenRequest::default()] }),
            traffic: Some(Traffic { tls: 2, ..Traffic::default() }),
            cpu: Some(CpuTotals { group_ns: 9, charged: Some(ChargedCpu::default()), ..CpuTotals::default() }),
            losses: Counts::from_fn(|counter| counter.is_loss().then_some(0)),
            ..Reading::default()
        };
        totals.cost.added = Some(AddedCost { added_ns: 0.5, ..AddedCost::default() });
        totals.connections.states.insert("established".into(), 4);
        let is_there = |counter: &Counter| !counter.is_loss() && *counter != Counter::Retransmits;
        totals.connections.counted = Counts::from_fn(|counter| is_there(&counter).then_some(5));
        totals.connections.connects = Some(ConnectTotals { connects: 5, ..ConnectTotals::default() });
        totals.processes.push(ProcessTotals { pid: 1, counted: Some(ProcessCounts::default()), ..Default::default() });
        totals.system.read_at_ns.insert("cpu".into(), 3);
        let rates = Rates::between(&Reading::default(), &totals);
        let line =
            Line::Reading(Box::new(Taken { totals, rates, headroom: Some(Headroom::default()), doubts: Vec::new() }));
        let Line::Reading(written) = &line else { unreachable!() };
        assert_eq!(read(&line.text()), **written);
    }
}
