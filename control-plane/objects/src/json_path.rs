//! The JSON paths of printer columns and selectable fields, in the syntax of kubectl's `jsonpath` templates
//! (`k8s.io/client-go/util/jsonpath`): fields, positions, ranges, unions, wildcards, recursive descent, filters and literals.
//!
//! A path is one action of a template. Text after the closing brace, if any, is not read.

mod find;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPath(Vec<PathNode>);

#[derive(Debug, Clone, PartialEq)]
enum PathNode {
    /// A literal text instead of values.
    Text(String),
    /// A whole number for each value.
    Int(i64),
    /// A number for each value.
    Float(f64),
    /// A truth value for each value.
    Bool(bool),
    /// The field of objects.
    Field(String),
    /// The entries of lists.
    Slice(Slice),
    /// The members of objects and lists.
    All,
    /// The values and all below them that have members.
    Descent,
    /// The values of several paths, one after the other.
    Union(Vec<JsonPath>),
    /// The entries of lists in which the path has a value.
    Having(JsonPath),
    /// The entries of lists in which the comparison of two paths holds.
    Comparing(JsonPath, String, JsonPath),
    /// A keyword of templates. A path with one has no values.
    Keyword,
}

/// The positions of entries: `[start:end:step]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    /// Whether the end is implied by the start, because a single position is given.
    is_single: bool,
    step: Option<i64>,
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`; `None` when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = format!("{text}}}");
        let mut parser = Parser {
            rest: &text,
            nodes: Vec::new(),
        };
        // One node in each round, so that a long path needs no deep stack.
        while !parser.rest.starts_with('}') {
            parser.node()?;
        }
        Some(Self(parser.nodes))
    }
}

struct Parser<'t> {
    rest: &'t str,
    nodes: Vec<PathNode>,
}

impl<'t> Parser<'t> {
    fn node(&mut self) -> Option<()> {
        if let Some(after) = self.rest.strip_prefix("[?(") {
            self.rest = after;
            return self.filter();
        }
        if let Some(after) = self.rest.strip_prefix("..") {
            if self.nodes.last() == Some(&PathNode::Descent) {
                return None;
            }
            self.rest = after;
            self.nodes.push(PathNode::Descent);
            if after.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                self.field();
            }
            return Some(());
        }
        let next = self.rest.chars().next()?;
        match next {
            // The current object and the root are where a path begins anyway.
            ' ' | '@' | '$' => self.skip(1),
            '[' => self.brackets()?,
            '"' | '\'' => self.quoted(next)?,
            '.' => {
                self.skip(1);
                self.field();
            }
            '+' | '-' | '0'..='9' => self.number()?,
            c if c == '_' || c.is_alphabetic() => {
                let word = self.take(self.rest.find(is_end).unwrap_or(self.rest.len()));
                self.nodes.push(match word {
                    "true" => PathNode::Bool(true),
                    "false" => PathNode::Bool(false),
                    _ => PathNode::Keyword,
                });
            }
            _ => return None,
        }
        Some(())
    }

    fn skip(&mut self, bytes: usize) {
        self.take(bytes);
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// A name; a backslash before a sign makes it a part of the name.
    fn field(&mut self) {
        let mut chars = self.rest.char_indices();
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => _ = chars.next(),
                Some((at, c)) if is_end(c) => break at,
                Some(_) => {}
                None => break self.rest.len(),
            }
        };
        let name = self.take(end);
        self.nodes.push(match name {
            "*" => PathNode::All,
            name => PathNode::Field(name.replace('\\', "")),
        });
    }

    fn number(&mut self) -> Option<()> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let is_part = |c: char| c == '.' || c.is_ascii_digit();
        let length = self.rest.get(sign..)?.find(|c| !is_part(c))?;
        let text = self.take(sign + length);
        self.nodes.push(match text.parse() {
            Ok(whole) => PathNode::Int(whole),
            Err(_) => PathNode::Float(text.parse().ok()?),
        });
        Some(())
    }

    /// A position, a range, a union or a name in brackets.
    fn brackets(&mut self) -> Option<()> {
        let end = self.rest.find([']', '\n'])?;
        let text = self.take(end + 1).strip_prefix('[')?.strip_suffix(']')?;
        let text = if text == "*" { ":" } else { text };
        if text.contains(',') {
            let parts = text.split(',');
            let paths = parts.map(|part| JsonPath::parse(&format!("[{}]", part.trim_matches(' '))));
            self.nodes
                .push(PathNode::Union(paths.collect::<Option<_>>()?));
            return Some(());
        }
        let name = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
        if let Some(name) = name.filter(|name| !name.contains('\'')) {
            // As behind a dot: a dot in the name ends it unless a backslash precedes it.
            self.nodes.extend(JsonPath::parse(&format!(".{name}"))?.0);
            return Some(());
        }
        self.nodes.push(PathNode::Slice(slice(text)?));
        Some(())
    }

    /// The text after `[?(`.
    fn filter(&mut self) -> Option<()> {
        let (mut quote, mut is_closed) = (None, false);
        let mut before = '(';
        let mut end = None;
        for (at, c) in self.rest.char_indices() {
            match (c, quote) {
                ('\n', _) => return None,
                ('"' | '\'', None) => quote = Some(c),
                ('"' | '\'', Some(open)) if open == c && before != '\\' => is_closed = true,
                // Only the first text in quotes is read as one.
                (')', quote) if quote.is_some() == is_closed => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            before = c;
        }
        let text = self.take(end?);
        self.rest = self.rest.strip_prefix(")]")?;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let at = text.find(is_operator).unwrap_or(0);
        let (left, behind) = text.split_at(at);
        let right = behind.trim_start_matches(is_operator);
        let mut length = behind.len() - right.len();
        if right.is_empty() {
            // A comparison has a right side: without one, the last sign of the operator is used.
            length = length.saturating_sub(1);
        }
        let (operator, right) = behind.split_at(length);
        self.nodes.push(if left.is_empty() || operator.is_empty() {
            PathNode::Having(JsonPath::parse(text)?)
        } else {
            let (left, right) = (JsonPath::parse(left)?, JsonPath::parse(right)?);
            PathNode::Comparing(left, operator.to_owned(), right)
        });
        Some(())
    }

    fn quoted(&mut self, quote: char) -> Option<()> {
        self.skip(1);
        let mut before = quote;
        let ends = |c: char| {
            let is_end = c == '\n' || (c == quote && before != '\\');
            before = c;
            is_end
        };
        let text = self.take(self.rest.find(ends)?);
        self.rest = self.rest.strip_prefix(quote)?;
        self.nodes.push(PathNode::Text(unescaped(text, quote)?));
        Some(())
    }
}

/// Returns whether a name ends before this sign.
fn is_end(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

/// `start:end:step` with optional parts, or one position.
fn slice(text: &str) -> Option<Slice> {
    let number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
        match text {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        }
    };
    let mut parts = text.split(':');
    let start = number(parts.next()?)?;
    let (end, step) = (parts.next(), parts.next());
    let slice = Slice {
        start,
        end: match end {
            Some(end) => number(end)?,
            None => Some(start.unwrap_or(0).checked_add(1)?),
        },
        is_single: end.is_none(),
        step: number(step.unwrap_or(""))?,
    };
    parts.next().is_none().then_some(slice)
}

/// A quoted text with Go's escapes replaced.
fn unescaped(text: &str, quote: char) -> Option<String> {
    let mut read = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            read.push(c);
            continue;
        }
        // A code: its number of digits and their base.
        let (first, digits, base) = match chars.next()? {
            'a' => ('\x07', 0, 0),
            'b' => ('\x08', 0, 0),
            'f' => ('\x0c', 0, 0),
            'n' => ('\n', 0, 0),
            'r' => ('\r', 0, 0),
            't' => ('\t', 0, 0),
            'v' => ('\x0b', 0, 0),
            '\\' => ('\\', 0, 0),
            c if c == quote => (c, 0, 0),
            'x' => ('\0', 2, 16),
            'u' => ('\0', 4, 16),
            'U' => ('\0', 8, 16),
            c @ '0'..='7' => (c, 2, 8),
            _ => return None,
        };
        if digits == 0 {
            read.push(first);
            continue;
        }
        let mut code = if base == 8 { first.to_digit(8)? } else { 0 };
        for _ in 0..digits {
            let digit = chars.next()?.to_digit(base)?;
            code = code.checked_mul(base)?.checked_add(digit)?;
        }
        read.push(char::from_u32(code)?);
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_kubectl_prints() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "spec": {"mode": "on", "none": null, "one": [{"n": 1}], "empty": [], "list": [1, 2, 3, 4]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1, "ok": true}, {"type": "Other", "status": "False", "n": 2},
            ]},
        });
        let none = || None;
        let cases = [
            (".status.conditions[0].type", Some(json!(["Ready"]))),
            (".status.conditions[-1].type", Some(json!(["Other"]))),
            (".status.conditions[-1:].type", Some(json!(["Other"]))),
            (
                ".status.conditions[*].status",
                Some(json!(["True", "False"])),
            ),
            (".status.conditions.*.n", Some(json!([1, 2]))),
            (".status.conditions[].n", Some(json!([1]))),
            (".status.conditions[5].n", none()),
            (".status.conditions[0:5].n", none()),
            (".spec.list[0:2]", Some(json!([1, 2]))),
            (".spec.list[:1]", Some(json!([1]))),
            (".spec.list[2:]", Some(json!([3, 4]))),
            (".spec.list[::2]", Some(json!([1, 3]))),
            (".spec.list[3:1]", none()),
            (".spec.list[1:1]", Some(json!([]))),
            (".spec.list[0:4:0]", none()),
            (".spec.list[0,1]", Some(json!([1, 2]))),
            (".spec.list[-1, 0]", Some(json!([4, 1]))),
            (".spec.empty[*]", Some(json!([]))),
            (".spec.empty[0]", none()),
            (".spec.mode[0]", none()),
            (".spec.none[0]", Some(json!([]))),
            (".spec.none", Some(json!([null]))),
            (".spec.mode.x", Some(json!([]))),
            (".spec['mode']", Some(json!(["on"]))),
            ("..n", Some(json!([1, 1, 2]))),
            ("..conditions[0].type", Some(json!(["Ready"]))),
            (
                r#".status.conditions[?(@.type=="Ready")].status"#,
                Some(json!(["True"])),
            ),
            (
                ".status.conditions[?(@.type!='Ready')].status",
                Some(json!(["False"])),
            ),
            // The space belongs to the path, and ends the name.
            (
                ".status.conditions[?(@.type != 'Ready')].status",
                Some(json!(["False"])),
            ),
            (".status.conditions[?(@.n==2)].type", Some(json!(["Other"]))),
            (".status.conditions[?(@.n>1)].type", Some(json!(["Other"]))),
            (".status.conditions[?(@.n<=1)].type", Some(json!(["Ready"]))),
            (".status.conditions[?(@.ok)].type", Some(json!(["Ready"]))),
            (
                ".status.conditions[?(@.ok==true)].type",
                Some(json!(["Ready"])),
            ),
            (".status.conditions[?(@.n==@.n)].n", Some(json!([1, 2]))),
            // Values of different types are not compared.
            (".status.conditions[?(@.n=='1')].type", none()),
            (".status.conditions[?(@.n==1.5)].type", none()),
            (".status.conditions[?(@.type=!'R')].type", none()),
            (".spec.mode[?(@.n==2)].type", none()),
            // A dot within brackets ends a name, too.
            (".metadata.labels['a.b/c']", Some(json!([]))),
            (r".metadata.labels['a\.b/c']", Some(json!(["x"]))),
            (r".metadata.labels.a\.b/c", Some(json!(["x"]))),
            (".metadata.labels.none", Some(json!([]))),
            (".metadata.labels 'text'", Some(json!(["text"]))),
            (".spec.mode word", none()),
            (".spec.mode}", Some(json!(["on"]))),
        ];
        for (path, expect) in cases {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            let found = parsed.find(&object).map(|found| json!(found));
            assert_eq!(found, expect, "{path}");
        }
        for wrong in [
            ".a[",
            ".a[b]",
            "....",
            ".a[?(",
            ".a[?(b)",
            ".a.[?(@.b==",
            ".a[1:2:3:4]",
            ".a['b]",
            ".a[\"b\"]",
            ".a[-]",
            ".a{",
            ".a\n",
            ".a[?(@.b=~1)]",
            ".a 'b",
            ".a 1.2.3",
            ".a[0,x]",
        ] {
            assert_eq!(JsonPath::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_path_that_finds_values_over_and_over_has_a_limit() {
        let mut object = json!(1);
        for _ in 0..40 {
            object = json!({ "a": object });
        }
        let path = |text: &str| JsonPath::parse(text).expect("a path");
        let once = path("..a").find(&object).map(|found| found.len());
        assert_eq!(once, Some(40));
        assert_eq!(path(&"...*".repeat(8)).find(&object), None);
        assert_eq!(path(&"[0,0]".repeat(40)).find(&json!([[]])), None);
        assert!(JsonPath::parse(&".a".repeat(100_000)).is_some());
    }
}
