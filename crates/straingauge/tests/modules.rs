//! The modules of a crate use one another in one direction: no cycles.

use crate::rig::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each module of a crate uses of the others.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of the repository").flatten().map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    rust.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// The names that follow `crate::` in a file's code, tests and comments left out; of `crate::{a::B, c}` both.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let name = |text: &str| text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let Some(list) = after.strip_prefix('{') else {
            found.insert(name(after));
            continue;
        };
        let (mut depth, mut from) = (0, 0);
        for (at, letter) in list.char_indices() {
            match letter {
                '{' => depth += 1,
                ',' if depth == 0 => {
                    found.insert(name(&list[from..at]));
                    from = at + 1;
                }
                '}' if depth == 0 => {
                    found.insert(name(&list[from..at]));
                    break;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

fn uses(crate_source: &Path) -> Uses {
    let mut uses = Uses::new();
    for file in sources(crate_source) {
        let place = file.strip_prefix(crate_source).expect("it lies there").with_extension("");
        let module = place.iter().next().expect("a name").to_string_lossy().into_owned();
        if !matches!(module.as_str(), "lib" | "main") {
            uses.entry(module).or_default().extend(named(&std::fs::read_to_string(&file).expect("a source")));
        }
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|name| modules.contains(name) && name != module);
    }
    uses
}

/// A way from a module back to itself.
fn cycle(uses: &Uses) -> Option<Vec<String>> {
    fn visit(module: &String, uses: &Uses, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(at) = way.iter().position(|earlier| earlier == module) {
            way.drain(..at);
            return true;
        }
        if done.contains(module) {
            return false;
        }
        way.push(module.clone());
        if uses.get(module).into_iter().flatten().any(|used| visit(used, uses, way, done)) {
            return true;
        }
        way.pop();
        done.insert(module.clone());
        false
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    uses.keys().any(|module| visit(module, uses, &mut way, &mut done)).then_some(way)
}

#[test]
fn modules_use_one_another_in_one_direction() {
    let crates = std::fs::read_dir(repository().join("crates")).expect("crates/").flatten();
    let mut found = 0;
    for folder in crates.map(|entry| entry.path()).filter(|path| path.join("src").is_dir()) {
        let uses = uses(&folder.join("src"));
        found += uses.values().map(BTreeSet::len).sum::<usize>();
        if let Some(way) = cycle(&uses) {
            panic!("crates/{}: {} -> {}", folder.file_name().unwrap().display(), way.join(" -> "), way[0]);
        }
    }
    assert!(found > 100, "only {found} uses were found");
}

#[test]
fn a_cycle_is_found_however_it_is_imported() {
    let text = "use crate::a::{B, c::D};\nuse crate::{e::{F, G}, h};\n// crate::no\nfn f() { crate::i::j() }\n#[cfg(test)] use crate::k;";
    assert_eq!(named(text).iter().map(String::as_str).collect::<Vec<_>>(), ["a", "e", "h", "i"]);
    let of = |pairs: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (from, to) in pairs {
            uses.entry(from.to_string()).or_default().insert(to.to_string());
        }
        cycle(&uses)
    };
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("a", "c"), ("d", "a")]), None);
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "b")]), Some(vec!["b".into(), "c".into()]));
}
