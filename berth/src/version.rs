//! `berth version`: the version of this program and of the API server that it reaches. `berth completion SHELL`.

use crate::cli::{self, CompletionArgs, ManArgs, VersionArgs};
use berth_api::Release;
use berth_client::{connect, request};
use berth_edge::exit::CommandFailure;
use berth_edge::print::Output;
use berth_edge::print::{self, print_line, program};
use serde_json::{Value, json};
use std::time::Duration;

/// The time that the API server may take to answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Prints the versions.
///
/// # Errors
/// When the API server of the kubeconfig cannot be reached; the version of this program is printed before.
pub(crate) async fn run(args: VersionArgs) -> Result<(), CommandFailure> {
    let version = env!("CARGO_PKG_VERSION");
    let kubernetes = format!("{} to {}", Release::OLDEST, Release::NEWEST);
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let client = json!({
        "version": format!("v{version}"),
        "kubernetes": kubernetes,
        "platform": platform,
    });
    if args.output == Output::Text {
        // The client version is printed at once: the server may take a while.
        print_line!("Client Version: v{version} (behaves as Kubernetes {kubernetes}, {platform})")?;
    }
    let server = if args.client {
        None
    } else {
        server(&args).await
    };
    if args.output == Output::Json {
        let mut versions = json!({"client": client});
        if let Some(Ok((url, version))) = &server {
            versions["server"] = version.clone();
            versions["server"]["url"] = url.clone().into();
        }
        print_line!("{versions}")?;
    }
    match server {
        None => Ok(()),
        Some(Ok(_)) if args.output == Output::Json => Ok(()),
        Some(Ok((url, version))) => {
            let version = version["gitVersion"].as_str().unwrap_or("unknown");
            print_line!("Server Version: {version} ({url})")
        }
        Some(Err(failure)) => Err(failure),
    }
}

/// The URL and the version of the API server; `None` when no kubeconfig names one.
async fn server(args: &VersionArgs) -> Option<Result<(String, Value), CommandFailure>> {
    let is_given = args.kubeconfig.is_given();
    let options = args.kubeconfig.connect_options("version");
    let transport = match connect(&options).await {
        Ok(transport) => transport.asking_once(),
        Err(error) if is_given => return Some(Err(CommandFailure::environment(error))),
        Err(_) => return None,
    };
    let url = transport.server().to_owned();
    let kubeconfig = args.kubeconfig.choice().described();
    let version = request::get_path("/version");
    let answer = tokio::time::timeout(SERVER_TIMEOUT, transport.request::<Value>(&version)).await;
    let unreachable = |why: String| {
        CommandFailure::Environment(format!(
            "failed to reach the API server at {url} (kubeconfig {kubeconfig}): {why}; name another kubeconfig with \
             --kubeconfig PATH, or print the version of this program alone with --client"
        ))
    };
    Some(match answer {
        Ok(Ok(version)) => Ok((url, version)),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!(
            "no answer within {} s",
            SERVER_TIMEOUT.as_secs()
        ))),
    })
}

/// Prints the completions of a shell.
///
/// # Errors
/// When the output is not read.
pub(crate) fn completion(args: &CompletionArgs) -> Result<(), CommandFailure> {
    let mut script = Vec::new();
    // As a plugin, the name has a space, and kubectl completes it itself.
    let name = program().replace(' ', "-");
    clap_complete::generate(args.shell, &mut cli::command(), name, &mut script);
    print::text(String::from_utf8_lossy(&script))
}

/// Writes the manual pages: one of each command.
///
/// # Errors
/// When a page cannot be written.
pub(crate) fn man(args: &ManArgs) -> Result<(), CommandFailure> {
    let directory = &args.directory;
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(cli::command(), directory));
    written.map_err(|error| {
        CommandFailure::environment(format!(
            "the manual pages cannot be written into {}: {error}",
            directory.display()
        ))
    })
}
