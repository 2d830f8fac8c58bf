//! The output of a watch: a screen that is redrawn on a terminal; elsewhere plain lines with the tables at the end,
//! or JSON lines.

use super::emit;
use super::keys::KeyListener;
use crate::progress::terminal_size;
use crate::signals::Stop;
use anyhow::Result;
use record::Doubt;
use record::watch::{Headroom, Line, Rates, Reading, Taken};
use report::watch::{Screen, screen};
use std::io::IsTerminal;

pub struct View {
    is_json: bool,
    is_terminal: bool,
    earlier: Option<Reading>,
    /// Reads single keys until dropped.
    _keys: Option<KeyListener>,
}

impl View {
    pub fn new(is_json: bool, stop: &Stop) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let keys = if is_terminal && !is_json { KeyListener::listen(stop) } else { None };
        View { is_json, is_terminal, earlier: None, _keys: keys }
    }

    /// Shows a reading; after the last one, all tables.
    pub fn show(&mut self, frame: &Screen<'_>, is_last: bool) -> Result<()> {
        if self.is_json {
            return emit(&line_of(frame.now, frame.rates, frame.headroom, frame.doubts.to_vec()).text());
        }
        if self.is_terminal {
            let end = if is_last { "\n" } else { "" };
            let mut earlier = self.earlier.replace(frame.now.clone()).unwrap_or_else(|| frame.first.clone());
            // Counters of the machine that are read less often have no rate for the last interval.
            if earlier.system.at_ns == frame.now.system.at_ns {
                earlier.system = frame.first.system.clone();
            }
            let shown = screen::live(frame, &earlier);
            return emit(&(screen::drawn(&shown, terminal_size(std::io::stdout())) + end));
        }
        if is_last {
            return emit(&screen::tables(frame));
        }
        emit(&screen::line(frame))
    }
}

pub fn line_of(reading: &Reading, rates: &Rates, headroom: &Headroom, doubts: Vec<Doubt>) -> Line {
    let headroom = Some(headroom.clone());
    Line::Reading(Box::new(Taken { totals: reading.clone(), rates: rates.clone(), headroom, doubts }))
}
