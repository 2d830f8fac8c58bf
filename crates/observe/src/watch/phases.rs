use super::classes::{SIZE_CLASSES, SizeClasses};
use super::estimate::RatioEstimator;
use crate::bpf::types::watch::{PhaseRow, RequestRecord};
use record::watch::{ClassTotals, Mean, PHASES, PhaseTotals};

/// `phase` of a record whose response is being written or has been: `enum phase` of `bpf/watch.h`.
const PHASE_LOG: u8 = 3;

#[derive(Debug)]
pub struct PhaseSums {
    classes: Vec<ClassSums>,
    earlier: Vec<PhaseRow>,
    /// Requests that began in a window and were not answered when it was closed. The means do not include them, so
    /// they are too low if there are many.
    pub late: u64,
}

#[derive(Debug, Default)]
struct ClassSums {
    elapsed: [RatioEstimator; PHASES],
    cpu: [RatioEstimator; PHASES],
    sends: RatioEstimator,
    disk_bytes: RatioEstimator,
    disk_reads: RatioEstimator,
    split: u64,
    windows: u64,
}

impl PhaseSums {
    pub fn new(classes: usize) -> Self {
        PhaseSums {
            classes: (0..classes).map(|_| ClassSums::default()).collect(),
            earlier: vec![PhaseRow::default(); SIZE_CLASSES],
            late: 0,
        }
    }

    /// Restarts the sums: the current contents of the rows are ignored.
    pub fn restart(&mut self, rows: impl Iterator<Item = PhaseRow>) {
        *self = PhaseSums { earlier: sum_rows(rows), ..PhaseSums::new(self.classes.len()) };
    }

    /// Adds a window: the current rows of all CPUs, and the answered requests whose connection had no further event.
    pub fn add_window(
        &mut self,
        rows: impl Iterator<Item = PhaseRow>,
        unfinished: impl Iterator<Item = RequestRecord>,
        window: u32,
        sizes: &SizeClasses,
    ) {
        let grown = self.take_window(rows, unfinished, window, sizes);
        self.add_rows(&grown);
    }

    /// The rows of the window, without adding them.
    pub fn take_window(
        &mut self,
        rows: impl Iterator<Item = PhaseRow>,
        unfinished: impl Iterator<Item = RequestRecord>,
        window: u32,
        sizes: &SizeClasses,
    ) -> Vec<PhaseRow> {
        let now = sum_rows(rows);
        let mut grown: Vec<PhaseRow> =
            now.iter().zip(&self.earlier).map(|(now, earlier)| since(now, earlier)).collect();
        self.earlier = now;
        for record in unfinished {
            if record.window != window || record.bytes_in == 0 || record.phase == 0 {
                continue;
            }
            if record.phase == PHASE_LOG && record.sends > 0 {
                add_record(&mut grown[sizes.index_of(record.bytes_sent)], &record);
            } else {
                self.late += 1;
            }
        }
        grown
    }

    pub fn add_rows(&mut self, grown: &[PhaseRow]) {
        for (sums, row) in self.classes.iter_mut().zip(grown) {
            sums.add(row);
        }
    }

    /// The phases by class. `share`: the share of the run in windows. `exact`: the classes as counted.
    pub fn totals(&self, share: f64, exact: &[ClassTotals]) -> Vec<PhaseTotals> {
        self.classes.iter().zip(exact).map(|(sums, class)| sums.totals(share, class)).collect()
    }
}

impl ClassSums {
    fn add(&mut self, row: &PhaseRow) {
        if row.requests == 0 {
            return;
        }
        self.windows += 1;
        self.split += row.split;
        self.sends.add(row.requests, row.sends as f64);
        self.disk_bytes.add(row.requests, row.disk_bytes as f64);
        self.disk_reads.add(row.requests, row.disk_reads as f64);
        for phase in 0..PHASES {
            self.elapsed[phase].add(row.requests, row.elapsed_ns[phase] as f64);
            self.cpu[phase].add(row.requests, row.cpu_ns[phase] as f64);
        }
    }

    fn totals(&self, share: f64, exact: &ClassTotals) -> PhaseTotals {
        // Windows give the shares of the phases; the total is known exactly.
        let timed: f64 = self.cpu.iter().map(RatioEstimator::total).sum();
        let timed_mean = timed / self.sends.requests().max(1) as f64;
        let exact_mean = exact.cpu_ns as f64 / exact.requests.max(1) as f64;
        let scale = if timed_mean > 0.0 && exact_mean > 0.0 { exact_mean / timed_mean } else { 1.0 };
        let scaled = |estimate: Mean| Mean {
            mean: estimate.mean * scale,
            half_width: estimate.half_width.map(|half| half * scale),
            ..estimate
        };
        PhaseTotals {
            requests: self.sends.requests(),
            windows: self.windows,
            split: self.split,
            sends: self.sends.estimate(share),
            disk_bytes: self.disk_bytes.estimate(share),
            disk_reads: self.disk_reads.estimate(share),
            elapsed_ns: std::array::from_fn(|phase| self.elapsed[phase].estimate(share)),
            cpu_ns: std::array::from_fn(|phase| self.cpu[phase].estimate(share).map(scaled)),
        }
    }
}

fn sum_rows(rows: impl Iterator<Item = PhaseRow>) -> Vec<PhaseRow> {
    let mut sums: Vec<PhaseRow> = vec![PhaseRow::default(); SIZE_CLASSES];
    rows.enumerate().for_each(|(index, row)| sums[index % SIZE_CLASSES].add(&row));
    sums
}

fn since(now: &PhaseRow, earlier: &PhaseRow) -> PhaseRow {
    // CPU time may be negative, because stolen time is noticed late.
    let cpu_ns = std::array::from_fn(|phase| now.cpu_ns[phase].wrapping_sub(earlier.cpu_ns[phase]));
    PhaseRow { cpu_ns, ..now.since(earlier) }
}

fn add_record(row: &mut PhaseRow, record: &RequestRecord) {
    let end_ns = if record.end_ns == 0 { record.last_send_ns } else { record.end_ns };
    let elapsed = [
        record.parsed_ns.saturating_sub(record.begun_ns),
        record.last_send_ns.saturating_sub(record.parsed_ns),
        end_ns.saturating_sub(record.last_send_ns),
    ];
    row.requests += 1;
    row.sends += u64::from(record.sends);
    row.disk_bytes += record.disk_bytes;
    row.disk_reads += u64::from(record.disk_reads);
    row.split += u64::from(record.is_split);
    for (phase, (elapsed_ns, cpu_ns)) in elapsed.into_iter().zip(record.phase_cpu_ns).enumerate() {
        row.elapsed_ns[phase] += elapsed_ns;
        row.cpu_ns[phase] += cpu_ns;
    }
}
