//! The runtime itself: each key once, errors retried, closed watches opened again, a panic survived.

use super::*;
use crate::testing::{Fake, eventually, pass, refused};
use berth_objects::object::CONFIG_MAP;
use serde_json::json;
use std::sync::Mutex;

#[derive(Default)]
struct Log {
    reconciled: Vec<String>,
    differences: Vec<&'static str>,
}

struct Probe {
    log: Arc<Mutex<Log>>,
    /// The number of more times that reconciling fails, and whether by panicking.
    failures: (u32, bool),
}

impl Controller for Probe {
    type Key = ControllerKey;
    const NAME: &'static str = "probe";
    const WATCHES: &'static [Watch] = &[watching(CONFIG_MAP, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        _kind: GroupResource,
        diff: &CacheDifference,
    ) {
        let (what, object) = match (&diff.old, &diff.new) {
            (None, Some(o)) => ("new", o),
            (Some(_), Some(o)) => ("changed", o),
            (Some(o), None) => ("gone", o),
            (None, None) => return,
        };
        self.log.lock().unwrap().differences.push(what);
        cx.enqueue(ControllerKey::of(object));
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        self.log.lock().unwrap().reconciled.push(key.to_string());
        if self.failures.0 > 0 {
            self.failures.0 -= 1;
            assert!(!self.failures.1, "a bug");
            return Err(refused(500, "InternalError", "not today"));
        }
        if let Some(object) = cx.cache(CONFIG_MAP).get(key).cloned()
            && object["data"]["seen"].is_null()
        {
            let mut object = (*object).clone();
            object["data"]["seen"] = "yes".into();
            cx.update(CONFIG_MAP, object)?;
        }
        Ok(())
    }
}

fn start(api: &Arc<Fake>, failures: (u32, bool)) -> (Handle, Arc<Mutex<Log>>) {
    let log = Arc::new(Mutex::new(Log::default()));
    let mut handle = Handle::new();
    let probe = Probe {
        log: log.clone(),
        failures,
    };
    handle.start(probe, api.clone(), api.clock());
    (handle, log)
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}})
}

#[tokio::test(start_paused = true)]
async fn each_difference_is_seen_once_own_writes_included() {
    let api = Fake::new();
    api.create(CONFIG_MAP.resource, config_map("a")).unwrap();
    let (handle, log) = start(&api, (0, false));
    pass(1.0).await;
    assert_eq!(log.lock().unwrap().differences, ["new", "changed"]);
    assert_eq!(log.lock().unwrap().reconciled, ["n/a", "n/a"]);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_or_panics_is_tried_again() {
    for panics in [false, true] {
        let api = Fake::new();
        api.create(CONFIG_MAP.resource, config_map("a")).unwrap();
        let (handle, _log) = start(&api, (3, panics));
        eventually("the fourth try succeeds", || {
            let object = api.get(CONFIG_MAP.resource, "n", "a").unwrap();
            object["data"]["seen"] == "yes"
        })
        .await;
        handle.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_a_watch_was_closed_is_made_up_for() {
    let api = Fake::new();
    for name in ["a", "b"] {
        api.create(CONFIG_MAP.resource, config_map(name)).unwrap();
    }
    let (handle, log) = start(&api, (0, false));
    pass(1.0).await;
    log.lock().unwrap().differences.clear();
    api.close_watches();
    let options = DeleteOptions::default();
    api.delete(CONFIG_MAP.resource, "n", "a", &options).unwrap();
    api.create(CONFIG_MAP.resource, config_map("c")).unwrap();
    pass(1.0).await;
    assert_eq!(log.lock().unwrap().differences, ["gone", "new", "changed"]);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_controller_does_nothing_more() {
    let api = Fake::new();
    let (handle, log) = start(&api, (0, false));
    pass(1.0).await;
    handle.stop().await;
    api.create(CONFIG_MAP.resource, config_map("a")).unwrap();
    pass(10.0).await;
    assert!(log.lock().unwrap().differences.is_empty());
}

/// A controller whose requested time is always in the past.
struct Impatient {
    /// Whether it also writes the object each time, and thereby wakes itself.
    writes: bool,
}

impl Controller for Impatient {
    type Key = ControllerKey;
    const NAME: &'static str = "impatient";
    const WATCHES: &'static [Watch] = &[watching(CONFIG_MAP, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        _kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if let Some(object) = &diff.new {
            cx.enqueue(ControllerKey::of(object));
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let now = cx.now();
        if let Some(object) = cx.cache(CONFIG_MAP).get(key).cloned()
            && self.writes
        {
            let mut object = (*object).clone();
            object["data"]["at"] = format!("{now} {}", object["data"]["at"]).len().into();
            cx.update(CONFIG_MAP, object)?;
        }
        cx.enqueue_at(key.clone(), now - jiff::SignedDuration::from_secs(10));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_asks_for_the_past_backs_off() {
    for writes in [false, true] {
        let api = Fake::new();
        api.create(CONFIG_MAP.resource, config_map("a")).unwrap();
        let mut handle = Handle::new();
        handle.start(Impatient { writes }, api.clone(), api.clock());
        pass(3600.0).await;
        let runs = handle.activity()[0].runs;
        assert!(
            runs <= 90,
            "{runs} runs in the first hour, writes: {writes}"
        );
        pass(3600.0).await;
        let more = handle.activity()[0].runs - runs;
        assert!(
            more <= 61,
            "{more} runs in the second hour, writes: {writes}"
        );
        // A change from outside is seen at once.
        api.edit(CONFIG_MAP.resource, ("n", "a"), |m| {
            m["data"]["other"] = "changed".into()
        });
        pass(0.01).await;
        assert!(handle.activity()[0].runs > runs + more);
        handle.stop().await;
    }
}
