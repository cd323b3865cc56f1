//! The end of a container, derived from a simple command: `true`, `false`, `exit 3`, `sleep 5`, `echo done`, and
//! sequences of them in a shell. Nothing is executed. Any other command runs until its pod is deleted.

use berth_objects::object::items;
use serde_json::Value;
use std::time::Duration;

/// The longest time that a command sleeps; a longer time is unlimited.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;
/// A longer script is not read.
const SCRIPT_BYTES_MAX: usize = 4096;

/// The end of a container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ending {
    /// The run time.
    pub(super) after: Duration,
    pub(super) exit_code: i32,
}

/// The end of a container by its command; `None` when the command does not show it.
pub(super) fn ending(container: &Value) -> Option<Ending> {
    let parts = ["command", "args"].map(|field| items(&container[field]));
    let words: Option<Vec<&str>> = parts.into_iter().flatten().map(Value::as_str).collect();
    let words = words?;
    let (program, arguments) = words.split_first()?;
    if matches!(base_name(program), "sh" | "bash" | "ash" | "dash") {
        let (flags, script) = match arguments {
            [flags, script, ..] => (*flags, *script),
            _ => return None,
        };
        let flags = flags.strip_prefix('-')?;
        let is_known = flags.ends_with('c') && flags.chars().all(|c| "ceux".contains(c));
        return is_known.then(|| Shell::new(flags.contains('e')).run(script))?;
    }
    // Builtins such as `exit` need a shell.
    let is_plain = words.iter().all(|word| !word.contains('$'));
    match *program {
        "exit" | ":" => None,
        _ if is_plain => simple(base_name(program), arguments),
        _ => None,
    }
}

fn base_name(program: &str) -> &str {
    for directory in ["/bin/", "/usr/bin/"] {
        if let Some(name) = program.strip_prefix(directory) {
            return name;
        }
    }
    program
}

/// The end of a command with its own program.
fn simple(program: &str, arguments: &[&str]) -> Option<Ending> {
    let at_once = |exit_code| {
        Some(Ending {
            after: Duration::ZERO,
            exit_code,
        })
    };
    match program {
        "true" | "echo" => at_once(0),
        "false" => at_once(1),
        "sleep" if !arguments.is_empty() => {
            let times: Option<Vec<f64>> = arguments.iter().map(|a| seconds(a)).collect();
            let total: f64 = times?.iter().sum();
            (total <= SECONDS_MAX).then(|| Ending {
                after: Duration::from_secs_f64(total),
                exit_code: 0,
            })
        }
        _ => None,
    }
}

/// `5`, `0.5`, `5s`, `2m`, `1h`, `1d` in seconds.
fn seconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let unit = match text.get(digits.len()..)? {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number: f64 = digits.parse().ok().filter(|_| is_number)?;
    Some(number * unit)
}

/// The operator between two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Always,
    OnSuccess,
    OnFailure,
}

/// A script that is read to its end or its first `exit`.
struct Shell {
    /// Whether a command that fails ends the script (`set -e`).
    ends_on_failure: bool,
    after: Duration,
    status: i32,
}

impl Shell {
    fn new(ends_on_failure: bool) -> Self {
        Self {
            ends_on_failure,
            after: Duration::ZERO,
            status: 0,
        }
    }

    fn run(mut self, script: &str) -> Option<Ending> {
        let commands = commands(script)?;
        let mut runs = true;
        for (at, (words, then)) in commands.iter().enumerate() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if runs && !words.is_empty() {
                let is_end = self.take(&words)?;
                let is_tested = *then != Then::Always && at + 1 < commands.len();
                if is_end || (self.ends_on_failure && self.status != 0 && !is_tested) {
                    break;
                }
            }
            runs = match then {
                Then::Always => true,
                Then::OnSuccess => self.status == 0,
                Then::OnFailure => self.status != 0,
            };
        }
        Some(Ending {
            after: self.after,
            exit_code: self.status,
        })
    }

    /// Carries out one command. Returns whether the script ends with it.
    fn take(&mut self, words: &[&str]) -> Option<bool> {
        let (program, arguments) = words.split_first()?;
        match (*program, arguments) {
            ("exit", []) => return Some(true),
            ("exit", [code]) => {
                let code: u32 = code.parse().ok()?;
                // A shell keeps the lowest eight bits of the status.
                self.status = i32::try_from(code % 256).ok()?;
                return Some(true);
            }
            (":", _) => self.status = 0,
            ("set", flags) => {
                for flag in flags {
                    let flags = flag.strip_prefix('-')?;
                    // Other flags change how a script is read, which cannot be predicted here.
                    if !flags.chars().all(|c| "eux".contains(c)) {
                        return None;
                    }
                    self.ends_on_failure |= flags.contains('e');
                }
                self.status = 0;
            }
            ("exec", [program, arguments @ ..]) => {
                let ending = simple(base_name(program), arguments)?;
                self.add(ending);
                // `exec` replaces the shell: the following commands never run.
                return Some(true);
            }
            (program, arguments) => {
                let ending = simple(base_name(program), arguments)?;
                self.add(ending);
            }
        }
        Some(false)
    }

    fn add(&mut self, ending: Ending) {
        self.after = self.after.saturating_add(ending.after);
        self.status = ending.exit_code;
    }
}

/// The commands of a script, each with the following operator; `None` for a script with other elements than words,
/// quotes, `;`, `&&` and `||`.
fn commands(script: &str) -> Option<Vec<(Vec<String>, Then)>> {
    if script.len() > SCRIPT_BYTES_MAX {
        return None;
    }
    let mut commands = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        let then = match c {
            ' ' | '\t' => {
                words.extend(word.take());
                continue;
            }
            '\'' | '"' => {
                let text = word.get_or_insert_with(String::new);
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        // The shell would replace these.
                        '$' | '`' | '\\' if c == '"' => return None,
                        other => text.push(other),
                    }
                }
                continue;
            }
            ';' | '\n' => Then::Always,
            '&' if chars.next_if_eq(&'&').is_some() => Then::OnSuccess,
            '|' if chars.next_if_eq(&'|').is_some() => Then::OnFailure,
            '$' | '`' | '\\' | '&' | '|' | '<' | '>' | '(' | ')' | '{' | '}' | '#' | '*' | '?'
            | '[' | '!' | '~' | '=' => return None,
            other => {
                word.get_or_insert_with(String::new).push(other);
                continue;
            }
        };
        words.extend(word.take());
        commands.push((std::mem::take(&mut words), then));
    }
    words.extend(word.take());
    commands.push((words, Then::Always));
    Some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(command: &[&str]) -> Option<(f64, i32)> {
        let ending = ending(&json!({"name": "c", "command": command}))?;
        Some((ending.after.as_secs_f64(), ending.exit_code))
    }

    #[test]
    fn plain_commands_state_when_and_how_they_end() {
        for (command, expect) in [
            (&["true"][..], (0.0, 0)),
            (&["/bin/true"], (0.0, 0)),
            (&["false"], (0.0, 1)),
            (&["/usr/bin/false"], (0.0, 1)),
            (&["sleep", "2.5"], (2.5, 0)),
            (&["sleep", "1m", "5s"], (65.0, 0)),
            (&["/bin/sleep", "1h"], (3600.0, 0)),
            (&["echo", "hello", "world"], (0.0, 0)),
            (&["sh", "-c", "exit 1"], (0.0, 1)),
            (&["sh", "-c", "exit"], (0.0, 0)),
            (&["/bin/sh", "-c", "exit 257"], (0.0, 1)),
            (&["/bin/sh", "-c", "sleep 2; exit 3"], (2.0, 3)),
            (&["bash", "-c", "sleep 2 && exit 3 ; sleep 9"], (2.0, 3)),
            (&["sh", "-c", "echo 'a; b' && false"], (0.0, 1)),
            (&["sh", "-c", "false && sleep 5"], (0.0, 1)),
            (&["sh", "-c", "false || sleep 5"], (5.0, 0)),
            (&["sh", "-c", "false; sleep 5"], (5.0, 0)),
            (&["sh", "-c", "set -e; false; sleep 5"], (0.0, 1)),
            (&["sh", "-ec", "false\nsleep 5"], (0.0, 1)),
            (&["sh", "-ec", "false || true\nsleep 5"], (5.0, 0)),
            (&["sh", "-c", "sleep 1\nexit 42\n"], (1.0, 42)),
            (&["sh", "-c", "exec sleep 3; exit 9"], (3.0, 0)),
            (&["sh", "-c", "\"exit\" '7'"], (0.0, 7)),
            (&["sh", "-c", ""], (0.0, 0)),
            (&["sh", "-c", ":; :"], (0.0, 0)),
        ] {
            assert_eq!(of(command), Some(expect), "{command:?}");
        }
        let with_arguments = json!({"name": "c", "command": ["sh", "-c"], "args": ["exit 4"]});
        assert_eq!(ending(&with_arguments).map(|e| e.exit_code), Some(4));
        let only_arguments = json!({"name": "c", "args": ["sleep", "5"]});
        assert_eq!(
            ending(&only_arguments).map(|e| e.after),
            Some(Duration::from_secs(5))
        );
    }

    #[test]
    fn other_commands_do_not_show_their_end() {
        for command in [
            &[][..],
            &["nginx"],
            &["exit", "1"],
            &["sleep"],
            &["sleep", "infinity"],
            &["sleep", "1e9"],
            &["sleep", "-1"],
            &["sleep", "$(SECONDS)"],
            &["sh"],
            &["sh", "script.sh"],
            &["sh", "-c"],
            &["sh", "-lc", "exit 1"],
            &["sh", "-c", "exit $CODE"],
            &["sh", "-c", "exit one"],
            &["sh", "-c", "sleep 5 & exit 1"],
            &["sh", "-c", "echo a > b"],
            &["sh", "-c", "true | false"],
            &["sh", "-c", "while true; do sleep 1; done"],
            &["sh", "-c", "if true; then exit 1; fi"],
            &["sh", "-c", "A=1 true"],
            &["sh", "-c", "echo \"$(date)\""],
            &["sh", "-c", "echo 'unfinished"],
            &["sh", "-c", "trap 'exit 0' TERM"],
            &["python", "-c", "exit(1)"],
            &["./true"],
        ] {
            assert_eq!(of(command), None, "{command:?}");
        }
        let long = format!("exit 1;{}", " ".repeat(SCRIPT_BYTES_MAX));
        assert_eq!(of(&["sh", "-c", &long]), None);
    }
}
