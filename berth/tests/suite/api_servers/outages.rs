//! API servers that restart, forget and refuse, and connections that break.

use super::faults::{Authority, Exchange, Proxy, Refusal};
use super::{create_pod, create_pods, deletion_at_once, ready, scheduler};
use crate::e2e::eventually;
use crate::e2e::server::{Server, on_each};
use crate::e2e::watch_log::WatchLog;
use berth_client::request::{self, PODS};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

const ALONE: &str = "--leader-elect=false";

/// A proxy in front of a server, and the kubeconfig of the administrator that uses it.
pub(crate) fn behind_proxy(server: &Server) -> (Proxy, PathBuf) {
    let proxy = Proxy::start(server, &Authority::new());
    let kubeconfig = server.kubeconfig_with("proxied", |cluster, _| {
        *cluster = json!({"server": proxy.url, "insecure-skip-tls-verify": true});
    });
    (proxy, kubeconfig)
}

fn is_about_pods(asked: &Exchange) -> bool {
    asked.method == "GET" && asked.path.starts_with("/api/v1/pods?")
}

fn lists_by_watch(asked: &Exchange) -> bool {
    asked.path.contains("sendInitialEvents")
}

/// The API server is killed under a backlog and restarted with its data.
#[test]
fn a_backlog_is_bound_once_when_the_api_server_restarts() {
    on_each("restart", |server| {
        let (nodes, room) = (20, 25);
        server.create_nodes(nodes, room);
        let log = WatchLog::start(&server.api);
        let config = super::config(server, 100, 20);
        let scheduler = scheduler(&server.kubeconfig(), &[ALONE, &config]);
        create_pods(&server.api, "p", nodes * room, "1m");
        for share in [nodes * room / 4, nodes * room / 2] {
            eventually("some pods are bound", || {
                (log.bound() >= share).then_some(())
            });
            server.restart();
        }
        eventually("every pod is bound", || {
            (log.bound() >= nodes * room).then_some(())
        });
        log.assert_each_bound_once(nodes * room, room);
        // The events of that time were not lost for lack of permissions: roles load after the server has started.
        eventually("the last binding has an event", || {
            let last = log.bindings().pop()?;
            server.api.event(&last.pod, "Scheduled")
        });
        drop(scheduler);
    });
}

/// The API server is restarted with an empty store. Objects of the old store are dropped and counted, and all pods of
/// the new store are bound, including pods with names of the old store.
#[test]
fn an_api_server_that_comes_back_empty_is_listed_again() {
    on_each("emptied", |server| {
        let (nodes, room) = (6, 10);
        server.create_nodes(nodes, room);
        let scheduler = scheduler(&server.kubeconfig(), &[ALONE]);
        ready(&scheduler);
        let all_bound = |server: &Server| {
            eventually("every pod is bound", || {
                let pods = server.api.send(&request::list(PODS, "", 500, ""));
                let pods = pods["items"].as_array().cloned().unwrap_or_default();
                let bound = pods
                    .iter()
                    .filter(|pod| pod["spec"]["nodeName"].is_string());
                (bound.count() == nodes * room).then_some(())
            });
        };
        create_pods(&server.api, "p", nodes * room, "1m");
        all_bound(server);
        if !server.restart_empty() {
            return;
        }
        server.ensure_account("default", "default");
        server.create_nodes(nodes, room);
        create_pods(&server.api, "p", nodes * room / 2, "1m");
        create_pods(&server.api, "q", nodes * room / 2, "1m");
        all_bound(server);
        let metrics = scheduler.http_get("/metrics");
        // Nodes of the same names may be there before the list, which then contains them.
        let dropped = "scheduler_objects_dropped_by_list_total{kind=\"pods\"} ";
        assert!(metrics.contains(dropped), "{metrics}");
        drop(scheduler);
    });
}

/// Watches continue where they were cut. Changes in between are neither lost nor duplicated.
#[test]
fn watches_that_are_cut_go_on_where_they_ended() {
    on_each("cut", |server| {
        let (proxy, kubeconfig) = behind_proxy(server);
        let (nodes, room) = (10, 30);
        server.create_nodes(nodes, room);
        let log = WatchLog::start(&server.api);
        let scheduler = scheduler(&kubeconfig, &[ALONE]);
        ready(&scheduler);
        let is_list = |asked: &Exchange| {
            is_about_pods(asked) && (lists_by_watch(asked) || asked.path.contains("limit="))
        };
        let lists = proxy.count(is_list);
        for batch in 1..=10 {
            create_pods(&server.api, &format!("p{batch}"), nodes * room / 10, "1m");
            match batch % 2 {
                0 => proxy.cut_watches(),
                _ => proxy.disconnect(),
            }
        }
        eventually("every pod is bound", || {
            (log.bound() >= nodes * room).then_some(())
        });
        log.assert_each_bound_once(nodes * room, room);
        assert_eq!(
            proxy.count(is_list),
            lists,
            "watches go on without a new list"
        );
        drop(scheduler);
    });
}

/// After 410 for a watch of an old version, the scheduler lists again and detects the missed changes.
#[test]
fn after_410_the_cluster_is_listed_again() {
    on_each("gone", |server| {
        server.create_nodes(1, 2);
        for refusal in [Refusal::Status(410, None), Refusal::WatchError(410)] {
            let (proxy, kubeconfig) = behind_proxy(server);
            let scheduler = scheduler(&kubeconfig, &[ALONE]);
            ready(&scheduler);
            create_pod(&server.api, "first", "3", &json!({}));
            server.api.bound("first");
            create_pod(&server.api, "waits", "3", &json!({}));
            eventually("there is no room", || {
                let condition = crate::e2e::scheduled(&server.api.pod("waits"));
                (condition["reason"] == "Unschedulable").then_some(())
            });
            // Requests about pods fail while the first pod is deleted.
            proxy.refuse(usize::MAX, Refusal::Status(503, None), is_about_pods);
            proxy.cut_watches();
            server.api.send(&deletion_at_once("first"));
            proxy.refuse_only(1, refusal.clone(), |asked| {
                is_about_pods(asked) && asked.is_watch() && !lists_by_watch(asked)
            });
            server.api.bound("waits");
            let listed = |asked: &Exchange| {
                is_about_pods(asked)
                    && asked.code == 200
                    && (lists_by_watch(asked) || asked.path.contains("limit="))
            };
            assert!(proxy.count(listed) >= 2, "{refusal:?}: it was listed again");
            drop(scheduler);
            server.api.send(&deletion_at_once("waits"));
        }
    });
}

/// 429 with Retry-After: the call is repeated, and not before the time that the server asks for.
#[test]
fn a_server_that_is_busy_is_asked_again_when_it_states() {
    const SECONDS: u32 = 2;
    on_each("busy", |server| {
        let (proxy, kubeconfig) = behind_proxy(server);
        let (nodes, room) = (5, 20);
        server.create_nodes(nodes, room);
        let log = WatchLog::start(&server.api);
        let scheduler = scheduler(&kubeconfig, &[ALONE]);
        ready(&scheduler);
        let refused = nodes * room / 2;
        proxy.refuse(
            refused,
            Refusal::Status(429, Some(SECONDS)),
            Exchange::is_binding,
        );
        create_pods(&server.api, "p", nodes * room, "1m");
        eventually("every pod is bound", || {
            (log.bound() >= nodes * room).then_some(())
        });
        log.assert_each_bound_once(nodes * room, room);
        proxy.wait_for(nodes * room, |asked| asked.is_binding() && asked.code < 300);
        let mut exchanges = proxy.log();
        exchanges.retain(Exchange::is_binding);
        let busy = exchanges.iter().filter(|e| e.code == 429);
        assert_eq!(busy.clone().count(), refused);
        for busy in busy {
            let again = exchanges
                .iter()
                .filter(|e| e.path == busy.path && e.began > busy.began)
                .map(|e| e.began.duration_since(busy.began))
                .min()
                .unwrap_or_else(|| panic!("{} was not repeated", busy.path));
            assert!(
                again >= Duration::from_secs(SECONDS.into()),
                "{} was repeated after {again:?}",
                busy.path
            );
        }
        drop(scheduler);
    });
}
