//! Replays a transcript of a live API server against a new server of Berth, over HTTPS.
//!
//! Values that vary between two runs are mapped, not ignored: the recorded UIDs, resource versions and generated names
//! correspond to the live ones at every occurrence, in both directions. For times, ages and `continue` tokens, only the
//! kind of value is compared.

mod compare;

use crate::report::CaseReport;
use berth_api::Release;
use berth_apiserver::admission::Admission;
use berth_apiserver::testing::{Ask, Loopback, Reply};
use berth_apiserver::{Server, ServerOptions};
use berth_objects::releases::ApiRelease;
use compare::Mapping;
use serde::Deserialize;
use serde_json::Value;
use std::io::BufRead;

/// One exchange of a transcript.
#[derive(Debug, Deserialize)]
struct Exchange {
    name: String,
    request: Recorded,
    response: ExpectedResponse,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    method: String,
    path: String,
    content_type: Option<String>,
    accept: Option<String>,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpectedResponse {
    status: u16,
    content_type: Option<String>,
    #[serde(default)]
    body: Value,
}

/// Replays a transcript (JSON lines), in order, from an empty cluster of a release.
pub fn replay(reader: impl BufRead, release: Release) -> CaseReport {
    let mut report = CaseReport::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(replay_all(reader, release, &mut report)),
        Err(e) => report.fail("start", format!("cannot start a runtime: {e}")),
    }
    report
}

async fn replay_all(reader: impl BufRead, release: Release, report: &mut CaseReport) {
    // The options of the recording: no service accounts for pods, no taints of new nodes, otherwise defaults.
    let options = ServerOptions {
        api: ApiRelease::of(release),
        admission: Admission {
            service_account: false,
            taint_nodes_by_condition: false,
            ..Admission::default()
        },
        ..ServerOptions::default()
    };
    let server = match Server::start(options).await {
        Ok(server) => server,
        Err(e) => return report.fail("start", e.to_string()),
    };
    match Loopback::new(&server) {
        Ok(client) => {
            let mut mapping = Mapping::default();
            for (i, line) in reader.lines().enumerate() {
                replay_line(i + 1, line, &client, &mut mapping, report).await;
            }
        }
        Err(e) => report.fail("start", e.to_string()),
    }
    server.shutdown().await;
}

async fn replay_line(
    number: usize,
    line: std::io::Result<String>,
    client: &Loopback,
    mapping: &mut Mapping,
    report: &mut CaseReport,
) {
    let exchange: Exchange = match line.map(|l| serde_json::from_str(&l)) {
        Ok(Ok(exchange)) => exchange,
        Ok(Err(e)) => return report.fail(format!("line {number}"), format!("no exchange: {e}")),
        Err(e) => return report.fail(format!("line {number}"), format!("cannot be read: {e}")),
    };
    let ask = ask_of(&exchange.request, mapping);
    let reply = match client.ask(&ask).await {
        Ok(reply) => reply,
        Err(e) => return report.fail(exchange.name, e.to_string()),
    };
    let differences = compare_reply(&exchange, &reply, mapping);
    if differences.is_empty() {
        report.pass(exchange.name);
    } else {
        report.fail(exchange.name, differences.join("; "));
    }
}

fn ask_of(request: &Recorded, mapping: &Mapping) -> Ask {
    let body = match &request.body {
        Value::Null => Vec::new(),
        // The transcript contains a body that is not JSON, as text.
        Value::String(text) => text.clone().into_bytes(),
        body => mapping.live(body).to_string().into_bytes(),
    };
    let is_bad_token = request
        .note
        .as_deref()
        .is_some_and(|note| note.contains("bad bearer token"));
    Ask {
        method: request.method.clone(),
        path: mapping.live_text(&request.path),
        content_type: request.content_type.clone().unwrap_or_default(),
        accept: request.accept.clone().unwrap_or_default(),
        body,
        token: is_bad_token.then(|| "not-the-token".to_owned()),
        ..Ask::default()
    }
}

fn compare_reply(exchange: &Exchange, reply: &Reply, mapping: &mut Mapping) -> Vec<String> {
    let expected = &exchange.response;
    let mut differences = Vec::new();
    if reply.status != expected.status {
        let text: String = reply.text().chars().take(500).collect();
        differences.push(format!(
            "status: recorded {}, got {}: {text}",
            expected.status, reply.status
        ));
        return differences;
    }
    let content_type = reply.header("content-type");
    if let Some(recorded) = &expected.content_type
        && recorded != content_type
    {
        differences.push(format!(
            "content type: recorded {recorded:?}, got {content_type:?}"
        ));
    }
    let is_watch = exchange.request.path.contains("watch=true") && expected.status == 200;
    match &expected.body {
        Value::String(text) if is_watch => {
            let recorded: Vec<Value> = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            let live = reply.events();
            mapping.compare(
                &Value::Array(recorded),
                &Value::Array(live),
                &mut differences,
            );
        }
        Value::String(text) => {
            if *text != reply.text() {
                differences.push(format!("body: recorded {text:?}, got {:?}", reply.text()));
            }
        }
        // The error message about a body that is not JSON depends on the parser.
        body if matches!(&exchange.request.body, Value::String(_)) => {
            for field in ["code", "reason", "status"] {
                let (recorded, live) = (body.get(field), reply.json());
                if recorded != live.get(field) {
                    differences.push(format!(
                        "{field}: recorded {recorded:?}, got {:?}",
                        live.get(field)
                    ));
                }
            }
        }
        body => mapping.compare(body, &reply.json(), &mut differences),
    }
    differences
}

#[cfg(test)]
mod tests;
