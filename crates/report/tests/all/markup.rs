//! No text of a run directory reaches a page as markup, or a terminal as an escape sequence. Replaces every string in
//! its files that a reader accepts: all at once, and half of them.

use record::RunDir;
use serde_json::Value;
use std::path::Path;

/// Ends a text, an attribute in either kind of quotes and an element, begins others, and moves a cursor.
const MARK: &str = "zq\"zq='zq</p><zq>\u{1b}[31m{{ 123457*3 }}";
/// Parts of the mark that no page may contain.
const MARKUP: [&str; 4] = ["<zq", "\"zq=", "\u{1b}", "370371"];

/// The files of a run, from the fuzz corpus.
const FILES: [(&str, &[u8]); 4] = [
    ("run.json", include_bytes!("../../../../fuzz/valid/run.json")),
    ("points/000/point.json", include_bytes!("../../../../fuzz/valid/point.json")),
    ("points/000/latency.hlog", include_bytes!("../../../../fuzz/valid/latency.hlog")),
    ("points/000/stacks.json", include_bytes!("../../../../fuzz/valid/stacks.json")),
];

/// JSON pointers of all strings.
fn strings(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_string()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| strings(item, &format!("{at}/{index}"), found));
        }
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            strings(member, &format!("{at}/{name}"), found);
        }),
        _ => {}
    }
}

fn marked(file: &[u8], places: &[String]) -> Value {
    let mut value: Value = serde_json::from_slice(file).expect("a valid file");
    for place in places {
        *value.pointer_mut(place).expect("it is there") = MARK.into();
    }
    value
}

/// Writes a file and opens the run; `None` if a reader refuses it, e.g. because of an unknown word.
fn opened(folder: &Path, name: &str, content: &Value) -> Option<RunDir> {
    std::fs::write(folder.join(name), content.to_string()).expect("our own folder");
    RunDir::open(folder).ok().filter(|run| run.points.len() == 1 && run.reading_doubts.is_empty())
}

fn assert_no_markup(run: &RunDir, what: &str) {
    let findings = analyze::zones::of_run(run);
    let verdict = verdict::sentences(run, &findings);
    let text = report::run::full(run, &findings, &verdict);
    assert!(!text.contains('\u{1b}'), "{what}: an escape sequence in the text");
    let page = report::page::html(run);
    for markup in MARKUP {
        let near = page.find(markup).map(|at| page[..at].chars().rev().take(200).collect::<Vec<char>>());
        let near: Option<String> = near.map(|near| near.into_iter().rev().collect());
        assert!(near.is_none(), "{what}: {markup:?} in the page after {near:?}");
    }
}

#[test]
fn no_string_of_a_run_directory_becomes_markup() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(folder.path().join("points/000")).expect("our own folder");
    for (name, content) in FILES {
        std::fs::write(folder.path().join(name), content).expect("our own folder");
    }
    let mut shown = 0;
    for (name, content) in FILES.into_iter().filter(|(name, _)| name.ends_with(".json")) {
        let mut places = Vec::new();
        strings(&marked(content, &[]), "", &mut places);
        places.retain(|place| opened(folder.path(), name, &marked(content, std::slice::from_ref(place))).is_some());
        assert!(!places.is_empty(), "{name} has text of its own");
        shown += places.len();
        // A word may hide others, so alternating halves are tested, too.
        let halves = [0, 1].map(|turn| places.iter().skip(turn).step_by(2).cloned().collect::<Vec<_>>());
        for places in [places.clone()].into_iter().chain(halves) {
            if let Some(run) = opened(folder.path(), name, &marked(content, &places)) {
                assert_no_markup(&run, name);
            }
        }
        std::fs::write(folder.path().join(name), content).expect("our own folder");
    }
    assert!(shown >= 20, "{shown} texts");
}
