//! The errors of the parser, in the words of the CEL implementation of Kubernetes.

use crate::ast::TextPosition;
use crate::error::{Issue, Issues};
use crate::limits::DEPTH_MAX;
use cel::ParseError;

/// The error of the parser about fields in backticks.
const QUOTED_FIELD: &str = "unsupported syntax: '`'";
/// The errors of the parser about numbers that it cannot read.
const BAD_NUMBERS: [&str; 2] = ["invalid int literal", "invalid double literal"];
/// An additional error, reported if no name follows the dot of an optional field.
const NO_NAME: &str = "unsupported ident kind";
/// The starts of messages of the parser about its own tree. They add nothing to errors of the syntax.
const FOLLOW_UPS: [&str; 3] = ["No `", "Incomplete ", NO_NAME];

/// The faults of the syntax of a text.
pub(crate) fn issues(text: &str, errors: &[ParseError]) -> Issues {
    let any = |test: fn(&str) -> bool| errors.iter().any(|error| test(&error.msg));
    if any(|message| message.contains("Recursion limit")) {
        let issue = Issue {
            position: None,
            message: format!("expression recursion limit exceeded: {DEPTH_MAX}"),
        };
        return Issues::new(text, vec![issue]);
    }
    let is_syntax = any(|message| message.starts_with("Syntax error"));
    let mut issues = Vec::new();
    for error in errors {
        let message = &*error.msg;
        if is_syntax && FOLLOW_UPS.iter().any(|start| message.starts_with(start)) {
            continue;
        }
        let place = ErrorPlace::of(text, error);
        issues.push(place.issue(message));
        if message.ends_with("expecting {IDENTIFIER, ESC_IDENTIFIER}") && place.is_optional_field()
        {
            issues.push(place.issue(NO_NAME));
        }
    }
    Issues::new(text, issues)
}

/// The place of an error.
struct ErrorPlace {
    position: TextPosition,
    /// The text before it in the line.
    before: String,
}

impl ErrorPlace {
    fn of(text: &str, error: &ParseError) -> Self {
        let line = usize::try_from(error.pos.0 - 1).unwrap_or(0);
        let column = usize::try_from(error.pos.1 - 1).unwrap_or(0);
        let line_text = text.split('\n').nth(line).unwrap_or_default();
        let mut before: String = line_text.chars().take(column).collect();
        if error.msg.starts_with(QUOTED_FIELD) {
            // The parser reports where the dot before the field is.
            let between = line_text.chars().skip(column);
            before.extend(between.take_while(|one| *one != '`'));
        } else if BAD_NUMBERS.contains(&&*error.msg)
            && let Some(length) = length_before_sign(&before)
        {
            before.truncate(length);
        }
        let one_based = |index: usize| u32::try_from(index + 1).unwrap_or(u32::MAX);
        Self {
            position: TextPosition {
                line: one_based(line),
                // An empty text has no first character.
                column: match text {
                    "" => 0,
                    _ => one_based(before.chars().count()),
                },
            },
            before,
        }
    }

    fn issue(&self, message: &str) -> Issue {
        Issue {
            position: Some(self.position),
            message: message.to_owned(),
        }
    }

    /// Returns whether it is behind the dot and the question mark of an optional field.
    fn is_optional_field(&self) -> bool {
        let before = self.before.trim_end().strip_suffix('?');
        before.is_some_and(|before| before.trim_end().ends_with('.'))
    }
}

/// The length of the text before the sign of a number, if it has one. After an operand, the sign is an operator.
fn length_before_sign(before: &str) -> Option<usize> {
    let operand = before.trim_end().strip_suffix('-')?;
    let is_operand = |last: char| last.is_alphanumeric() || "_)]}\"'`".contains(last);
    (!operand.trim_end().ends_with(is_operand)).then_some(operand.len())
}
