//! Tests that the tool says why it cannot help, and runs the server with the library if it can.

use std::io::Write;
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
const LIKE_GO: &str = "__attribute__((section(\".go.buildinfo\"), used)) static char info[16];\n#include <poll.h>\nint \
                       main(void) { return poll(0, 0, 0); }\n";

/// Ends the test with a printed reason.
macro_rules! skip_unless {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            let name = std::thread::current().name().unwrap_or("a-test").to_string();
            // Where libtest does not capture it.
            let _ = std::io::stderr().write_all(format!("SKIPPED {name}: {}\n", format!($($why)+)).as_bytes());
            return;
        }
    };
}

/// Output of a run.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    #[track_caller]
    fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n--- stdout\n{}\n--- stderr\n{}", self.out, self.err);
        self
    }

    /// Asserts one line of complaint with all of these words.
    #[track_caller]
    fn complains_of(self, words: &[&str]) -> Self {
        assert_eq!(self.err.lines().count(), 1, "one line, not:\n{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "'{word}' is not in: {}", self.err);
        }
        self
    }
}

fn scale_with(variables: &[(&str, &Path)], options: &[&str], server: &Path) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straingauge-scale"));
    command.args(options).arg("--").arg(server).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    let done = command.envs(variables.iter().copied()).output().expect("our own program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: done.status.code(), out: text(&done.stdout), err: text(&done.stderr) }
}

fn scale(options: &[&str], server: &Path) -> Said {
    scale_with(&[], options, server)
}

/// Compiles a program; `None` without a C compiler or a static C library.
fn compiled(dir: &TempDir, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (input, output) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
    std::fs::write(&input, source).expect("our own folder");
    let done = Command::new("cc").args(flags).arg("-o").arg(&output).arg(&input).output().ok()?;
    done.status.success().then_some(output)
}

fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/libscalable-select.so")
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
fn a_static_program_is_refused() {
    refused("static-server", POLLS, &["-static"], &["statically linked"]);
}

#[test]
fn a_go_program_is_refused() {
    refused("go-server", LIKE_GO, &[], &["Go program"]);
}

#[test]
fn a_program_that_uses_epoll_is_refused_because_it_scales_already() {
    refused("epoll-server", EPOLLS, &[], &["epoll_wait", "already"]);
}

#[test]
fn a_program_without_select_or_poll_is_refused() {
    refused("plain-program", NEITHER, &[], &["neither select nor poll"]);
}

/// The linker need not exist, because the program is inspected instead of run.
#[test]
fn a_program_with_another_c_library_is_refused() {
    refused("musl-server", POLLS, &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"], &["ld-musl", "GNU C library"]);
}

#[test]
fn a_program_with_another_installation_of_the_c_library_is_reported() {
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

/// The program needs libstart.so, which needs libserve.so, which imports poll. Both are in a directory of the
/// program.
#[test]
fn libraries_are_searched_like_the_dynamic_linker_does() {
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
    let named = library();
    let options = ["--check", "--library", named.to_str().expect("a path in UTF-8")];
    let check = |server: &Path| scale(&options, server).exits_with(0);
    needs("lib/libstart.so", HANDS_ON, "-lserve", &["-shared", "-fPIC"]);
    let inherits = needs("inherits", STARTS, "-lstart", &[rpath]);
    assert!(check(&inherits).out.contains("imports poll"), "RPATH holds for what its libraries need");
    let plain = needs("plain", STARTS, "-lstart", &[]);
    let said = check(&plain);
    assert!(said.err.contains("libstart.so was not found"), "{}", said.err);
    let said = scale_with(&[("LD_LIBRARY_PATH", &dir.path().join("lib"))], &options, &plain).exits_with(0);
    assert!(said.out.contains("imports poll"), "LD_LIBRARY_PATH");
    let direct = needs("direct", STARTS, "-lstart", &[runpath]);
    let said = check(&direct);
    assert!(said.err.contains("libserve.so was not found"), "RUNPATH is the program's own: {}", said.err);
    needs("lib/libstart.so", HANDS_ON, "-lserve", &["-shared", "-fPIC", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    assert!(check(&direct).out.contains("imports poll"), "RUNPATH");
}

#[test]
fn a_program_that_only_starts_the_server_is_refused_with_a_remedy() {
    skip_unless!(library().is_file(), "no library: make -C toolkit/scalable-select");
    scale(&[], Path::new("env")).exits_with(1).complains_of(&[
        "scalable select does not apply",
        "WRAPPER",
        "straingauge scale -- SERVER",
    ]);
}

#[test]
fn a_file_that_is_not_the_library_is_not_loaded() {
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
fn a_set_user_id_program_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "setuid-server", POLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let path = found.expect("just checked");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("our own file");
    scale(&[], &path).exits_with(1).complains_of(&["scalable select does not apply", "set-user-id"]);
}

#[test]
fn text_files_and_missing_programs_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("text");
    std::fs::write(&path, "hello\n").expect("our own folder");
    scale(&[], &path).exits_with(1).complains_of(&["neither an ELF program nor a script"]);
    scale(&[], Path::new("no-such-server-at-all")).exits_with(1).complains_of(&["not found in PATH"]);
    let nothing = Command::new(env!("CARGO_BIN_EXE_straingauge-scale")).output().expect("our own program");
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert!(nothing.status.code() == Some(2) && said.contains("SERVER"), "{said}");
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = compiled(&dir, "interpreter", EPOLLS, &[]);
    skip_unless!(found.is_some(), "no C compiler here");
    let script = dir.path().join("script");
    std::fs::write(&script, format!("#!{}\n", found.expect("just checked").display())).expect("our own folder");
    scale(&[], &script).exits_with(1).complains_of(&["scalable select does not apply", "interpreter", "epoll_wait"]);
}

#[test]
fn a_server_runs_with_the_library_and_reports_on_request() {
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
    // Three calls over one descriptor are scaled, or passed to the kernel because the set is hot.
    let counted = ["calls", "passed_hot", "passed_small", "passed_other"].map(|name| report[name].as_u64());
    assert_eq!(counted.into_iter().sum::<Option<u64>>(), Some(3), "{report}");
    assert_eq!(report["lost"].as_u64(), Some(0), "{report}");
    let said = scale(&["--check", "--library", named], &path).exits_with(0);
    assert!(said.out.contains("scalable select applies (imports poll)"), "{}", said.out);
}

#[test]
fn a_library_that_others_can_write_is_not_loaded() {
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
