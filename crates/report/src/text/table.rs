//! Aligned columns.

use super::{escaped, wrap};
use serde::Serialize;

/// A table with a header; the first `left` columns are aligned left, the others right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
}

impl Table {
    pub fn new(header: &[&str], left: usize) -> Self {
        Table { rows: vec![header.iter().map(|cell| cell.to_string()).collect()], left }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    fn width(&self, column: usize, from: usize) -> usize {
        let cells = self.rows[from..].iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// The columns with content, and the number of them aligned left.
    fn shown(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        (0..columns).filter(|column| *column < self.left || self.width(*column, 1) > 0).collect()
    }

    /// A Markdown table and an empty line; empty without rows.
    pub fn markdown(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let shown = self.shown();
        let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        let cell = |row: &[String], column: usize| row.get(column).map_or(String::new(), |cell| escaped(cell));
        let mut lines = self.rows.iter().map(|row| line(&mut shown.iter().map(|column| cell(row, *column))));
        let header = lines.next().unwrap_or_default();
        let sides = shown.iter().map(|column| if *column < self.left { ":--" } else { "--:" }.to_string());
        let marks = line(&mut sides.into_iter());
        header + &marks + &lines.collect::<String>() + "\n"
    }

    /// Lines indented by two spaces, columns two spaces apart; columns without content are left out.
    pub fn lines(&self) -> String {
        let shown = self.shown();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::from(" ");
            for column in &shown {
                let cell = row.get(*column).map_or("", String::as_str);
                let pad = " ".repeat(self.width(*column, 0) - cell.chars().count());
                line.push(' ');
                if *column < self.left {
                    line.push_str(&format!("{cell}{pad}"));
                } else {
                    line.push_str(&format!("{pad}{cell}"));
                }
                line.push(' ');
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A table with title and note.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Titled {
    /// Title.
    pub title: String,
    /// How the numbers were computed.
    pub note: String,
    /// Name and unit of each column after the first.
    pub columns: Vec<(String, String)>,
    /// Label and cells.
    pub rows: Vec<(String, Vec<String>)>,
}

impl Titled {
    /// Columns from constant names and units.
    pub fn columns(columns: &[(&str, &str)]) -> Vec<(String, String)> {
        columns.iter().map(|(name, unit)| (name.to_string(), unit.to_string())).collect()
    }

    /// The table for a terminal.
    pub fn text(&self, has_units: bool) -> String {
        let header: Vec<&str> = std::iter::once("").chain(self.columns.iter().map(|(name, _)| name.as_str())).collect();
        let mut lines = Table::new(&header, 1);
        let units = (String::new(), self.columns.iter().map(|(_, unit)| unit.clone()).collect());
        for (label, cells) in has_units.then_some(&units).into_iter().chain(&self.rows) {
            lines.row(std::iter::once(label).chain(cells).cloned().collect());
        }
        format!("{}\n{}{}", self.title, lines.lines(), wrap(&self.note, "  ", "  "))
    }
}
