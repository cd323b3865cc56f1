//! The dashboard: one page, and the data that it shows, as JSON. It only reads.
//!
//! Everything is summed up on the core's thread: lists are pages of at most `ROWS_MAX` rows, and the heat map has at
//! most `CELLS_MAX` cells. Equal questions are answered from memory for `FRESH`.

mod answer;
mod history;
#[cfg(test)]
mod tests;

pub use answer::WaitingFilter;
pub(crate) use answer::answer;
pub(crate) use history::{SAMPLE_EVERY, Sample, SampleHistory};

use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The page: HTML, style and script as one text.
pub(crate) const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<title>Berth</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n",
    include_str!("dashboard/page.css"),
    "</style>\n</head>\n<body>\n",
    include_str!("dashboard/page.html"),
    "<script>\n",
    include_str!("dashboard/page.js"),
    "</script>\n</body>\n</html>\n",
);
/// The permissions of the page: its own script and style, and requests to its own origin.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src \
    'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The most rows of a list.
const ROWS_MAX: usize = 100;
/// The most cells of the heat map. With more nodes, a cell represents several nodes.
const CELLS_MAX: usize = 5_000;
/// The maximum number of nodes that are shown by name and amount instead of a heat map.
const NAMED_NODES_MAX: usize = 48;
/// The time for which an answer is cached.
const FRESH: Duration = Duration::from_secs(1);
/// The number of answers that are kept.
const KEPT_MAX: usize = 64;
/// The longest text that is searched for, in bytes.
const SEARCH_LEN_MAX: usize = 253;

/// A question of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageQuestion {
    /// Counts, rates, nominations and calls.
    State,
    /// The heat map of a resource.
    Heat(String),
    /// The last fifteen minutes.
    History,
    /// Pods that are not bound, by owner.
    Waiting(WaitingFilter),
    /// Pods, bound ones too, owners and nodes with a text in their name.
    Search(String),
    /// The pods of an owner: `namespace/Kind/name`.
    Owner(String),
    /// Pods that are not bound, one by one.
    Pods {
        /// `active`, `backoff`, `unschedulable` or `gated`; empty for all.
        place: String,
        /// The first row.
        from: usize,
    },
    /// Nodes from this row on.
    Nodes(usize),
    /// One node with its pods.
    Node(String),
    /// One pod: `namespace/name`.
    Pod(String),
}

impl PageQuestion {
    /// The question of a path below `/dashboard/`, with its query; `None` for other paths.
    pub(crate) fn of(path: &str, query: &str) -> Option<Self> {
        let get = |name: &str| {
            let parts = query.split('&').filter_map(|part| part.split_once('='));
            let found = parts.into_iter().find(|(key, _)| *key == name);
            let mut value = found.map(|(_, value)| decoded(value)).unwrap_or_default();
            // A long text is not a useful search; it is dropped instead of compared with every name.
            if value.len() > SEARCH_LEN_MAX * 2 {
                value.clear();
            }
            value
        };
        let number = |name: &str| get(name).parse().unwrap_or(0);
        Some(match path.strip_prefix("/dashboard/")? {
            "state" => Self::State,
            "heat" => Self::Heat(get("resource")),
            "history" => Self::History,
            "waiting" => Self::Waiting(WaitingFilter {
                namespace: get("namespace"),
                owner: get("owner"),
                reason: get("reason"),
                place: get("place"),
                sort: get("sort"),
                limit: number("limit"),
            }),
            "search" => Self::Search(get("text")),
            "owner" => Self::Owner(get("name")),
            "pods" => Self::Pods {
                place: get("place"),
                from: number("from"),
            },
            "nodes" => Self::Nodes(number("from")),
            "node" => Self::Node(get("name")),
            "pod" => Self::Pod(get("name")),
            _ => return None,
        })
    }
}

/// Decodes `%2F` and `+`; malformed escapes stay unchanged.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| {
            let text = std::str::from_utf8(hex).ok()?;
            u8::from_str_radix(text, 16).ok()
        });
        match (byte, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            (other, _) => {
                out.push(*other);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The last answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct DashboardAnswers(Arc<Mutex<Vec<(Instant, PageQuestion, Value)>>>);

impl DashboardAnswers {
    /// The answer to an equal question, if it is fresh.
    pub(crate) fn get(&self, question: &PageQuestion, now: Instant) -> Option<Value> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(at, _, _)| now.saturating_duration_since(*at) < FRESH);
        let found = kept.iter().find(|(_, asked, _)| asked == question);
        found.map(|(_, _, answer)| answer.clone())
    }

    /// Keeps an answer.
    pub(crate) fn put(&self, question: PageQuestion, answer: Value, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push((now, question, answer));
        }
    }
}
