//! A simple lexer for Rust: comments, strings, and the code between them. It has no grammar, so it also reads the
//! contents of macros.

/// A comment or a string, by its bytes in the source.
pub(crate) struct SourceText {
    pub(crate) is_comment: bool,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A file with its code, and its comments and strings separately.
pub(crate) struct SourceFile {
    pub(crate) text: String,
    pub(crate) texts: Vec<SourceText>,
    /// The text with spaces in place of comments, strings and characters.
    pub(crate) code: String,
}

impl SourceFile {
    pub(crate) fn new(text: String) -> Self {
        let (texts, code) = split(&text);
        Self { text, texts, code }
    }

    /// The number of the line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    pub(crate) fn part(&self, of: &SourceText) -> &str {
        &self.text[of.start..of.end]
    }
}

/// The end of a string that starts at the quote `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of a raw string at `at`, such as `r#"…"#`; `None` if no raw string begins there.
fn end_of_raw_string(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].strip_prefix('"')?;
    let begin = at + hashes + 2;
    let closing = format!("\"{}", "#".repeat(hashes));
    let length = text[begin..].find(&closing)?;
    Some(begin + length + closing.len())
}

/// The end of a block comment at `at`. Such comments can be nested.
fn end_of_block(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end < bytes.len() {
        match &bytes[end..bytes.len().min(end + 2)] {
            b"/*" => (depth, end) = (depth + 1, end + 2),
            b"*/" => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            return end;
        }
    }
    bytes.len()
}

/// The length of a character literal at `at`; `None` for a lifetime.
fn character_literal(text: &str, at: usize) -> Option<usize> {
    let mut characters = text[at + 1..].char_indices();
    let (_, first) = characters.next()?;
    if first == '\\' {
        let close = text[at + 3..].find('\'')?;
        return Some(close + 4);
    }
    let (second_at, second) = characters.next()?;
    (second == '\'').then_some(second_at + 2)
}

fn split(text: &str) -> (Vec<SourceText>, String) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut texts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // The `r` of an identifier such as `for"` cannot begin a raw string.
        let follows_word =
            at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let raw = end_of_raw_string(text, at).filter(|_| !follows_word || bytes[at - 1] == b'b');
        let (end, is_comment) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => {
                let length = text[at..].find('\n').unwrap_or(text.len() - at);
                (at + length, true)
            }
            b'/' if bytes[at..].starts_with(b"/*") => (end_of_block(bytes, at), true),
            b'r' if raw.is_some() => (raw.unwrap_or(at), false),
            b'"' => (end_of_string(bytes, at), false),
            b'\'' => match character_literal(text, at) {
                Some(length) => {
                    code[at..at + length].fill(b' ');
                    at += length;
                    continue;
                }
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        // Keep the line breaks, so that positions in the code are positions in the text.
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        texts.push(SourceText {
            is_comment,
            start: at,
            end,
        });
        at = end;
    }
    (texts, String::from_utf8_lossy(&code).into_owned())
}

#[test]
fn comments_strings_and_code_are_separated() {
    let file = SourceFile::new(
        "let a = \"x // y\"; // one \"two\"\nlet b = r#\"in\"side\"#; let c = '\"'; /* z */ d::<'a>()"
            .to_owned(),
    );
    let texts: Vec<&str> = file.texts.iter().map(|text| file.part(text)).collect();
    assert_eq!(
        texts,
        ["\"x // y\"", "// one \"two\"", "r#\"in\"side\"#", "/* z */"]
    );
    assert_eq!(file.code.split_whitespace().last(), Some("d::<'a>()"));
    assert_eq!(file.line_of(file.texts[2].start), 2);
}
