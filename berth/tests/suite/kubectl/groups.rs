//! kubectl with groups of pods: apply, get, explain, patch and delete, and a Job that is scheduled as a group.

use crate::e2e::{Cluster, Kubectl, eventually};

const WORKLOAD: &str = "\
apiVersion: scheduling.k8s.io/v1beta1
kind: Workload
metadata: {name: training}
spec:
  podGroupTemplates:
  - name: workers
    schedulingPolicy: {gang: {minCount: 3}}
";

const GROUPS: &str = "\
apiVersion: scheduling.k8s.io/v1alpha3
kind: CompositePodGroup
metadata: {name: all}
spec:
  workloadRef: {workloadName: training, templateName: all}
  schedulingPolicy: {gang: {minGroupCount: 1}}
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: workers}
spec:
  parentCompositePodGroupName: all
  workloadRef: {workloadName: training, templateName: workers}
  schedulingPolicy: {gang: {minCount: 3}}
";

const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  parallelism: 3
  completions: 3
  completionMode: Indexed
  scheduling:
    schedulingPolicy: {gang: {}}
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: registry.example/sum:1}]
";

#[test]
fn groups_are_applied_shown_explained_and_deleted() {
    let cluster = Cluster::up("kubectl-groups", &["--nodes", "2"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    kubectl.apply(&cluster.scratch.file("workload.yaml", WORKLOAD));
    kubectl.apply(&cluster.scratch.file("groups.yaml", GROUPS));
    let table = kubectl.ok(&["get", "podgroups"]);
    let row: Vec<&str> = table
        .lines()
        .nth(1)
        .unwrap_or("")
        .split_whitespace()
        .collect();
    assert_eq!(
        row.get(..4),
        Some(&["workers", "Gang", "training", "Pending"][..]),
        "{table}"
    );
    let explained = kubectl.ok(&["explain", "podgroup.spec.schedulingPolicy.gang"]);
    assert!(explained.contains("minCount"), "{explained}");
    let explained = kubectl.ok(&["explain", "compositepodgroup.spec"]);
    assert!(
        explained.contains("parentCompositePodGroupName"),
        "{explained}"
    );
    // The count of a gang changes; its policy does not.
    let patch = |patch: &str| {
        kubectl
            .command(&["patch", "podgroup", "workers", "--type=merge", "-p", patch])
            .output()
            .expect("kubectl runs")
    };
    let grown = patch(r#"{"spec":{"schedulingPolicy":{"gang":{"minCount":5}}}}"#);
    assert!(grown.status.success(), "{grown:?}");
    let other = patch(r#"{"spec":{"schedulingPolicy":{"gang":null,"basic":{}}}}"#);
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        error.contains("field cannot be cleared once set"),
        "{error}"
    );
    // The parent stays until its child is deleted.
    kubectl.ok(&["delete", "compositepodgroup", "all", "--wait=false"]);
    let shown = kubectl.ok(&[
        "get",
        "compositepodgroup",
        "all",
        "-o",
        "jsonpath={.metadata.deletionTimestamp}",
    ]);
    assert!(!shown.is_empty());
    kubectl.ok(&["delete", "podgroup", "workers", "--timeout=60s"]);
    eventually("both are deleted", || {
        let left = kubectl.ok(&["get", "podgroups,compositepodgroups", "--ignore-not-found"]);
        left.is_empty().then_some(())
    });
}

#[test]
fn a_job_with_scheduling_runs_as_a_group_and_takes_it_along() {
    let cluster = Cluster::up("kubectl-group-job", &["--nodes", "2"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    kubectl.apply(&cluster.scratch.file("job.yaml", JOB));
    let group = eventually("the group is made", || {
        let name = kubectl.ok(&[
            "get",
            "podgroups",
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ]);
        (!name.is_empty()).then_some(name)
    });
    assert!(group.starts_with("sum-"), "{group}");
    let members = "jsonpath={.items[*].spec.schedulingGroup.podGroupName}";
    eventually("three pods are members", || {
        let members = kubectl.ok(&["get", "pods", "-l", "job-name=sum", "-o", members]);
        (members == [group.as_str(); 3].join(" ")).then_some(())
    });
    let job = kubectl.ok(&["describe", "job", "sum"]);
    assert!(
        job.contains("WorkloadCreated") && job.contains("PodGroupCreated"),
        "{job}"
    );
    kubectl.ok(&[
        "wait",
        "--for=condition=Complete",
        "job/sum",
        "--timeout=120s",
    ]);
    kubectl.ok(&["delete", "job", "sum", "--timeout=60s"]);
    eventually("the group and the workload are deleted", || {
        let left = kubectl.ok(&["get", "podgroups,workloads", "--ignore-not-found"]);
        left.is_empty().then_some(())
    });
}
