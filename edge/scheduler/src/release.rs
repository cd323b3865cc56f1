//! The release of Kubernetes whose behaviour a process has: from `--emulated-version`, or from the API server.

use crate::exit::CommandFailure;
use crate::flags::Flags;
use crate::settings;
use berth_api::Release;
use berth_client::request::get_path;
use berth_client::{ConnectOptions, Transport, connect};
use berth_framework::features::Versions;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The time for which the version of an unresponsive API server is requested.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_secs(2);
/// The time that a single request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A release, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The release.
    pub release: Release,
    /// For the log.
    pub reason: String,
}

/// The interval of version requests to an unresponsive API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskingInterval {
    /// Once.
    Once,
    /// Until it answers, for a minute at most.
    Patiently,
}

/// The version that this process reports of itself: `v1.37.0+berth-0.1.0`.
pub(crate) fn reported(release: Release) -> String {
    format!("v{release}.0+berth-{}", env!("CARGO_PKG_VERSION"))
}

/// The answer to `/version`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    major: String,
    minor: String,
    #[serde(default)]
    git_version: String,
}

impl ServerVersion {
    /// The release that is closest to it: never above the newest that Berth has, nor below the oldest.
    fn release(&self) -> Option<Release> {
        // Some providers write `37+`.
        let minor = self.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
        match (self.major.as_str(), minor.parse()) {
            ("1", Ok(minor)) => Some(Release::closest_to_minor(minor)),
            _ => None,
        }
    }
}

/// The release for a command line: from `--emulated-version`, else from the API server.
///
/// # Errors
/// `--emulated-version` is not a supported release.
pub(crate) async fn choose(
    flags: &Flags,
    user_agent: String,
    asking: AskingInterval,
) -> Result<Chosen, CommandFailure> {
    let given = &flags.features.emulated_version.value;
    if let Some(release) = Versions::emulated(given).map_err(CommandFailure::usage)? {
        return Ok(Chosen {
            release,
            reason: "--emulated-version".to_owned(),
        });
    }
    let master = &flags.misc.master.value;
    let options = ConnectOptions {
        kubeconfig: settings::kubeconfig(flags).map(PathBuf::from),
        context: None,
        server: (!master.is_empty()).then(|| master.clone()),
        user_agent,
    };
    match connect(&options).await {
        Ok(transport) => Ok(of_server(&transport, asking).await),
        // Code that needs the connection reports the error.
        Err(_) => Ok(newest("there is no usable kubeconfig")),
    }
}

/// Reads a supported release, in the syntax of `--emulated-version`.
///
/// # Errors
/// The fault of the text.
pub fn supported(text: &str) -> Result<Release, String> {
    match Versions::emulated(&[text.to_owned()]) {
        Ok(Some(release)) => Ok(release),
        Ok(None) => Err("no version is given".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn newest(reason: &str) -> Chosen {
    Chosen {
        release: Release::NEWEST,
        reason: format!("the newest release that Berth has, because {reason}"),
    }
}

/// The release of an API server; the newest release if the server does not answer.
pub async fn of_server(transport: &Transport, asking: AskingInterval) -> Chosen {
    let server = transport.server();
    let request = get_path("/version");
    let asked_until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = transport.request::<ServerVersion>(&request);
        let mut may_pass = true;
        let error = match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
            Ok(Ok(version)) => {
                let shown = &version.git_version;
                return match version.release() {
                    Some(release) => Chosen {
                        release,
                        reason: format!("the API server at {server} is {shown}"),
                    },
                    None => newest(&format!(
                        "the API server at {server} reports the unknown version {shown:?}"
                    )),
                };
            }
            Ok(Err(error)) => {
                let code = error.code();
                // A client error is permanent; a busy server may answer later.
                may_pass = !code.is_some_and(|code| (400..500).contains(&code) && code != 429);
                error.to_string()
            }
            Err(_) => "no answer in time".to_owned(),
        };
        if asking == AskingInterval::Once || !may_pass || tokio::time::Instant::now() >= asked_until
        {
            tracing::warn!(
                "failed to read the version of the API server at {server}: {error}; behaving as Kubernetes {}; set \
                 --emulated-version to the version of the cluster",
                Release::NEWEST
            );
            return newest("the API server did not report its version");
        }
        tracing::warn!(
            "failed to read the version of the API server at {server}: {error}; retrying in {}s",
            PAUSE.as_secs()
        );
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-47.
    #[test]
    fn the_release_is_the_servers_within_those_that_berth_has() {
        for (major, minor, expected) in [
            ("1", "34", Some(Release::V1_36)),
            ("1", "36", Some(Release::V1_36)),
            ("1", "37+", Some(Release::V1_37)),
            ("1", "38", Some(Release::V1_38)),
            ("1", "40", Some(Release::V1_38)),
            ("2", "0", None),
            ("1", "", None),
        ] {
            let version = ServerVersion {
                major: major.to_owned(),
                minor: minor.to_owned(),
                git_version: String::new(),
            };
            assert_eq!(version.release(), expected, "{major}.{minor}");
        }
    }
}
