//! Deferred quotas and groups of pods: gangs that become complete and incomplete, and hierarchies.

use super::*;

fn gang(name: &str, min: i64, parent: &str) -> Object {
    let mut spec = json!({"schedulingPolicy": {"gang": {"minCount": min}}});
    if !parent.is_empty() {
        spec["parentCompositePodGroupName"] = json!(parent);
    }
    object(Kind::PodGroup, "default", name, &spec)
}

fn composite(name: &str, min: i64, parent: &str) -> Object {
    let mut spec = json!({"schedulingPolicy": {"gang": {"minGroupCount": min}}});
    if !parent.is_empty() {
        spec["parentCompositePodGroupName"] = json!(parent);
    }
    object(Kind::CompositePodGroup, "default", name, &spec)
}

fn pods_quota(pods: i64) -> Object {
    quota("default", "q", &json!({"hard": {"pods": pods}}))
}

/// DQ-3, DQ-7: a gang that becomes incomplete, because a member that had a node is deleted, leaves the line.
#[test]
fn a_gang_that_becomes_incomplete_leaves_the_line() {
    let mut cluster = cluster();
    cluster.set(&gang("g", 2, ""));
    cluster.set(&pods_quota(1));
    set(&mut cluster, pod("a").member_of("g").on("n"));
    set(&mut cluster, pod("b").member_of("g").created(1));
    set(&mut cluster, pod("next").created(2));
    assert_eq!(
        obstacle(&cluster, "b"),
        "deferred quota \"q\": pods: requested 1, used 1 of 1"
    );
    cluster.unset_pod("uid-a");
    assert_eq!(
        obstacle(&cluster, "b"),
        "deferred quota \"q\": the group of the pod is not complete"
    );
    assert_eq!(admitted(&mut cluster), ["next"]);
}

/// DQ-7: members to which no quota applies count for a gang, and hold it back when they are deleted.
#[test]
fn members_without_a_quota_count_for_their_gang() {
    let mut cluster = cluster();
    cluster.set(&gang("g", 2, ""));
    let spec = json!({"hard": {"pods": 0}, "podSelector": {"matchLabels": {"team": "a"}}});
    cluster.set(&quota("default", "q", &spec));
    set(&mut cluster, pod("free").member_of("g"));
    set(&mut cluster, pod("a").member_of("g").label("team", "a"));
    assert_eq!(
        obstacle(&cluster, "a"),
        "deferred quota \"q\": pods: requested 1, used 0 of 0"
    );
    cluster.unset_pod("uid-free");
    assert_eq!(
        obstacle(&cluster, "a"),
        "deferred quota \"q\": the group of the pod is not complete"
    );
}

/// DQ-4: a basic group that is created after its pods: they enter the line in order.
#[test]
fn pods_of_a_new_group_enter_the_line_in_order() {
    let mut cluster = cluster();
    cluster.set(&pods_quota(1));
    set(&mut cluster, pod("a").member_of("g").created(2));
    set(&mut cluster, pod("b").member_of("g").created(1));
    assert_eq!(admitted(&mut cluster), Vec::<String>::new());
    let basic = json!({"schedulingPolicy": {"basic": {}}});
    cluster.set(&object(Kind::PodGroup, "default", "g", &basic));
    assert_eq!(admitted(&mut cluster), ["b"]);
}

/// DQ-7: a changed minimum of a gang takes effect.
#[test]
fn a_gang_follows_its_minimum() {
    let mut cluster = cluster();
    cluster.set(&pods_quota(2));
    cluster.set(&gang("g", 3, ""));
    for name in ["a", "b"] {
        set(&mut cluster, pod(name).member_of("g"));
    }
    assert_eq!(admitted(&mut cluster), Vec::<String>::new());
    cluster.set(&gang("g", 2, ""));
    assert_eq!(admitted(&mut cluster), ["a", "b"]);
}

/// DQ-10: a pod to which two quotas of a cohort apply counts twice in the cohort.
#[test]
fn each_quota_of_a_cohort_counts_a_pod() {
    let mut cluster = cluster();
    for (name, pods) in [("p", 0), ("q", 3)] {
        let spec = json!({"hard": {"pods": pods}, "cohort": "c"});
        cluster.set(&quota("default", name, &spec));
    }
    for name in ["a", "b"] {
        set(&mut cluster, pod(name));
    }
    assert_eq!(admitted(&mut cluster), ["a"]);
    assert_eq!(
        obstacle(&cluster, "b"),
        "deferred quota \"p\": pods: requested 2, used 2 of 3 in cohort \"c\""
    );
}

/// DQ-7: the pods of a hierarchy of groups are one entry: it is admitted when the hierarchy is complete, and as a whole.
#[test]
fn a_hierarchy_is_one_entry() {
    let mut cluster = cluster();
    cluster.set(&composite("top", 2, ""));
    cluster.set(&composite("mid", 1, "top"));
    cluster.set(&gang("x", 2, "mid"));
    cluster.set(&gang("y", 1, "top"));
    cluster.set(&pods_quota(2));
    for (name, group) in [("x1", "x"), ("x2", "x")] {
        set(&mut cluster, pod(name).member_of(group).created(1));
    }
    let incomplete = "deferred quota \"q\": the group of the pod is not complete";
    assert_eq!(obstacle(&cluster, "x1"), incomplete);
    set(&mut cluster, pod("y1").member_of("y").created(9));
    set(&mut cluster, pod("next").created(2));
    // The gang has the place of its first pod.
    assert_eq!(
        obstacle(&cluster, "y1"),
        "deferred quota \"q\": pods: requested 3, used 0 of 2"
    );
    assert_eq!(
        obstacle(&cluster, "next"),
        "deferred quota \"q\": 1 pod is before this one"
    );
    cluster.set(&pods_quota(3));
    assert_eq!(admitted(&mut cluster), ["x1", "x2", "y1"]);
    // A group of it is deleted before the pods have nodes.
    cluster.unset(&gang("y", 1, "top"));
    assert_eq!(withdrawn(&mut cluster), ["y1", "x1", "x2"]);
    assert_eq!(obstacle(&cluster, "x1"), incomplete);
    assert_eq!(admitted(&mut cluster), Vec::<String>::new(), "taken above");
    cluster.set(&gang("y", 1, "top"));
    assert_eq!(
        obstacle(&cluster, "x1"),
        "deferred quota \"q\": pods: requested 3, used 1 of 3"
    );
    cluster.unset_pod("uid-next");
    assert_eq!(admitted(&mut cluster), ["x1", "x2", "y1"]);
}

/// DQ-2, DQ-7: a hierarchy whose pods are in different quotas needs room in all.
#[test]
fn a_hierarchy_needs_room_in_all_quotas() {
    let mut cluster = cluster();
    cluster.set(&composite("top", 2, ""));
    cluster.set(&gang("x", 1, "top"));
    cluster.set(&gang("y", 1, "top"));
    for team in ["x", "y"] {
        let spec = json!({"hard": {"pods": 1}, "podSelector": {"matchLabels": {"team": team}}});
        cluster.set(&quota("default", team, &spec));
    }
    set(&mut cluster, pod("runs").label("team", "y").on("n"));
    for team in ["x", "y"] {
        let name = format!("{team}1");
        set(&mut cluster, pod(&name).member_of(team).label("team", team));
    }
    assert_eq!(admitted(&mut cluster), Vec::<String>::new());
    assert_eq!(
        obstacle(&cluster, "x1"),
        "deferred quota \"y\": pods: requested 1, used 1 of 1"
    );
    cluster.unset_pod("uid-runs");
    assert_eq!(admitted(&mut cluster), ["x1", "y1"]);
}

/// DQ-3, DQ-7: a member that terminates before it has a node is no member any more, in whatever order the group and the
/// pods are seen.
#[test]
fn a_terminating_pod_is_no_member_of_its_gang() {
    for group_is_first in [true, false] {
        let mut cluster = cluster();
        cluster.set(&pods_quota(1));
        if group_is_first {
            cluster.set(&gang("g", 2, ""));
        }
        for name in ["a", "b", "c"] {
            set(&mut cluster, pod(name).member_of("g").created(1));
        }
        set(
            &mut cluster,
            pod("a").member_of("g").created(1).deleting(Time::EPOCH),
        );
        if !group_is_first {
            cluster.set(&gang("g", 2, ""));
        }
        assert_eq!(
            obstacle(&cluster, "b"),
            "deferred quota \"q\": pods: requested 2, used 0 of 1"
        );
        assert_eq!(
            obstacle(&cluster, "a"),
            "deferred quota \"q\": the pod terminates"
        );
    }
}
