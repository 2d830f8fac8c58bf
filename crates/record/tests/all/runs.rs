use record::runs::{FoundRuns, find};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn names(found: &FoundRuns, parent: &Path) -> Vec<String> {
    found.runs.iter().map(|path| path.strip_prefix(parent).unwrap().display().to_string()).collect()
}

#[test]
fn runs_are_found_below_folders_and_no_link_is_followed() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = folder.path();
    for run in ["a", "b/nginx/c", "b/nginx/c/with", ".hidden/d", "1/2/3/4/5/6", "1/2/3/4/5/6x/7/8"] {
        fs::create_dir_all(place.join(run)).unwrap();
        fs::write(place.join(run).join("run.json"), "{ not even JSON").unwrap();
    }
    fs::write(elsewhere.path().join("run.json"), "{}").unwrap();
    symlink(elsewhere.path(), place.join("link")).unwrap();
    symlink(place, place.join("b/round")).unwrap();
    fs::create_dir(place.join("e")).unwrap();
    symlink(elsewhere.path().join("run.json"), place.join("e").join("run.json")).unwrap();
    let found = find(place).unwrap();
    assert_eq!(names(&found, place), ["b/nginx/c", "a", "1/2/3/4/5/6"], "{found:?}");
    let why: Vec<&str> = found.left_out.iter().map(|(_, why)| why.as_str()).collect();
    assert_eq!(why.len(), 2, "{found:?}");
    assert!(why[0].contains("a link") && why[1].contains("folders deep"), "{found:?}");
    assert_eq!(names(&find(&place.join("a")).unwrap(), place), ["a"], "the folder may be a run");
    assert!(find(&place.join("none")).unwrap_err().to_string().contains("none"));
}

#[test]
fn only_the_stated_number_of_newest_runs_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..2005 {
        let run = folder.path().join(format!("{number:04}"));
        fs::create_dir(&run).unwrap();
        fs::write(run.join("run.json"), "").unwrap();
    }
    let found = find(folder.path()).unwrap();
    let listed = names(&found, folder.path());
    assert_eq!((listed.len(), listed[0].as_str(), listed[1999].as_str()), (2000, "2004", "0005"));
    assert!(found.left_out.len() == 1 && found.left_out[0].0.ends_with("0004"), "{:?}", found.left_out);
}
