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
