use super::*;
use crate::workload::ops::{BarrierStage, Op};
use tempfile::TempDir;

/// A directory with templates, removed with the test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        for (file, text) in [
            (
                "pod.yaml",
                "apiVersion: v1\nkind: Pod\nmetadata: {name: 'p-{{ .Index }}'}\n",
            ),
            (
                "node.yaml",
                "apiVersion: v1\nkind: Node\nmetadata: {generateName: n-}\n",
            ),
            (
                "pv.yaml",
                "apiVersion: v1\nkind: PersistentVolume\nspec: {}\n",
            ),
            (
                "pvc.yaml",
                "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {}\n",
            ),
            (
                "bad-action.yaml",
                "apiVersion: v1\nkind: Pod\nx: {{ printf .Index }}\n",
            ),
            ("bad-yaml.yaml", "apiVersion: v1\nkind: [Pod\n"),
            ("no-kind.yaml", "apiVersion: v1\n"),
        ] {
            std::fs::write(folder.path().join(file), text).expect("the directory can be written");
        }
        Self(folder)
    }

    fn read(&self, text: &str) -> Result<Vec<Workload>, FileError> {
        let templates = FileTemplates::new(self.0.path().to_owned());
        decode("f.yaml", "misc", text, &templates)
    }
}

/// A file with one test case of these operations.
fn case(ops: &str, params: &str) -> String {
    format!(
        "- name: Case\n  workloadTemplate: [{ops}]\n  workloads:\n  - name: small\n    params: {{{params}}}\n"
    )
}

const MEASURED: &str = "{opcode: createPods, count: 1, collectMetrics: true}";

#[test]
fn a_workload_has_its_parameters_templates_gates_and_labels() {
    let files = Files::new();
    let text = "
- name: Case
  labels: [performance]
  featureGates: {A: true, B: false}
  defaultPodTemplatePath: pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    nodeTemplatePath: node.yaml
    nodeAllocatableStrategy:
      nodeAllocatable: {pods: \"20\"}
      csiNodeAllocatable: {d: {count: 7}}
  - opcode: createPodSets
    countParam: $sets
    namespacePrefix: set
    createPodsOp: {opcode: createPods, count: 2, skipWaitToCompletion: true}
  - opcode: createPods
    countParam: $pods
    steadyStateParam: $steady
    durationParam: $duration
    collectMetrics: true
  - opcode: barrier
    stageRequirement: Attempted
  workloads:
  - name: small
    labels: [short]
    featureGates: {B: true}
    threshold: {misc: 40, dra: 7}
    params: {nodes: 5, sets: 2, pods: 3, steady: true, duration: 10s}
";
    let workloads = files.read(text).expect("the file is right");
    let workload = &workloads[0];
    assert_eq!(workload.full_name(), "Case/small");
    assert_eq!(workload.labels, ["performance", "short"]);
    let gates: Vec<(&str, bool)> = workload
        .feature_gates
        .iter()
        .map(|(name, on)| (name.as_str(), *on))
        .collect();
    assert_eq!(gates, [("A", true), ("B", true)]);
    assert_eq!(workload.threshold.as_ref().map(|t| t.value), Some(40.0));
    let [
        Op::CreateNodes(nodes),
        Op::CreatePods(first),
        Op::CreatePods(second),
        Op::CreatePods(steady),
        Op::Barrier(barrier),
    ] = workload.ops.as_slice()
    else {
        panic!("{:?}", workload.ops);
    };
    assert_eq!(nodes.count, 5);
    let strategy = nodes.node_allocatable_strategy.as_ref();
    let strategy = strategy.expect("it is set");
    assert_eq!(strategy.node_allocatable["pods"], "20");
    assert_eq!(strategy.csi_node_allocatable["d"].count, Some(7));
    assert_eq!(first.namespace.as_deref(), Some("set-0"));
    assert_eq!(second.namespace.as_deref(), Some("set-1"));
    assert!(first.skip_wait_to_completion && first.template.is_some());
    assert_eq!(steady.count, 3);
    assert!(steady.steady_state);
    assert_eq!(steady.duration, std::time::Duration::from_secs(10));
    assert_eq!(barrier.stage_requirement, BarrierStage::Attempted);
}

#[test]
fn a_threshold_of_another_topic_does_not_count() {
    let files = Files::new();
    for (threshold, expect) in [
        ("12.5", Some(12.5)),
        ("0", None),
        ("{dra: 40}", None),
        ("{misc: 40}", Some(40.0)),
    ] {
        let text = format!(
            "- name: Case\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: small, threshold: {threshold}}}]\n"
        );
        let workloads = files.read(&text).expect("the file is right");
        let found = workloads[0].threshold.as_ref().map(|t| t.value);
        assert_eq!(found, expect, "{threshold}");
    }
}

#[test]
fn errors_name_their_place() {
    let files = Files::new();
    let with = |op: &str| case(&format!("{op}, {MEASURED}"), "");
    let mut wrong = Vec::new();
    for (situation, text, expect) in [
        (
            "an unknown opcode",
            with("{opcode: createNode, count: 1}"),
            "f.yaml: Case/small.workloadTemplate[0]: unknown variant `createNode`, expected one of `createNodes`",
        ),
        (
            "no opcode",
            with("{count: 1}"),
            "workloadTemplate[0].opcode: must be set",
        ),
        (
            "an unknown field of an operation",
            with("{opcode: createNodes, count: 1, nodeTemplate: x}"),
            "workloadTemplate[0].createNodes.nodeTemplate: unknown field `nodeTemplate`, expected one of `count`",
        ),
        (
            "a field in the wrong case",
            with("{opcode: createNodes, Count: 1, countParam: $x}"),
            "countParam: parameter \"x\" is not defined by the workload; it defines none",
        ),
        (
            "a misspelt field",
            with("{opcode: sleep, duration: 1s, durationParm: $x}"),
            "unknown field `durationParm`, expected `duration`",
        ),
        (
            "a missing count",
            with("{opcode: createNodes}"),
            "createNodes: missing field `count`",
        ),
        (
            "a negative count",
            with("{opcode: createNodes, count: -1}"),
            "count: invalid value: integer `-1`, expected usize",
        ),
        (
            "a parameter that is not written as one",
            with("{opcode: createNodes, countParam: nodes}"),
            "invalid parameter \"nodes\"; write $name",
        ),
        (
            "a parameter of another type",
            case(
                &format!("{{opcode: createNodes, countParam: $n}}, {MEASURED}"),
                "n: ten",
            ),
            "count: invalid type: string \"ten\", expected usize",
        ),
        (
            "a parameter that nothing uses",
            case(MEASURED, "nodes: 3"),
            "f.yaml: Case/small.params: parameter \"nodes\" is not used by any operation",
        ),
        (
            "a template that is missing",
            with("{opcode: createNodes, count: 1, nodeTemplatePath: none.yaml}"),
            "nodeTemplatePath: failed to read template",
        ),
        (
            "a template of another kind",
            with("{opcode: createNodes, count: 1, nodeTemplatePath: pod.yaml}"),
            "is a Pod, but a Node is needed",
        ),
        (
            "an action that the language does not have",
            with("{opcode: createAny, templatePath: bad-action.yaml}"),
            "line 3: unsupported action \"printf .Index\"",
        ),
        (
            "malformed YAML in a template",
            with("{opcode: createAny, templatePath: bad-yaml.yaml}"),
            "bad-yaml.yaml: malformed YAML",
        ),
        (
            "a template without a kind",
            with("{opcode: createAny, templatePath: no-kind.yaml}"),
            "no-kind.yaml: kind must be set",
        ),
        (
            "actions where they are not executed",
            with("{opcode: churn, mode: create, templatePaths: [pod.yaml]}"),
            "has template actions, which are not executed in this field",
        ),
        (
            "a volume without a claim",
            with("{opcode: createPods, count: 1, persistentVolumeTemplatePath: pv.yaml}"),
            "must be set together",
        ),
        (
            "a steady state without a duration",
            with("{opcode: createPods, count: 1, steadyState: true}"),
            "steadyState needs a duration that is greater than 0",
        ),
        (
            "measured pods that are not waited for",
            with(
                "{opcode: createPods, count: 1, collectMetrics: true, skipWaitToCompletion: true}",
            ),
            "collectMetrics and skipWaitToCompletion must not both be true",
        ),
        (
            "two strategies",
            with(
                "{opcode: createNodes, count: 1, uniqueNodeLabelStrategy: {labelKey: a}, labelNodePrepareStrategy: \
                 {labelKey: b, labelValues: [c]}}",
            ),
            "at most one of",
        ),
        (
            "an unknown churn mode",
            with("{opcode: churn, mode: destroy, templatePaths: [node.yaml]}"),
            "churn.mode: unknown variant `destroy`, expected `create` or `recreate`",
        ),
        (
            "a churn that recreates nothing",
            with("{opcode: churn, mode: recreate, templatePaths: [node.yaml]}"),
            "number: must be at least 1 with mode recreate",
        ),
        (
            "an unknown stage",
            with("{opcode: barrier, stageRequirement: Bound}"),
            "stageRequirement: unknown variant `Bound`, expected `Scheduled` or `Attempted`",
        ),
        (
            "an invalid duration",
            with("{opcode: sleep, duration: soon}"),
            "duration: invalid duration \"soon\"",
        ),
        (
            "a measurement of no namespace",
            with("{opcode: startCollectingMetrics, name: x, namespaces: []}"),
            "namespaces: must not be empty",
        ),
        (
            "nothing that is measured",
            case("{opcode: createPods, count: 1}", ""),
            "no operation collects metrics",
        ),
        (
            "an unknown field of a test case",
            format!(
                "- name: Case\n  workloadTemplates: []\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a}}]\n"
            ),
            "f.yaml: error: line 2 column 3: unknown field `workloadTemplates`, expected one of name",
        ),
        (
            "two workloads of one name",
            format!(
                "- name: Case\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a}}, {{name: a}}]\n"
            ),
            "two workloads are named \"a\"",
        ),
        (
            "two test cases of one name",
            format!("{0}{0}", case(MEASURED, "")),
            "two test cases are named \"Case\"",
        ),
        (
            "a gate that is neither on nor off",
            format!(
                "- name: Case\n  featureGates: {{A: maybe}}\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a}}]\n"
            ),
            "line 2 column 21: invalid boolean",
        ),
        (
            "a negative threshold",
            format!(
                "- name: Case\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a, threshold: -3}}]\n"
            ),
            "threshold: expected a number that is not negative",
        ),
        (
            "a limit of an unknown count",
            format!(
                "- name: Case\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a, limits: {{Tries: 1}}}}]\n"
            ),
            "line 3 column 34: unknown variant `Tries`, expected one of AttemptsPerPod, HintCallsPerPod",
        ),
        (
            "a negative limit",
            format!(
                "- name: Case\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a, limits: {{AttemptsPerPod: -1}}}}]\n"
            ),
            "limits.AttemptsPerPod: expected a number that is not negative, found -1",
        ),
        (
            "a configuration of metrics",
            format!(
                "- name: Case\n  metricsCollectorConfig: {{}}\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a}}]\n"
            ),
            "not supported by berth perf",
        ),
        (
            "values for a template without actions",
            with("{opcode: createNamespaces, prefix: a, count: 1, templateParams: {a: 1}}"),
            "createNamespaces: unknown field \"templateParams\"",
        ),
        (
            "a template of another operation",
            with("{opcode: sleep, duration: 1s, podTemplatePath: pod.yaml}"),
            "sleep: unknown field \"podTemplatePath\"",
        ),
        (
            "a limit that is no number",
            format!(
                "- name: Case\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a, limits: {{AttemptsPerPod: few}}}}]\n"
            ),
            "line 3 column 50: invalid floating point",
        ),
        (
            "a scheduler configuration that is missing",
            format!(
                "- name: Case\n  schedulerConfigPath: c.yaml\n  workloadTemplate: [{MEASURED}]\n  workloads: [{{name: a}}]\n"
            ),
            "schedulerConfigPath: no such file",
        ),
        ("no test case", "[]".to_owned(), "no test cases defined"),
        ("no list", "{}".to_owned(), "expected sequence start"),
    ] {
        match files.read(&text) {
            Ok(_) => wrong.push(format!("{situation} is accepted")),
            Err(error) if error.to_string().contains(expect) => {}
            Err(error) => wrong.push(format!("{situation}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn groups_are_created_from_templates_with_values() {
    let files = Files::new();
    let write = |file: &str, text: &str| {
        std::fs::write(files.0.path().join(file), text).expect("the directory can be written");
    };
    write(
        "group.yaml",
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: 'g-{{ .Index }}'}\nspec: {schedulingPolicy: \
         {gang: {minCount: {{ .size }}}}, priorityClassName: {{ .class }}}\n",
    );
    write(
        "member.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 'p-{{ .Index }}'}\nspec: {schedulingGroup: {podGroupName: 'g-{{ \
         DivideInt .Index .size }}'}}\n",
    );
    let ops = "{opcode: createPodGroups, countParam: $groups, namespace: ns, templatePath: group.yaml, templateParams: \
               {size: $size, class: high}}, {opcode: waitForPodGroups, namespace: ns, countParam: $groups}, {opcode: \
               createPods, countParam: $groups, countMultiplierParam: $size, namespace: ns, podTemplatePath: \
               member.yaml, templateParams: {size: $size}, collectMetrics: true}";
    let workloads = files
        .read(&case(ops, "groups: 4, size: 3"))
        .expect("it is right");
    let [
        Op::CreatePodGroups(groups),
        Op::WaitForPodGroups { count: wait, .. },
        Op::CreatePods(pods),
    ] = workloads[0].ops.as_slice()
    else {
        panic!("{:?}", workloads[0].ops);
    };
    assert_eq!((groups.count, *wait, pods.count), (4, 4, 12));
    let group = groups.template.object(2, 4).expect("the template is right");
    assert_eq!(group["metadata"]["name"], "g-2");
    assert_eq!(group["spec"]["schedulingPolicy"]["gang"]["minCount"], 3);
    assert_eq!(group["spec"]["priorityClassName"], "high");
    let template = pods.template.as_ref().expect("it is given");
    let pod = template.object(11, 12).expect("the template is right");
    assert_eq!(pod["spec"]["schedulingGroup"]["podGroupName"], "g-3");
    let wrong_kind = ops.replacen("group.yaml", "member.yaml", 1);
    let error = files.read(&case(&wrong_kind, "groups: 4, size: 3"));
    let error = error.expect_err("a pod is no group").to_string();
    assert!(
        error.contains("is a Pod, but a PodGroup is needed"),
        "{error}"
    );
}

#[test]
fn the_workloads_of_this_repository_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads");
    for (file, at_least) in [("storms.yaml", 5), ("groups.yaml", 30), ("devices.yaml", 3)] {
        let workloads = read_file(&directory.join(file)).unwrap_or_else(|e| panic!("{e}"));
        assert!(workloads.len() >= at_least, "{file}: {}", workloads.len());
        assert!(
            workloads
                .iter()
                .any(|w| w.labels.iter().any(|l| l == "short"))
        );
    }
}
