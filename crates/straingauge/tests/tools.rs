//! `straingauge NAME` runs `straingauge-NAME` from the program's folder or PATH.

use crate::rig::{Said, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// An installation with tools: `beside` in the program's folder, `elsewhere` in PATH, `both` in both.
fn installed() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tool = |place: &str, mode: u32| {
        let file = dir.path().join(place);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("our own folder");
        std::fs::write(&file, format!("#!/bin/sh\necho \"{place}:$*\"\nexit 7\n")).expect("our own folder");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("our own file");
    };
    for place in
        ["bin/straingauge-beside", "path/straingauge-elsewhere", "bin/straingauge-both", "path/straingauge-both"]
    {
        tool(place, 0o755);
    }
    tool("path/straingauge-not-executable", 0o644);
    tool("path/straingauge-find", 0o755);
    tool("outside", 0o755);
    let own = dir.path().join("bin/straingauge");
    let built = Path::new(env!("CARGO_BIN_EXE_straingauge"));
    std::fs::hard_link(built, &own).or_else(|_| std::fs::copy(built, &own).map(|_| ())).expect("a copy");
    dir
}

fn typed(dir: &TempDir, words: &[&str]) -> Said {
    let path = format!("{}:/usr/bin:/bin", dir.path().join("path").display());
    run(Command::new(dir.path().join("bin/straingauge")).args(words).env("PATH", path).current_dir(dir.path()))
}

#[test]
fn a_tool_gets_its_arguments_and_its_exit_code_is_passed_on() {
    let dir = installed();
    let said = typed(&dir, &["beside", "-h", "--json", "a b", "--", "-x"]).exits_with(7);
    assert_eq!(said.out, "bin/straingauge-beside:-h --json a b -- -x\n");
    assert_eq!(typed(&dir, &["elsewhere"]).exits_with(7).out, "path/straingauge-elsewhere:\n");
    assert_eq!(
        typed(&dir, &["both"]).exits_with(7).out,
        "bin/straingauge-both:\n",
        "that beside the program comes first"
    );
    assert_eq!(typed(&dir, &["help", "beside"]).exits_with(7).out, "bin/straingauge-beside:--help\n");
    typed(&dir, &["find"]).exits_with(2).complains_of(&["URL"]);
}

#[test]
fn help_lists_the_tools_that_are_installed() {
    let dir = installed();
    for words in [&["-h"][..], &["--help"], &["help"]] {
        let said = typed(&dir, words).exits_with(0).out;
        let listed = said.split("\nTools (").nth(1).unwrap_or_else(|| panic!("no tools in: {said}"));
        let names: Vec<&str> = listed.lines().skip(1).map(str::trim).collect();
        assert_eq!(names, ["beside", "both", "elsewhere"]);
    }
}

#[test]
fn an_unknown_command_is_refused_with_the_most_similar_one() {
    let dir = installed();
    let said = typed(&dir, &["fnid", "URL"]).exits_with(2);
    said.complains_of(&["no command 'fnid'", "no straingauge-fnid next to this program or in PATH", "'find'"]);
    typed(&dir, &["not-executable"]).exits_with(2).complains_of(&["no command 'not-executable'"]);
    for word in ["../outside", "-/../../outside", "", "http://127.0.0.1:1/"] {
        typed(&dir, &[word]).exits_with(2).complains_of(&["straingauge: "]);
    }
}

#[test]
fn comparing_with_scalable_select_checks_the_tool_before_measuring() {
    let dir = installed();
    let compare = || typed(&dir, &["find", "http://127.0.0.1:1/", "--compare-with", "scale", "--", "sleep", "60"]);
    compare().exits_with(1).complains_of(&["--compare-with scale", "straingauge-scale", "neither next to"]);
    let tool = dir.path().join("bin/straingauge-scale");
    let refuses =
        "#!/bin/sh\n[ \"$*\" = '--check -- sleep 60' ] && echo 'straingauge scale: not for sleep' >&2\nexit 1\n";
    std::fs::write(&tool, refuses).expect("our own folder");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    compare().exits_with(1).complains_of(&["straingauge: not for sleep"]);
}
