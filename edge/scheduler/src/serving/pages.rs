//! The answers of the HTTPS port, path by path, after authentication and authorization.

use super::authn::{AuthenticatedUser, Authenticator};
use super::authz::{AccessDecision, Authorizer};
use super::health::{Health, HealthEndpoint};
use super::zpages::{self, Negotiated};
use super::{profile, status};
use crate::config_file::ConfigStatus;
use crate::dashboard::PageQuestion;
use crate::flags::{FlagValue, Level};
use crate::logs;
use crate::metrics::{EdgeMetrics, MetricFilter, render_pods};
use crate::runner::{CoreProbe, Explainer};
use crate::serve::{self, is_explained};
use crate::shadow::SharedReport;
use berth_client::election::{self, Leadership};
use berth_framework::features::Versions;
use berth_scheduler::metrics::Snapshot;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The largest body of a request, in bytes: a log level.
const BODY_BYTES_MAX: usize = 1024;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An answer.
pub(super) type PageAnswer = Response<Full<Bytes>>;

/// The data of the pages.
pub(crate) struct Shown {
    /// The release whose behaviour the process has.
    pub(crate) versions: Versions,
    /// The version of the build that is reported.
    pub(crate) version: String,
    pub(crate) started: SystemTime,
    /// The configuration in effect.
    pub(crate) config: Arc<ConfigStatus>,
    /// Every flag with its value.
    pub(crate) flags: Vec<(String, String)>,
    /// The name of the lease, and the status of the election.
    pub(crate) election: Option<(String, watch::Receiver<election::ElectionStatus>)>,
    /// Whether profiles and log levels are served.
    pub(crate) has_profiling: bool,
    /// Whether `/flagz` and `/statusz` are served.
    pub(crate) has_flagz: bool,
    pub(crate) has_statusz: bool,
    /// The agreement with another scheduler, in shadow mode.
    pub(crate) shadow: Option<SharedReport>,
}

/// See the module.
pub(super) struct Pages {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
    pub(super) health: Health,
    pub(super) shown: Shown,
    pub(super) explainer: Explainer,
    pub(super) metrics: Arc<EdgeMetrics>,
    pub(super) filter: MetricFilter,
}

impl Pages {
    fn probe(&self) -> &CoreProbe {
        self.explainer.probe()
    }

    /// Answers a request over a connection with this client certificate chain.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
    ) -> PageAnswer {
        let mut answer = match self.admit(&request, chain).await {
            Ok(()) => self.route(request).await,
            Err(refusal) => refusal,
        };
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        answer
    }

    /// Authenticates and authorizes.
    async fn admit(
        &self,
        request: &Request<Incoming>,
        chain: &[CertificateDer<'static>],
    ) -> Result<(), PageAnswer> {
        let authenticated = self.authenticator.authenticate(request.headers(), chain);
        let user: AuthenticatedUser = authenticated.await.map_err(|_| status::unauthorized())?;
        let path = request.uri().path();
        let verb = request.method().as_str().to_ascii_lowercase();
        match self.authorizer.authorize(&user, &verb, path).await {
            Ok(AccessDecision::Allowed) => Ok(()),
            Ok(AccessDecision::Denied(reason)) => {
                Err(status::forbidden(&user.name, &verb, path, &reason))
            }
            Err(error) => {
                tracing::error!(%error, "failed to review the access of a request to the HTTPS port");
                Err(status::internal_error(path, &error.to_string()))
            }
        }
    }

    async fn route(&self, request: Request<Incoming>) -> PageAnswer {
        let method = request.method().clone();
        let (path, query) = (request.uri().path().to_owned(), request.uri().query());
        let query = query.unwrap_or_default().to_owned();
        match (method, path.as_str()) {
            (Method::DELETE, "/metrics" | "/metrics/slis" | "/metrics/resources") => {
                self.reset(&path).await
            }
            (Method::PUT, "/debug/flags/v") if self.shown.has_profiling => {
                set_verbosity(request).await
            }
            (Method::GET | Method::HEAD, path) => self.get(path, &query, request.headers()).await,
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n"),
        }
    }

    async fn get(&self, path: &str, query: &str, headers: &HeaderMap) -> PageAnswer {
        for endpoint in HealthEndpoint::ALL {
            let Some(rest) = path
                .strip_prefix('/')
                .and_then(|p| p.strip_prefix(endpoint.name()))
            else {
                continue;
            };
            if rest.is_empty() || rest == "/" {
                let (code, body) = self.health.answer(endpoint, query);
                return text(code, body);
            }
            if let Some((code, body)) = rest
                .strip_prefix('/')
                .and_then(|check| self.health.answer_of(endpoint, check))
            {
                return text(code, body);
            }
        }
        let shown = &self.shown;
        match path {
            "/metrics" => match self.metrics_text().await {
                Some(body) => metrics(body, headers),
                None => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the scheduler does not answer\n",
                ),
            },
            "/metrics/slis" => metrics(self.slis(), headers),
            "/metrics/resources" => {
                if self.is_leader() {
                    let pods = self.probe().pods().await.unwrap_or_default();
                    metrics(render_pods(&pods), headers)
                } else {
                    text(StatusCode::OK, "")
                }
            }
            "/shadow" if shown.shadow.is_some() => {
                let report = shown
                    .shadow
                    .as_ref()
                    .map(SharedReport::get)
                    .unwrap_or_default();
                json_answer(&serde_json::to_value(&report).unwrap_or_default())
            }
            "/dashboard" => serve::page(),
            path if path.starts_with("/dashboard/") => match PageQuestion::of(path, query) {
                Some(question) => serve::data(self.probe().dashboard(question).await, headers),
                None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            },
            "/configz" => json_answer(&shown.config.page()),
            "/version" => json_answer(&self.version()),
            path if is_explained(path) => {
                let (status, json) = self.explainer.answer(path).await;
                typed(status, HeaderValue::from_static(JSON), json)
            }
            "/flagz" if shown.has_flagz => {
                let negotiated = Negotiated::of(headers.get(ACCEPT), "Flagz");
                zpages::flagz(shown, negotiated)
            }
            "/statusz" if shown.has_statusz => {
                let negotiated = Negotiated::of(headers.get(ACCEPT), "Statusz");
                zpages::statusz(shown, &self.paths(), &self.notes(), negotiated)
            }
            "/debug/flags/v" if shown.has_profiling => {
                text(StatusCode::NOT_ACCEPTABLE, "unsupported http method")
            }
            path if shown.has_profiling && path.starts_with("/debug/pprof") => {
                profile::answer(path, query).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    /// The paths that kube-scheduler lists. Paths that only Berth has are in its documentation.
    fn paths(&self) -> Vec<&'static str> {
        let listed = [
            "/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz",
        ];
        let is_served = |path: &&str| *path != "/flagz" || self.shown.has_flagz;
        listed.into_iter().filter(is_served).collect()
    }

    /// The notes for operators about the state: leadership, and disabled parts.
    fn notes(&self) -> Vec<(&'static str, String)> {
        let mut notes = Vec::new();
        let leads = match &self.shown.election {
            None => "yes, without leader election".to_owned(),
            Some((lease, status)) => {
                let status = status.borrow();
                match status.leadership {
                    Leadership::Leading => format!("yes, by lease {lease}"),
                    _ if status.leader.is_empty() => format!("no, lease {lease} has no holder"),
                    _ => format!("no, lease {lease} is held by {}", status.leader),
                }
            }
        };
        notes.push(("Leader", leads));
        let synced = if self.probe().is_ready() {
            "yes"
        } else {
            "no, waiting for the first list of every kind"
        };
        notes.push(("Synced", synced.to_owned()));
        notes.extend(
            self.probe()
                .unavailable()
                .into_iter()
                .map(|text| ("Unavailable", text)),
        );
        notes
    }

    fn is_leader(&self) -> bool {
        let election = self.shown.election.as_ref();
        election.is_none_or(|(_, status)| status.borrow().leadership == Leadership::Leading)
    }

    async fn metrics_text(&self) -> Option<String> {
        let core = self.probe().metrics().await?;
        let election = self.shown.election.as_ref();
        let status = election.map(|(lease, status)| {
            let name = lease.rsplit('/').next().unwrap_or_default().to_owned();
            (name, status.borrow().clone())
        });
        let status = status
            .as_ref()
            .map(|(name, status)| (name.as_str(), status));
        let edge = self
            .metrics
            .snapshot(status, &self.probe().unreadable_objects());
        let mut families = core.families;
        families.extend(edge.families);
        let spreads = self.explainer.known_spreads();
        families.extend(crate::metrics::spread_snapshot(&spreads).families);
        if let Some(shadow) = &self.shown.shadow {
            families.extend(shadow.snapshot().families);
        }
        self.filter.apply(&mut families);
        families.sort_by_key(|family| family.family.name);
        Some(Snapshot { families }.render())
    }

    fn slis(&self) -> String {
        let mut families = self.health.snapshot().families;
        self.filter.apply(&mut families);
        Snapshot { families }.render()
    }

    async fn reset(&self, path: &str) -> PageAnswer {
        if path == "/metrics" {
            self.probe().reset_metrics().await;
            self.metrics.reset();
        }
        text(StatusCode::OK, "metrics reset\n")
    }

    fn version(&self) -> Value {
        let emulated = self.shown.versions.emulated.as_str();
        let (major, minor) = emulated.split_once('.').unwrap_or_default();
        json!({
            "major": major,
            "minor": minor,
            "gitVersion": self.shown.version,
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "",
            "goVersion": "",
            "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        })
    }
}

/// Changes the verbosity of the log to that in the body.
async fn set_verbosity(request: Request<Incoming>) -> PageAnswer {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX)
        .collect()
        .await;
    let Ok(body) = body.map(|body| body.to_bytes()) else {
        return text(StatusCode::BAD_REQUEST, "error reading request body\n");
    };
    let given = String::from_utf8_lossy(&body);
    match Level::read(&[given.trim()]) {
        Ok(level) => {
            logs::set_verbosity(level);
            let done = format!("successfully set the log verbosity to {}", level.0);
            text(StatusCode::OK, done)
        }
        Err(reason) => text(
            StatusCode::BAD_REQUEST,
            format!(
                "failed to set the log verbosity to {:?}: {reason}\n",
                given.trim()
            ),
        ),
    }
}

/// A plain text.
pub(super) fn text(code: StatusCode, body: impl Into<Bytes>) -> PageAnswer {
    typed(code, HeaderValue::from_static(TEXT), body)
}

/// A body of some type.
pub(super) fn typed(
    code: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> PageAnswer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

fn json_answer(value: &Value) -> PageAnswer {
    typed(
        StatusCode::OK,
        HeaderValue::from_static(JSON),
        value.to_string(),
    )
}

/// Metrics, compressed when they are long and the client can read that.
fn metrics(body: String, headers: &HeaderMap) -> PageAnswer {
    serve::compressible(METRICS, body, headers)
}
