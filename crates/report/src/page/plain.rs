//! The page of a run without zones: findings, charts and tables (`plain.html`).

use super::frame::Frame;
use super::{DrawnFigure, Figure, draw};
use crate::doubt;
use crate::text::table::Titled;
use record::owner::{ELSEWHERE, Life};
use record::{RunDir, Status};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Plain {
    #[serde(flatten)]
    frame: Frame,
    doubts: Vec<doubt::Row>,
    figures_title: &'static str,
    figures: Vec<DrawnFigure>,
    tables: Vec<Titled>,
}

/// Words for a run that did not complete, and for how its data were made: `simulated`, `read`.
pub(crate) struct Ended(pub &'static str, pub &'static str);

impl Plain {
    pub(crate) fn of(
        run: &RunDir,
        Ended(early, what): Ended,
        (headline, sentences): (String, Vec<String>),
        (figures_title, figures): (&'static str, Vec<Figure>),
        tables: Vec<Titled>,
    ) -> Plain {
        let status = match run.record.status {
            Status::Complete => "complete".into(),
            Status::Interrupted => early.into(),
            Status::Running => match run.writer_life() {
                Life::Alive => "still running".into(),
                Life::Ended => format!("its process was killed; the part {what} by then is shown"),
                Life::Elsewhere => format!("not finished; {ELSEWHERE}; the part {what} by then is shown"),
            },
        };
        let frame = Frame::of(run, status, &headline, sentences);
        let (doubts, figures) = (doubt::rows(&run.record.doubts), draw(figures, &mut 0));
        Plain { frame, doubts, figures_title, figures, tables }
    }
}
