//! Extenders in the cycle and in the binding: their answers, missing answers, and changes during their calls.

mod binding;
mod meanwhile;
mod search;

use super::*;
use crate::ScheduleOutcome;
use berth_api::{Duration, Str};
use berth_framework::extender::{Extender, Extenders, Filtered};
use berth_framework::plugin::{Nominating, PostFilterResult, PostFilterStep};
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{FakeExtender, FakePlugin, extender, fake, node, pod};
use berth_framework::{Code, Status};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

/// A world with these extenders and plugins.
fn extended(
    extenders: impl IntoIterator<Item = FakeExtender>,
    plugins: impl IntoIterator<Item = FakePlugin>,
) -> Driver {
    let extenders: Vec<Arc<dyn Extender>> =
        extenders.into_iter().map(FakeExtender::build).collect();
    driver_with(plugins.into_iter().chain([binder()]), |options| {
        options.extenders = Extenders::new(extenders);
    })
}

fn nodes(w: &mut Driver, names: &[&str]) {
    for name in names {
        w.applied(node(name).capacity("4", "1Gi", "9").object());
    }
}

fn reply_all(w: &mut Driver) {
    while !w.jobs.is_empty() {
        w.reply();
    }
}

/// Tries the pod, with all answers. Returns the bind call, or the message.
fn outcome(w: &mut Driver) -> String {
    let began = w.attempt();
    if began != "parked" {
        return began;
    }
    reply_all(w);
    let calls = w.calls_text();
    let notified = calls.iter().find(|c| !c.contains("nominated=\"n"));
    notified.cloned().unwrap_or_else(|| format!("{calls:?}"))
}

fn filtered(kept: &[&str], failed: &[(&str, &str)], hard: &[(&str, &str)]) -> Filtered {
    let pairs = |list: &[(&str, &str)]| {
        let pairs = list
            .iter()
            .map(|(name, why)| (Str::from(*name), (*why).to_owned()));
        pairs.collect()
    };
    Filtered {
        nodes: kept.iter().map(|name| Str::from(*name)).collect(),
        failed: pairs(failed),
        failed_and_unresolvable: pairs(hard),
    }
}

/// An extender that filters, and sends the nodes of each request to the receiver.
fn reporting(
    name: &str,
    answer: impl Fn() -> Result<Filtered, String> + Send + Sync + 'static,
) -> (FakeExtender, Receiver<String>) {
    let (notify, notified) = channel();
    let filter = extender(name).filter(move |_, nodes| {
        let mut nodes: Vec<&str> = nodes.iter().map(Str::as_str).collect();
        nodes.sort_unstable();
        let _ = notify.send(nodes.join(" "));
        Ok(answer()?)
    });
    (filter, notified)
}

fn notified(notified: &Receiver<String>) -> Vec<String> {
    notified.try_iter().collect()
}

const ALL: &[&str] = &["n1", "n2", "n3"];
