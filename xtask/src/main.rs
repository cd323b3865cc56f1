//! Tasks of the workspace's maintainers.

// A tool for maintainers reads and writes files; it is not part of the core.
#![allow(clippy::disallowed_methods)]

mod facts;
mod house;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask facts --kubernetes DIR [--check]
       cargo xtask house

facts  Writes control-plane/protobuf/facts/kubernetes.txt, the facts about Kubernetes' API types, from a source tree of
       Kubernetes: its OpenAPI and discovery documents (api/), its .proto files and its Go types (staging/).
       The resources and types to include are listed in control-plane/objects/facts/served.txt.

  --kubernetes DIR  the source tree
  --check           write nothing; exit 1 when the file is not what the command would write

house  Prints the figures of the structure of the code: lines per crate, functions that take the whole core, upward arrows
       between modules, long files, the size of the evaluator, long functions without comments.
";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<String, String> {
    let mut kubernetes = None;
    let mut check = false;
    let mut arguments = arguments.into_iter();
    match arguments.next().as_deref() {
        Some("facts") => {}
        Some("house") => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let root = root.canonicalize().map_err(|e| e.to_string())?;
            return house::report(&root);
        }
        Some("--help" | "-h" | "help") => return Ok(USAGE.to_owned()),
        _ => return Err(USAGE.to_owned()),
    }
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--kubernetes" => kubernetes = arguments.next().map(PathBuf::from),
            "--check" => check = true,
            other => return Err(format!("unknown argument {other:?}\n\n{USAGE}")),
        }
    }
    let kubernetes = kubernetes.ok_or_else(|| format!("--kubernetes is required\n\n{USAGE}"))?;
    facts::run(&kubernetes, check).map_err(|e| e.to_string())
}
