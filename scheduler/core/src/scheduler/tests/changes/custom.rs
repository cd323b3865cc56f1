//! Custom resources, and plugins that register for them or fail to register (Q-44, Q-85).

use super::*;
use crate::{Scheduler, SchedulerOptions};
use berth_api::{CustomKind, Time};
use berth_framework::registry::{ArgsError, Registry};
use berth_profile::ProfileSpec;

/// Q-44, Q-85, cases 109 and 195: a plugin receives the events of custom resources (added, updated, deleted) with the
/// objects. A resource that is not written as `plural.version.group` is logged as an error, and everything else works.
#[test]
fn plugins_receive_events_of_custom_resources() {
    let foos = CustomKind::of("foos.v1.example.com").unwrap();
    let foo = |version: u32, ready: bool| {
        let json = format!(
            r#"{{"metadata":{{"name":"f","namespace":"s","resourceVersion":"{version}"}},"spec":{{"ready":{ready}}}}}"#
        );
        Kind::Custom(foos).decode(json.as_bytes()).unwrap()
    };
    for (action, woken_by) in [
        (ActionType::ADD, Some("added")),
        (ActionType::UPDATE, Some("ready")),
        (ActionType::DELETE, Some("deleted")),
    ] {
        let picky = fake("Picky")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(move || {
                let receives = |resource: &str| {
                    let resource = EventResource::Other(resource.into());
                    EventRegistration::with_hint(resource, action, move |cluster, _, change| {
                        let foo = change.new.or(change.old).and_then(|o| o.as_custom());
                        let foo = foo.ok_or("not a custom object")?;
                        let known = cluster.custom(foo.kind).and_then(|f| f.get("s", "f"));
                        assert_eq!(known.is_some(), change.new.is_some());
                        let ready = foo.value["spec"]["ready"] == true;
                        let queue = action != ActionType::UPDATE || ready;
                        Ok(if queue { Hint::Queue } else { Hint::Skip })
                    })
                };
                vec![
                    receives("foos.v1.example.com"),
                    receives("foos.v1"),
                    receives("bars"),
                ]
            });
        let mut w = driver([picky]);
        let kinds: Vec<Kind> = w.scheduler.queue().custom_kinds().into_iter().collect();
        assert_eq!(kinds, [Kind::Custom(foos)]);
        w.applied(node("n1").object());
        let errors: Vec<String> = w.log.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "Incorrect event registration, which matches no event plugin=Picky err=\"bars\" is no resource: write plural.version.group, such as \"foos.v1.example.com\"",
                "Incorrect event registration, which matches no event plugin=Picky err=\"foos.v1\" is no resource: write plural.version.group, such as \"foos.v1.example.com\"",
            ]
        );
        w.pod(pod("waits"));
        w.attempt();
        w.answer_all();
        let mut woke = None;
        type Step<'a> = (&'static str, Box<dyn Fn(&mut Driver) + 'a>);
        let steps: [Step<'_>; 4] = [
            (
                "added",
                Box::new(|w| {
                    w.applied(foo(1, false));
                }),
            ),
            (
                "not ready",
                Box::new(|w| {
                    w.applied(foo(2, false));
                }),
            ),
            (
                "ready",
                Box::new(|w| {
                    w.applied(foo(3, true));
                }),
            ),
            (
                "deleted",
                Box::new(|w| {
                    w.gone(foo(3, true));
                }),
            ),
        ];
        for (what, step) in steps {
            step(&mut w);
            if w.place_of("waits") != Some(QueuedIn::Unschedulable) {
                woke = woke.or(Some(what));
            }
        }
        assert_eq!(woke, woken_by, "{action:?}");
        let metrics = w.scheduler.metrics();
        let label = format!("foos.v1.example.com{}", action.label());
        let counted = metrics.number(Metric::QueueIncomingPods, &["backoff", &label]);
        assert_eq!(counted, 1.0, "{label}");
    }
}

/// Case 89: a plugin that cannot list its events fails when it is built, and the error at start-up names the plugin and
/// the reason.
#[test]
fn a_plugin_that_cannot_register_fails_start_up() {
    let mut registry = Registry::default();
    registry
        .register("Picky", |_| {
            Err(ArgsError::at("events", "the list is empty"))
        })
        .unwrap();
    let options = SchedulerOptions {
        profiles: vec![ProfileSpec::of_plugins("default-scheduler", ["Picky"])],
        ..SchedulerOptions::default()
    };
    let errors = Scheduler::new(options, &registry, Time::EPOCH).unwrap_err();
    let errors = errors.to_string();
    assert!(
        errors.contains("Picky") && errors.contains("events: the list is empty"),
        "{errors}"
    );
}
