use record::shell::{find_program, joined, quoted};

#[test]
fn words_that_a_shell_would_split_are_quoted() {
    for plain in ["nginx", "-c", "/etc/nginx.conf", "--cpus=0,1", "50%", "http://a:1/x"] {
        assert_eq!(quoted(plain), plain);
    }
    for word in ["", "a b", "it's", "$HOME", "a;b", "x?y=1&z", "back\\slash", "two\nlines", "\"", "!^`"] {
        let line = joined(["run", word]);
        assert_eq!(shlex::split(&line), Some(vec!["run".to_string(), word.to_string()]), "{line}");
    }
}

#[test]
fn programs_are_found_by_name_or_path_and_other_files_are_not() {
    let shell = find_program("sh").expect("every system has one");
    assert_eq!(find_program(shell.to_str().expect("plain")), Some(shell));
    assert_eq!(find_program("/etc/passwd/none"), None);
    assert_eq!(find_program("passwd.no-such-program"), None);
}
