//! `straingauge scale`: says why it cannot help, runs the server with the library where it can.

use crate::rig::{Said, program, repository, run, skip_unless, straingauge};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const POLLS: &str = r#"#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
	static struct pollfd set[200];
	int p[2];
	if (pipe(p) != 0 || write(p[1], "x", 1) != 1) return 1;
	for (int i = 0; i < 200; i++) set[i] = (struct pollfd){dup(p[0]), POLLIN, 0};
	for (int i = 0; i < 3; i++) if (poll(set, 200, -1) != 200) return 2;
	printf("%s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "nothing preloaded");
	return 0;
}
"#;
const EPOLLS: &str =
    "#include <sys/epoll.h>\nint main(void) { struct epoll_event e; return epoll_wait(-1, &e, 1, 0) == 0; }\n";
const NEITHER: &str = "int main(void) { return 0; }\n";
const LIKE_GO: &str = "__attribute__((section(\".go.buildinfo\"), used)) static char info[16];\n#include <poll.h>\nint main(void) { return poll(0, 0, 0); }\n";

/// Compiles a program; `None` where there is no C compiler, or no static C library.
fn compiled(dir: &TempDir, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = program("cc")?;
    let (input, output) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
    std::fs::write(&input, source).expect("our own folder");
    let done = Command::new(compiler).args(flags).arg("-o").arg(&output).arg(&input).output().ok()?;
    done.status.success().then_some(output)
}

fn scale(options: &[&str], server: &Path) -> Said {
    run(straingauge(["scale"]).args(options).arg("--").arg(server).env_remove("LD_PRELOAD"))
}

fn library() -> PathBuf {
    repository().join("toolkit/scalable-select/build/libscalable-select.so")
}

fn refused(name: &str, source: &str, flags: &[&str], words: &[&str]) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, name, source, flags);
    skip_unless!(found.is_some(), "no C compiler here that builds {name}");
    let mut all = vec!["scalable select does not apply", name];
    all.extend(words);
    scale(&[], &found.expect("just checked")).exits_with(1).complains_of(&all);
}

#[test]
fn static_program_cannot_be_helped() {
    refused("static-server", POLLS, &["-static"], &["statically linked"]);
}

#[test]
fn go_program_cannot_be_helped() {
    refused("go-server", LIKE_GO, &[], &["Go program"]);
}

#[test]
fn program_that_waits_with_epoll_needs_no_help() {
    refused("epoll-server", EPOLLS, &[], &["epoll_wait", "already"]);
}

#[test]
fn program_that_waits_for_nothing_cannot_be_helped() {
    refused("plain-program", NEITHER, &[], &["neither select nor poll"]);
}

/// The linker need not exist: a program is looked at, not run.
#[test]
fn program_of_another_c_library_cannot_be_helped() {
    refused("musl-server", POLLS, &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"], &["ld-musl", "GNU C library"]);
}

#[test]
fn program_of_another_installation_of_the_c_library_gets_a_note() {
    skip_unless!(library().is_file(), "no library: make -C toolkit/scalable-select");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found =
        compiled(&dir, "private-server", POLLS, &["-Wl,--dynamic-linker=/opt/private/lib/ld-linux-x86-64.so.2"]);
    skip_unless!(found.is_some(), "no C compiler here");
    let named = library();
    let options = ["--check", "--library", named.to_str().expect("a path in UTF-8")];
    let said = scale(&options, &found.expect("just checked")).exits_with(0);
    assert!(said.err.contains("/opt/private/lib/ld-linux-x86-64.so.2"), "{}", said.err);
}

const SERVES: &str = "#include <poll.h>\nint serve(void) { return poll(0, 0, 0); }\n";
const HANDS_ON: &str = "int serve(void);\nint start(void) { return serve(); }\n";
const STARTS: &str = "int start(void);\nint main(void) { return start(); }\n";

/// The program needs libstart.so, which needs libserve.so, which imports poll; both lie in a folder of the program's own.
#[test]
fn libraries_are_looked_for_where_the_dynamic_linker_finds_them() {
    skip_unless!(library().is_file(), "no library: make -C toolkit/scalable-select");
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(dir.path().join("lib")).expect("our own folder");
    let folder = format!("-L{}", dir.path().join("lib").display());
    let serve = compiled(&dir, "lib/libserve.so", SERVES, &["-shared", "-fPIC"]);
    skip_unless!(serve.is_some(), "no C compiler here");
    let needs = |name: &str, source: &str, library: &str, more: &[&str]| {
        let flags = [&["-Wl,--no-as-needed", &folder, library, "-Wl,--allow-shlib-undefined"], more].concat();
        compiled(&dir, name, source, &flags).expect("a C compiler")
    };
    let (rpath, runpath) =
        ("-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib", "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/lib");
    let check = |server: &Path, folder: Option<&str>| {
        let named = library();
        let mut command =
            straingauge(["scale", "--check", "--library", named.to_str().expect("a path in UTF-8"), "--"]);
        command.arg(server).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        run(command.envs(folder.map(|folder| ("LD_LIBRARY_PATH", folder)))).exits_with(0)
    };
    needs("lib/libstart.so", HANDS_ON, "-lserve", &["-shared", "-fPIC"]);
    let inherits = needs("inherits", STARTS, "-lstart", &[rpath]);
    assert!(check(&inherits, None).flat().contains("imports poll"), "RPATH holds for what its libraries need");
    let plain = needs("plain", STARTS, "-lstart", &[]);
    let said = check(&plain, None);
    assert!(said.err.contains("libstart.so was not found"), "{}", said.err);
    assert!(check(&plain, dir.path().join("lib").to_str()).flat().contains("imports poll"), "LD_LIBRARY_PATH");
    let direct = needs("direct", STARTS, "-lstart", &[runpath]);
    let said = check(&direct, None);
    assert!(said.err.contains("libserve.so was not found"), "RUNPATH is the program's own: {}", said.err);
    needs("lib/libstart.so", HANDS_ON, "-lserve", &["-shared", "-fPIC", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    assert!(check(&direct, None).flat().contains("imports poll"), "RUNPATH");
}

#[test]
fn program_that_only_starts_the_server_is_refused_with_the_way() {
    skip_unless!(library().is_file(), "no library: make -C toolkit/scalable-select");
    let env = program("env").expect("every system has env");
    scale(&[], &env).exits_with(1).complains_of(&[
        "scalable select does not apply",
        "WRAPPER",
        "straingauge scale -- SERVER",
    ]);
}

#[test]
fn file_that_is_not_the_library_is_not_loaded() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "poll-server", POLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let server = found.expect("just checked");
    scale(&["--check", "--library", "/etc/passwd"], &server)
        .exits_with(1)
        .complains_of(&["/etc/passwd", "is not libscalable-select.so"]);
    let other = compiled(&dir, "other.so", "int poll(void) { return 0; }\n", &["-shared", "-fPIC"]).expect("a library");
    let other = other.to_str().expect("a path in UTF-8");
    scale(&["--check", "--library", other], &server).exits_with(1).complains_of(&["is not libscalable-select.so"]);
}

#[test]
fn set_user_id_program_cannot_be_helped() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "setuid-server", POLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let path = found.expect("just checked");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("our own file");
    scale(&[], &path).exits_with(1).complains_of(&["scalable select does not apply", "set-user-id"]);
}

#[test]
fn text_is_no_server_and_a_missing_one_is_said() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("text");
    std::fs::write(&path, "hello\n").expect("our own folder");
    scale(&[], &path).exits_with(1).complains_of(&["neither an ELF program nor a script"]);
    scale(&[], Path::new("no-such-server-at-all")).exits_with(1).complains_of(&["not found in PATH"]);
    run(&mut straingauge(["scale"])).exits_with(2).complains_of(&["scale needs a server"]);
}

#[test]
fn script_is_judged_by_its_interpreter() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "interpreter", EPOLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let script = dir.path().join("script");
    std::fs::write(&script, format!("#!{}\n", found.expect("just checked").display())).expect("our own folder");
    scale(&[], &script).exits_with(1).complains_of(&["scalable select does not apply", "interpreter", "epoll_wait"]);
}

#[test]
fn server_runs_with_the_library_and_reports_when_asked() {
    skip_unless!(library().is_file(), "no library: make -C toolkit/scalable-select");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "poll-server", POLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let path = found.expect("just checked");
    let named = library();
    let named = named.to_str().expect("a path in UTF-8");
    let said = scale(&["--stats", "--library", named], &path).exits_with(0);
    assert!(said.out.contains("libscalable-select.so"), "{}", said.out);
    let line = said.err.lines().find(|line| line.starts_with("{\"pid\"")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(line).expect("JSON");
    // Three calls over one descriptor: helped or, as its set is hot, passed to the kernel.
    let counted = ["calls", "passed_hot", "passed_small", "passed_other"].map(|name| report[name].as_u64());
    assert_eq!(counted.into_iter().sum::<Option<u64>>(), Some(3), "{report}");
    assert_eq!(report["lost"].as_u64(), Some(0), "{report}");
    let said = scale(&["--check", "--library", named], &path).exits_with(0);
    assert!(said.flat().contains("scalable select applies (imports poll)"), "{}", said.out);
}

#[test]
fn library_that_others_may_write_is_not_loaded() {
    skip_unless!(library().is_file(), "no library: make -C toolkit/scalable-select");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "poll-server", POLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let copy = dir.path().join("libscalable-select.so");
    std::fs::copy(library(), &copy).expect("a copy");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o666)).expect("our own file");
    let named = copy.to_str().expect("a path in UTF-8");
    scale(&["--library", named], &found.expect("just checked"))
        .exits_with(1)
        .complains_of(&["written by others", "chmod"]);
}
