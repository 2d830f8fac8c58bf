//! Output of a finished run, for the tests of several programs.

pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Asserts the exit code.
    #[track_caller]
    pub fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n--- stdout\n{}\n--- stderr\n{}", self.out, self.err);
        self
    }

    /// Asserts that the program printed exactly one complaint, a sentence with all of these words.
    #[track_caller]
    pub fn complains_of(self, words: &[&str]) -> Self {
        let is_complaint =
            |line: &&str| matches!(line.split_once(": "), Some(("straingauge" | "straingauge-simulate", _)));
        let sentences: Vec<&str> = self.err.lines().filter(is_complaint).collect();
        assert_eq!(sentences.len(), 1, "one sentence, not {}:\n{}", sentences.len(), self.err);
        for word in words {
            assert!(sentences[0].contains(word), "'{word}' is not in: {}", sentences[0]);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert!(sentences[0].len() < 600, "a sentence, not a page: {}", sentences[0]);
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("not JSON ({why}):\n{}\n{}", self.out, self.err))
    }
}
