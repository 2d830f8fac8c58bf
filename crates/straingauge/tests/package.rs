//! The Debian package contains the listed files and is reproducible. testbed/userlands tests it on other systems.

use crate::rig::{program, repository, skip_unless};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn built(program: &Path, into: &Path) -> Vec<u8> {
    let mut command = Command::new(repository().join("setup/deb/build"));
    command.arg(program).arg("1.2.3").arg(into).env("SOURCE_DATE_EPOCH", "1700000000");
    let done = command.output().expect("the script starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let made = fs::read_dir(into).expect("the folder is there").flatten().map(|entry| entry.path());
    fs::read(made.last().expect("a package")).expect("a package can be read")
}

#[test]
fn the_debian_package_contains_the_listed_files_and_is_reproducible() {
    skip_unless!(program("dpkg-deb").is_some(), "dpkg-deb is not installed");
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Stands in for the large program, and lists one schema.
    let stub = folder.path().join("stub");
    fs::write(&stub, "#!/bin/sh\n[ \"$*\" = '--generate schema' ] && echo 'point a point' || echo \"$*\"\n")
        .expect("the folder can be written");
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    for into in [&first, &second] {
        fs::create_dir(into).expect("the folder can be written");
    }
    assert!(built(&stub, &first) == built(&stub, &second), "two builds of one source differ");

    let package = fs::read_dir(&first).expect("the folder is there").flatten().next().expect("a package").path();
    let listed = Command::new("dpkg-deb").arg("-c").arg(&package).output().expect("dpkg-deb starts");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut held = BTreeSet::new();
    for line in listed.lines().filter(|line| line.starts_with('-')) {
        assert!(line.contains(" root/root "), "{line}");
        let place = line.rsplit(" ./").next().unwrap_or_default().to_string();
        held.insert((line[..10].to_string(), place));
    }
    let list = fs::read_to_string(repository().join("setup/deb/files")).expect("the list");
    let mut meant = BTreeSet::new();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let [mode, source, place] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let letters = if mode == "755" { "-rwxr-xr-x" } else { "-rw-r--r--" };
        let Some(pattern) = source.rsplit('/').next().filter(|_| place.ends_with('/')) else {
            meant.insert((letters.to_string(), place.to_string()));
            continue;
        };
        let (from, end) = (Path::new(source).parent().expect("a folder"), pattern.trim_start_matches('*'));
        if source == "made/schemas/*" {
            meant.insert((letters.to_string(), format!("{place}point.schema.json")));
            continue;
        }
        for entry in fs::read_dir(repository().join(from)).expect("a folder of the repository").flatten() {
            let name = entry.file_name().into_string().expect("names of the repository are text");
            if name.ends_with(end) && entry.path().is_file() {
                meant.insert((letters.to_string(), format!("{place}{name}")));
            }
        }
    }
    assert_eq!(held, meant);
}
