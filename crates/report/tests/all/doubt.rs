//! A doubt looks the same in every output.

use crate::fixture;
use analyze::watch::{self, Recording};
use analyze::zones;
use record::profile::{ExactProfile, Profile};
use record::watch::{Headroom, Rates, Reading, Watching};
use record::{Doubt, DoubtKind, RunDir, Severity};
use report::watch::{Screen, screen};
use report::{doubt, page, profile, run, text};
use std::sync::LazyLock;

fn doubts() -> [Doubt; 3] {
    [Severity::Note, Severity::Warning, Severity::Invalid].map(|severity| {
        let what = format!("a {severity:?} of somebody's \u{1b}[31m words, {}", "which are long ".repeat(12));
        Doubt::new(DoubtKind::Steal, severity, what, "measure on a machine of its own")
    })
}

fn with(doubt: &Doubt) -> RunDir {
    let folder = tempfile::tempdir().unwrap();
    let mut run = fixture::write(folder.path(), fixture::record(), &fixture::points());
    run.record.doubts = vec![doubt.clone()];
    for point in &mut run.points {
        point.doubts = vec![doubt.clone()];
    }
    run
}

fn on_screen<'a>(doubt: &'a Doubt, reading: &'a Reading) -> Screen<'a> {
    static WATCH: LazyLock<(Watching, Rates)> = LazyLock::new(Default::default);
    static HEADROOM: LazyLock<Headroom> = LazyLock::new(Default::default);
    Screen {
        watch: &WATCH.0,
        first: reading,
        now: reading,
        rates: &WATCH.1,
        headroom: &HEADROOM,
        doubts: std::slice::from_ref(doubt),
    }
}

/// The outputs of each command if `doubt` is the only one.
fn printed(doubt: &Doubt) -> Vec<(&'static str, String)> {
    let run = with(doubt);
    let findings = zones::of_run(&run);
    let mut verdict = verdict::sentences(&run, &findings);
    verdict.doubts = vec![doubt.clone()];
    let sampled = Profile { doubts: vec![doubt.clone()], ..Profile::default() };
    let exact = ExactProfile { doubts: vec![doubt.clone()], ..ExactProfile::default() };
    vec![
        ("find, report", run::full(&run, &findings, &verdict)),
        ("load --full", run::point(&run.points[0], &[])),
        ("profile", profile::text(&sampled)),
        ("profile --accounting exact", profile::exact::text(&exact)),
        ("report of a watch", report::watch::text::run(&run, &watch::find(&Recording::default()))),
        ("watch", screen::tables(&on_screen(doubt, &Reading::default()))),
    ]
}

#[test]
fn every_command_prints_a_doubt_in_the_same_way() {
    for doubt in doubts() {
        let paragraph = doubt::paragraph(&doubt);
        assert!(!paragraph.contains('\u{1b}') && paragraph.contains("-> measure on a machine"), "{paragraph}");
        assert!(paragraph.lines().all(|line| line.chars().count() <= text::width()), "{paragraph}");
        let first = paragraph.lines().next().unwrap();
        assert!(doubt::line(&doubt).starts_with(first), "one line begins as the paragraph does");
        for (command, said) in printed(&doubt) {
            assert!(said.contains(&format!("\ndoubts\n{paragraph}")), "{command}:\n{said}");
        }
        let live = screen::live(&on_screen(&doubt, &Reading::default()), &Reading::default());
        assert!(live.contains(&doubt::line(&doubt)), "{live}");
        // A short summary shows the most severe doubt, unless it is a note.
        let summary = run::summary(&with(&doubt).points[0], &[], &Default::default());
        assert_eq!(summary.contains(&paragraph), doubt.severity > Severity::Note, "{summary}");
    }
}

#[test]
fn every_page_shows_a_doubt_in_the_same_way() {
    for doubt in doubts() {
        let run = with(&doubt);
        let recording = Recording::default();
        let pages = [page::html(&run), report::watch::page::html(&run, &recording, &watch::find(&recording))];
        let rows = pages.map(|page| {
            let row =
                page.split("<li class=\"").skip(1).find(|row| row.contains("somebody")).expect("the doubt is there");
            row.split("</li>").next().unwrap().to_string()
        });
        assert_eq!(rows[0], rows[1]);
        assert!(rows[0].contains("<p class=\"remedy\">measure on a machine of its own</p>"), "{}", rows[0]);
    }
}
