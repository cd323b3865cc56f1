//! `/debug/pprof`: CPU and heap profiles in the format of pprof, for `go tool pprof` and others that read it.
//!
//! A CPU profile needs a build with the feature `cpu-profile`; it is sampled while the request lasts. A heap profile
//! needs a build with the feature `heap-profile`, which makes jemalloc the allocator, and the environment variable
//! `_RJEM_MALLOC_CONF=prof:true` at start.

#[cfg(feature = "cpu-profile")]
mod encode;

use super::pages::{PageAnswer, text};
use http::StatusCode;

const INDEX: &str = "\
/debug/pprof/profile?seconds=30  CPU profile
/debug/pprof/heap                heap profile
/debug/pprof/cmdline             command line
";

/// Answers a request below `/debug/pprof`.
pub(super) async fn answer(path: &str, query: &str) -> PageAnswer {
    let path = path.trim_start_matches("/debug/pprof");
    match path {
        "" | "/" => text(StatusCode::OK, INDEX),
        "/profile" => cpu(query).await,
        "/heap" | "/allocs" => heap().await,
        "/cmdline" => {
            let arguments: Vec<String> = std::env::args().collect();
            text(StatusCode::OK, arguments.join("\0"))
        }
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// The answer of a build without the cargo feature of a profile.
#[cfg(not(all(feature = "cpu-profile", feature = "heap-profile")))]
fn absent(kind: &str, feature: &str) -> PageAnswer {
    let body = format!(
        "{kind} profiles are not available: this binary was built without the cargo feature {feature}\n"
    );
    text(StatusCode::NOT_IMPLEMENTED, body)
}

#[cfg(any(feature = "cpu-profile", feature = "heap-profile"))]
fn binary(body: Vec<u8>, file: &'static str) -> PageAnswer {
    use http::header::{CONTENT_DISPOSITION, HeaderValue};
    let octets = HeaderValue::from_static("application/octet-stream");
    let mut answer = super::pages::typed(StatusCode::OK, octets, body);
    let name = HeaderValue::from_static(file);
    answer.headers_mut().insert(CONTENT_DISPOSITION, name);
    answer
}

#[cfg(any(feature = "cpu-profile", feature = "heap-profile"))]
fn failed(what: &str, error: impl std::fmt::Display) -> PageAnswer {
    let body = format!("failed to take a {what} profile: {error}\n");
    text(StatusCode::INTERNAL_SERVER_ERROR, body)
}

#[cfg(not(feature = "cpu-profile"))]
async fn cpu(_query: &str) -> PageAnswer {
    absent("CPU", "cpu-profile")
}

#[cfg(feature = "cpu-profile")]
use sampled::cpu;

/// CPU profiles.
#[cfg(feature = "cpu-profile")]
mod sampled {
    use super::super::pages::PageAnswer;
    use super::{binary, encode, failed};
    use std::time::Duration;
    use tokio::time::sleep;

    /// The number of samples of a profile per second, as in Go.
    const SAMPLES_PER_SECOND: i32 = 100;
    /// The seconds of a profile by default, and at most.
    const SECONDS: (u64, u64) = (30, 300);

    fn seconds(query: &str) -> u64 {
        let given = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("seconds="));
        let given = given.and_then(|seconds| seconds.parse().ok());
        given.unwrap_or(SECONDS.0).clamp(1, SECONDS.1)
    }

    pub(super) async fn cpu(query: &str) -> PageAnswer {
        let duration = Duration::from_secs(seconds(query));
        let guard = pprof::ProfilerGuardBuilder::default()
            .frequency(SAMPLES_PER_SECOND)
            // Their stacks cannot be walked from a signal handler.
            .blocklist(&["libc", "libgcc", "pthread", "vdso"])
            .build();
        let guard = match guard {
            Ok(guard) => guard,
            // Another profile is being taken.
            Err(error) => return failed("CPU", error),
        };
        sleep(duration).await;
        // Names of functions are looked up, which takes a while.
        let report = tokio::task::spawn_blocking(move || {
            let report = guard.report().build().map_err(|e| e.to_string())?;
            encode::cpu(&report, duration, SAMPLES_PER_SECOND).map_err(|e| e.to_string())
        });
        match report.await {
            Ok(Ok(profile)) => binary(profile, "attachment; filename=\"profile\""),
            Ok(Err(error)) => failed("CPU", error),
            Err(error) => failed("CPU", error),
        }
    }
}

#[cfg(not(feature = "heap-profile"))]
async fn heap() -> PageAnswer {
    absent("heap", "heap-profile")
}

#[cfg(feature = "heap-profile")]
async fn heap() -> PageAnswer {
    let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else {
        let body = "heap profiles are off: start Berth with the environment variable _RJEM_MALLOC_CONF=prof:true\n";
        return text(StatusCode::NOT_IMPLEMENTED, body);
    };
    match control.lock().await.dump_pprof() {
        Ok(profile) => binary(profile, "attachment; filename=\"heap\""),
        Err(error) => failed("heap", error),
    }
}
