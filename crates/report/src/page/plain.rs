//! The page of a run without zones: findings, charts and tables (`plain.html`).

use super::frame::PageFrame;
use super::{CaptionedChart, DrawnFigure, draw};
use crate::doubt;
use crate::text::table::Titled;
use record::owner::{ELSEWHERE, OwnerState};
use record::{RunDir, Status};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct PlainPage {
    #[serde(flatten)]
    frame: PageFrame,
    doubts: Vec<doubt::DoubtRow>,
    figures_title: &'static str,
    figures: Vec<DrawnFigure>,
    tables: Vec<Titled>,
}

/// Words for a run that did not complete, and for how its data were obtained: `simulated`, `read`.
pub(crate) struct RunWords(pub &'static str, pub &'static str);

impl PlainPage {
    pub(crate) fn new(
        run: &RunDir,
        RunWords(early, what): RunWords,
        (headline, sentences): (String, Vec<String>),
        (figures_title, figures): (&'static str, Vec<CaptionedChart>),
        tables: Vec<Titled>,
    ) -> PlainPage {
        let status = match run.record.status {
            Status::Complete => "complete".into(),
            Status::Interrupted => early.into(),
            Status::Running => match run.writer_life() {
                OwnerState::Alive => "still running".into(),
                OwnerState::Ended => format!("its process was killed; shown is the part {what} by then"),
                OwnerState::Elsewhere => format!("not finished; {ELSEWHERE}; shown is the part {what} by then"),
            },
        };
        let frame = PageFrame::new(run, status, &headline, sentences);
        let (doubts, figures) = (doubt::rows(&run.record.doubts), draw(figures, &mut 0));
        PlainPage { frame, doubts, figures_title, figures, tables }
    }
}
