//! The sources of a crate, without tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The sources of a crate.
#[derive(Debug, Default)]
pub(crate) struct CrateSource {
    /// The folder, such as `scheduler/core`.
    pub(crate) folder: String,
    pub(crate) files: Vec<SourceFile>,
}

/// A source without the tests in it.
#[derive(Debug, Default)]
pub(crate) struct SourceFile {
    /// The path from the root of the project.
    pub(crate) path: String,
    /// The modules from the root of the crate; empty for the root.
    pub(crate) modules: Vec<String>,
    /// The number of lines, including tests and comments.
    pub(crate) all_lines: usize,
    /// The lines that are not part of a test.
    pub(crate) lines: Vec<String>,
}

/// A function with a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundFunction {
    /// The lines of the function.
    pub(crate) lines: usize,
    /// Whether the body contains a comment.
    pub(crate) has_comment: bool,
    /// The parameters as text.
    parameters: String,
}

/// The folders in a folder, sorted.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn folders(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = entries(folder)?;
    Ok(entries.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("failed to read {}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name == "tests" || name == "testing" || name.ends_with("_tests")
}

impl CrateSource {
    /// Reads the sources of a crate.
    ///
    /// # Errors
    /// When a source cannot be read.
    pub(crate) fn read(root: &Path, folder: &Path) -> Result<Self, String> {
        let shown = folder.strip_prefix(root).unwrap_or(folder);
        let mut read = Self {
            folder: shown.display().to_string(),
            files: Vec::new(),
        };
        read.add(root, &folder.join("src"), &[])?;
        Ok(read)
    }

    fn add(&mut self, root: &Path, folder: &Path, modules: &[String]) -> Result<(), String> {
        for path in entries(folder)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let inner = [modules, &[name.to_string()]].concat();
            if is_test(&path) {
                continue;
            }
            if path.is_dir() {
                self.add(root, &path, &inner)?;
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path);
                let text = text.map_err(|e| format!("failed to read {}: {e}", path.display()))?;
                let shown = path.strip_prefix(root).unwrap_or(&path);
                let is_root = modules.is_empty() && matches!(&*name, "lib" | "main");
                let modules = if is_root { Vec::new() } else { inner };
                let path = shown.display().to_string();
                self.files.push(SourceFile::new(path, modules, &text));
            }
        }
        Ok(())
    }

    /// The folder of the crate's group.
    pub(crate) fn group(&self) -> &str {
        self.folder.split('/').next().unwrap_or(&self.folder)
    }
}

impl SourceFile {
    pub(crate) fn new(path: String, modules: Vec<String>, text: &str) -> Self {
        let (mut lines, mut rest) = (Vec::new(), text.lines());
        while let Some(line) = rest.next() {
            if line != "#[cfg(test)]" {
                lines.push(line.to_owned());
            } else if let Some(item) = rest.next()
                && !item.ends_with([';', '}'])
            {
                // The test item ends with the next bracket at the beginning of a line.
                rest.by_ref().find(|line| line.starts_with(['}', ')']));
            }
        }
        Self {
            path,
            modules,
            all_lines: text.lines().count(),
            lines,
        }
    }

    /// The number of lines with code.
    pub(crate) fn code_lines(&self) -> usize {
        let code = self.lines.iter().filter(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        });
        code.count()
    }

    /// The items that begin with one of these words at the beginning of a line.
    pub(crate) fn count(&self, words: &[&str]) -> usize {
        let items = self.lines.iter().filter(|line| {
            let mut parts = line.split_ascii_whitespace();
            let first = parts.find(|part| !part.starts_with("pub"));
            !line.starts_with(' ') && first.is_some_and(|first| words.contains(&first))
        });
        items.count()
    }

    /// The number of methods in `impl` blocks of a type.
    pub(crate) fn methods_of(&self, name: &str) -> usize {
        let (begin, mut inside, mut count) = (format!("impl {name} {{"), false, 0);
        for line in &self.lines {
            inside = match line.as_str() {
                "}" => false,
                line => inside || line == begin,
            };
            let is_method = line.starts_with("    ") && !line.starts_with("     ");
            count += usize::from(inside && is_method && begins_function(line));
        }
        count
    }

    /// The functions with a body. The end of a function has the indentation of its beginning.
    pub(crate) fn functions(&self) -> Vec<FoundFunction> {
        let mut found = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if !begins_function(line) {
                continue;
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            let rest = &self.lines[at..];
            let signature = rest
                .iter()
                .position(|line| line.ends_with(['{', ';', '}']))
                .unwrap_or(0);
            let text: Vec<&str> = rest[..=signature].iter().map(|line| line.trim()).collect();
            let text = text.join(" ");
            if text.ends_with(';') {
                continue;
            }
            let end = if text.ends_with('}') {
                signature
            } else {
                let end = format!("{indent}}}");
                let is_end = |line: &String| *line == end;
                rest.iter().position(is_end).unwrap_or(signature)
            };
            let body = &rest[signature..=end];
            let (parameters, _) = text.split_once(") ->").unwrap_or((&text, ""));
            found.push(FoundFunction {
                lines: end + 1,
                has_comment: body.iter().any(|line| line.trim_start().starts_with("//")),
                parameters: parameters.to_owned(),
            });
        }
        found
    }
}

impl FoundFunction {
    /// Returns whether a parameter has a type, as value or reference.
    pub(crate) fn takes(&self, name: &str) -> bool {
        let types = self.parameters.split(": ").skip(1);
        let mut types = types.map(|text| text.trim_start_matches(['&', ' ']));
        types.any(|text| {
            let text = text.trim_start_matches("mut ");
            let rest = text.strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    }
}

/// Returns whether a function begins on a line.
fn begins_function(line: &str) -> bool {
    let mut words = line.trim_start().split(' ').skip_while(|word| {
        word.starts_with("pub") || ["async", "const", "in"].contains(word) || word.ends_with(')')
    });
    words.next() == Some("fn")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
//! A module.

pub(crate) struct Door;

#[cfg(test)]
mod other_tests;

#[cfg(test)]
mod inner {
    fn test(core: &Core) {}
}

const LIMIT: usize = 1;

impl Core {
    pub(crate) fn open(&mut self) -> bool {
        true
    }

    fn close(&mut self) {}
}

fn run(
    core: &mut Core,
    now: Time,
) -> Core {
    // The reason.
    core.open();
}

fn cored(core: CoreOptions) -> Core {
    core.into()
}

#[cfg(test)]
mod tests {
    fn test(core: &Core) {}
}
";

    #[test]
    fn the_figures_of_a_file_leave_tests_out() {
        let file = SourceFile::new("a.rs".to_owned(), vec!["a".to_owned()], TEXT);
        assert_eq!(file.code_lines(), 17);
        assert_eq!(file.all_lines, 38);
        assert_eq!((file.count(&["struct"]), file.count(&["const"])), (1, 1));
        assert_eq!(file.methods_of("Core"), 2);
        let functions = file.functions();
        let taking: Vec<bool> = functions.iter().map(|f| f.takes("Core")).collect();
        assert_eq!(taking, [false, false, true, false]);
        let lines: Vec<usize> = functions.iter().map(|f| f.lines).collect();
        assert_eq!(lines, [3, 1, 7, 3]);
        let comments: Vec<bool> = functions.iter().map(|f| f.has_comment).collect();
        assert_eq!(comments, [false, false, true, false]);
    }
}
