//! The straingauge commands in the documentation's code blocks.

use std::path::Path;

/// A command and its place.
#[derive(Debug, Clone)]
pub struct Documented {
    /// The file's name, and the line of its first word.
    pub file: String,
    pub line: usize,
    /// Text without the trailing comment; lines that end in a backslash are joined.
    pub text: String,
}

/// All commands in README.md and docs/*.md that begin with `straingauge`.
pub fn all() -> Vec<Documented> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("the crate lies two deep");
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("docs")).expect("docs/").flatten().map(|one| one.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "md"));
    files.push(root.join("README.md"));
    files.sort();
    files.iter().flat_map(|path| of_page(path)).collect()
}

fn of_page(path: &Path) -> Vec<Documented> {
    let text = std::fs::read_to_string(path).expect("a page of the documentation");
    let file = path.file_name().expect("it has a name").to_string_lossy().into_owned();
    let mut lines = text.lines().enumerate();
    let mut found = Vec::new();
    while let Some((number, line)) = lines.next() {
        let Some(command) = line.strip_prefix("    ").filter(|line| line.starts_with("straingauge ")) else { continue };
        let mut command = command.to_string();
        while command.ends_with('\\') {
            command.pop();
            command.push_str(lines.next().map_or("", |(_, line)| line.trim_start()));
        }
        let command = command.split(" # ").next().unwrap_or_default().trim_end();
        found.push(Documented { file: file.clone(), line: number + 1, text: command.into() });
    }
    found
}

/// Splits a line into words as a shell does, up to a pipe or redirection; without expansion. Also used by the test in
/// `src/cli`.
#[allow(dead_code)]
pub fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '>' | '|') => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
