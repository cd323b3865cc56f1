//! Extenders that bind instead of the Bind plugins (F-42).

use super::*;
use crate::SchedulerOptions;
use berth_dispatcher::DispatcherOptions;
use berth_framework::plugin::PermitStep;
use berth_telemetry::metrics::SeriesValue;

/// F-42, C-43, case 211: the first interested binder binds, otherwise the plugins do.
#[test]
fn an_extender_binds_in_place_of_the_plugins() {
    let well = |name: &str| extender(name).bind(|_, _| Ok(()));
    let ill = |name: &str| extender(name).bind(|_, _| Err("the license server is down".into()));
    let elsewhere = |extender: FakeExtender| extender.managing("example.com/gpu");
    let scheduled = "Normal Scheduled Successfully assigned default/p to n1";
    let failed = "Warning FailedScheduling the license server is down";
    // The number of calls to extenders, and the event about the pod; `None` if the Bind plugins bind it.
    let cases: Vec<(&str, Vec<FakeExtender>, usize, Option<&str>)> = vec![
        ("it binds", vec![well("a")], 1, Some(scheduled)),
        ("it fails", vec![ill("a")], 1, Some(failed)),
        ("it fails, and may", vec![ill("a").ignorable()], 1, None),
        (
            "the next one does",
            vec![ill("a").ignorable(), well("b").ignorable()],
            2,
            Some(scheduled),
        ),
        ("it is not interested", vec![elsewhere(well("a"))], 0, None),
        (
            "another one is interested",
            vec![elsewhere(ill("a")), well("b")],
            1,
            Some(scheduled),
        ),
        (
            "it does something else",
            vec![extender("a").keeps(&["n1"])],
            1,
            None,
        ),
    ];
    for (situation, extenders, jobs, event) in cases {
        let mut w = extended(extenders, [fits()]);
        nodes(&mut w, &["n1"]);
        w.pod(pod("p"));
        w.attempt();
        let mut asked = 0;
        while !w.jobs.is_empty() {
            assert_eq!(w.calls_text(), [""; 0], "{situation}: the plugins wait");
            assert_eq!(w.events_text(), [""; 0], "{situation}");
            asked += 1;
            w.reply();
        }
        assert_eq!(asked, jobs, "{situation}");
        let by_plugin = event.is_none();
        let bind = w.calls_text().contains(&"bind p n1".to_owned());
        assert_eq!(bind, by_plugin, "{situation}");
        let profile = "default-scheduler";
        let booked = |w: &Driver, code| {
            let labels = ["Bind", code, profile];
            let metrics = w.scheduler.metrics();
            metrics
                .get(Metric::FrameworkExtensionPointDuration, &labels)
                .is_some()
        };
        w.answer_all();
        assert_eq!(w.events_text(), [event.unwrap_or(scheduled)], "{situation}");
        assert_eq!(booked(&w, "Success"), by_plugin, "{situation}");
        let left = usize::from(event != Some(failed));
        assert_eq!(w.on("n1").len(), left, "{situation}");
        assert_eq!(
            w.place_of("p").is_some(),
            event == Some(failed),
            "{situation}"
        );
        assert_eq!(w.scheduler.bindings_in_flight(), 0, "{situation}");
        let skipped = w.logged("Going on without extender a");
        let is_passed_over = ["it fails, and may", "the next one does"].contains(&situation);
        assert_eq!(skipped.len(), usize::from(is_passed_over), "{situation}");
    }
}

/// F-37, F-42: a binding that is not confirmed in time has failed; if the watch later shows the pod as bound, this
/// takes precedence.
#[test]
fn a_late_binding_counts_when_the_pod_is_seen_bound() {
    let binds = extender("http://e").bind(|_, _| Ok(()));
    let mut w = extended([binds], [fits()]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    w.pod(pod("q"));
    assert_eq!(
        (w.attempt(), w.attempt()),
        ("on n1".into(), "on n1".into()),
        "beside each other"
    );
    w.advance(Duration::from_secs(5));
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
    let events = w.events_text();
    let failed = "Warning FailedScheduling no answer from extender http://e within 5000 ms";
    assert_eq!(events, [failed, failed]);
    assert_eq!(w.on("n1"), [""; 0]);
    w.change("p", |p| p.on("n1"));
    assert_eq!(w.on("n1"), ["p"]);
    assert_eq!(w.place_of("p"), None);
    assert_eq!(w.place_of("q"), Some(QueuedIn::ErrorBackoff));
}

/// F-42: a pod bound by an extender stays on its node until the API shows it, whatever changes of the pod arrive
/// earlier.
#[test]
fn a_pod_that_an_extender_has_bound_is_not_tried_again() {
    let mut w = extended([extender("e").bind(|_, _| Ok(()))], [fits()]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p").request("cpu", "4"));
    w.attempt();
    reply_all(&mut w);
    w.change("p", |p| p.label("a", "b"));
    w.advance(Duration::from_secs(600));
    assert_eq!(w.attempt(), "idle");
    assert_eq!(w.on("n1"), ["p"]);
    w.pod(pod("q").request("cpu", "1"));
    assert!(w.attempt().contains("Insufficient cpu"));
    w.change("p", |p| p.on("n1"));
    assert_eq!(w.on("n1"), ["p"]);
}

/// F-42: the number of concurrent bindings by extenders is the limit of calls in flight. The others wait for their
/// turn, with their full timeout, and no further pod is tried while they wait.
#[test]
fn so_many_extenders_bind_at_once() {
    let binds = || extender("http://e").bind(|_, _| Ok(()));
    let few = |w: &mut SchedulerOptions, extender: FakeExtender| {
        w.dispatcher = DispatcherOptions::for_in_flight(4);
        w.extenders = Extenders::new([extender.build()]);
    };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

    let mut w = driver_with([fits(), binder()], |options| few(options, binds()));
    nodes(&mut w, &["n1"]);
    for name in names {
        w.pod(pod(name));
    }
    for _ in 0..4 {
        assert_eq!(w.attempt(), "on n1");
    }
    assert!(!w.scheduler.has_pod_to_try());
    assert_eq!(w.attempt(), "idle");
    assert_eq!(
        w.scheduler.next_wake(w.now),
        Some(w.now + Duration::from_secs(5))
    );
    w.reply();
    assert!(w.scheduler.has_pod_to_try());
    assert_eq!((w.attempt(), w.attempt()), ("on n1".into(), "idle".into()));

    // A plugin has held all of them, and allows them at the same time.
    let holds = fake("Holds").permit(|_, _, _, _| PermitStep::Hold(Duration::from_secs(60)));
    let plugins = || [fits(), binder(), fake("Flat").score(|_, _, _| Ok(0))];
    let mut w = driver_with(plugins().into_iter().chain([holds]), |options| {
        few(options, binds());
    });
    nodes(&mut w, &["n1"]);
    for name in names {
        w.pod(pod(name));
        assert_eq!(w.attempt(), "on n1");
    }
    for name in names {
        w.scheduler
            .core
            .framework
            .unbound
            .allow(&format!("uid-{name}"), "Holds");
    }
    w.advance(Duration::ZERO);
    assert_eq!(w.jobs.len(), 4);
    w.reply();
    assert_eq!(w.jobs.len(), 4, "one after another");
    w.advance(Duration::from_secs(4));
    assert_eq!(w.scheduler.bindings_in_flight(), 8);
    w.advance(Duration::from_secs(1));
    assert_eq!(w.scheduler.bindings_in_flight(), 4, "four were late");
    w.jobs.drain(..4);
    assert_eq!(w.jobs.len(), 4);
    w.advance(Duration::from_secs(4));
    reply_all(&mut w);
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
    let events = w.events_text();
    let count = |start: &str| events.iter().filter(|e| e.starts_with(start)).count();
    assert_eq!(count("Normal Scheduled"), 5);
    assert_eq!(count("Warning FailedScheduling no answer from extender"), 4);
    assert!(w.scheduler.has_pod_to_try() || w.scheduler.queue().in_flight().is_empty());
}

/// F-7, F-42: the duration of an extender is not counted for the Bind plugins.
#[test]
fn the_bind_plugins_are_not_blamed_for_the_extender() {
    let late = extender("e").bind(|_, _| Ok(())).ignorable();
    let mut w = extended([late], [fits()]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    w.attempt();
    w.advance(Duration::from_secs(5));
    assert_eq!(w.calls_text(), ["bind p n1"]);
    w.advance(Duration::from_secs(1));
    w.answer_all();
    let labels = ["Bind", "Success", "default-scheduler"];
    let metrics = w.scheduler.metrics();
    match metrics.get(Metric::FrameworkExtensionPointDuration, &labels) {
        Some(SeriesValue::Histogram(took)) => assert_eq!((took.count(), took.sum), (1, 1.0)),
        other => panic!("{other:?}"),
    }
}
