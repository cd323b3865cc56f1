//! kubectl's everyday commands, one table: each command, whether it succeeds, and its output.

use crate::e2e::{Cluster, Kubectl, eventually};

/// A Deployment with its budget.
const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web:1}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
";

/// Two objects in one `List`.
const LIST: &str = "\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}
- {apiVersion: v1, kind: Service, metadata: {name: svc}, spec: {selector: {app: web}, ports: [{port: 80}]}}
";

/// A pod that can be resized.
const SIZED: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: sized, labels: {app: sized}}
spec: {containers: [{name: c, image: registry.example/c:1, resources: {requests: {cpu: 100m}}}]}
";

use Outcome::{Fails, Prints};

/// The result of a command.
enum Outcome {
    /// It succeeds; its output contains these.
    Prints(&'static [&'static str]),
    /// It fails; its errors contain these.
    Fails(&'static [&'static str]),
}

/// Commands in order. `%` is the directory of the manifests; words in single quotes are one argument.
const COMMANDS: &[(&str, Outcome)] = &[
    // Objects from files.
    (
        "create -f %/list.yaml",
        Prints(&["configmap/one created", "service/svc created"]),
    ),
    (
        "apply -f %/list.yaml",
        Prints(&["configmap/one configured", "service/svc configured"]),
    ),
    (
        "delete -f %/list.yaml",
        Prints(&["configmap \"one\" deleted"]),
    ),
    (
        "apply -f %/list.yaml",
        Prints(&["configmap/one created", "service/svc created"]),
    ),
    (
        "get -f %/list.yaml",
        Prints(&["configmap/one", "service/svc"]),
    ),
    (
        "replace --force -f %/list.yaml",
        Prints(&["configmap/one replaced"]),
    ),
    (
        "create -f %/web.yaml --dry-run=server",
        Prints(&["deployment.apps/web created (server dry run)"]),
    ),
    ("get deployments", Prints(&["No resources found"])),
    // Server-side apply.
    (
        "apply --server-side --field-manager=alice -f %/web.yaml",
        Prints(&["web serverside-applied"]),
    ),
    (
        "apply --server-side --field-manager=bob -f %/web4.yaml",
        Fails(&["conflict with \"alice\": .spec.replicas"]),
    ),
    (
        "apply --server-side --field-manager=bob --force-conflicts -f %/web4.yaml",
        Prints(&["web serverside-applied"]),
    ),
    (
        "get deploy web -o yaml --show-managed-fields",
        Prints(&["manager: alice", "manager: bob", "f:replicas"]),
    ),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    // Outputs.
    (
        "get pods -l app=web",
        Prints(&[
            "NAME ", "READY", "STATUS", "RESTARTS", "AGE", "1/1", "Running",
        ]),
    ),
    (
        "get pods -o wide",
        Prints(&["NODE", "NOMINATED NODE", "READINESS GATES", "berth-node-"]),
    ),
    (
        "get deploy web -o yaml",
        Prints(&["kind: Deployment", "  replicas: 4"]),
    ),
    (
        "get deploy web -o json",
        Prints(&["\"kind\": \"Deployment\""]),
    ),
    (
        "get deploy,svc -o name",
        Prints(&["deployment.apps/web", "service/svc"]),
    ),
    (
        "get deploy web -o jsonpath={.status.readyReplicas}",
        Prints(&["4"]),
    ),
    (
        "get deploy -o custom-columns=N:.metadata.name,R:.spec.replicas",
        Prints(&["N ", "web ", "4"]),
    ),
    (
        "get deploy -o 'go-template={{range .items}}<{{.metadata.name}}>{{end}}'",
        Prints(&["<web>"]),
    ),
    ("get pods --show-labels", Prints(&["LABELS", "app=web"])),
    ("get pods -L app --sort-by=.metadata.name", Prints(&["APP"])),
    (
        "get pods --field-selector=status.phase=Pending",
        Prints(&["No resources found"]),
    ),
    (
        "get pods --field-selector=bogus=1",
        Fails(&["field label not supported: bogus"]),
    ),
    (
        "get pods -l 'app in (web),tier!=x' --chunk-size=1 -o name",
        Prints(&["pod/web-"]),
    ),
    (
        "get all",
        Prints(&[
            "pod/web-",
            "service/svc",
            "deployment.apps/web",
            "replicaset.apps/web-",
        ]),
    ),
    (
        "get deploy web --subresource=scale",
        Prints(&["DESIRED", "AVAILABLE", "web "]),
    ),
    (
        "get deploy web --subresource=status -o jsonpath={.status.replicas}",
        Prints(&["4"]),
    ),
    (
        "get nosuch",
        Fails(&["doesn't have a resource type \"nosuch\""]),
    ),
    ("get pod nosuch", Fails(&["pods \"nosuch\" not found"])),
    // Descriptions.
    (
        "describe deploy web",
        Prints(&[
            "4 desired | 4 updated | 4 total | 4 available",
            "NewReplicaSetAvailable",
            "ScalingReplicaSet",
        ]),
    ),
    (
        "describe pods -l app=web",
        Prints(&["Controlled By:  ReplicaSet/web-", "QoS Class:"]),
    ),
    (
        "describe node berth-node-1",
        Prints(&[
            "MemoryPressure",
            "Non-terminated Pods:",
            "HolderIdentity:  berth-node-1",
        ]),
    ),
    // The budget is computed after the pods have changed.
    (
        "wait pdb/web --for=jsonpath={.status.disruptionsAllowed}=2 --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "describe pdb web",
        Prints(&["Min available:  2", "Allowed disruptions:  2"]),
    ),
    (
        "describe svc svc",
        Prints(&["Selector:                 app=web"]),
    ),
    // Changes.
    ("label deploy web tier=front", Prints(&["labeled"])),
    (
        "label deploy web tier=back",
        Fails(&["--overwrite is false"]),
    ),
    ("label --overwrite deploy web tier-", Prints(&["labeled"])),
    ("annotate deploy web note=x", Prints(&["annotated"])),
    ("edit deploy web", Prints(&["deployment.apps/web edited"])),
    (
        "get deploy web -o jsonpath={.metadata.annotations.note}",
        Prints(&["changed"]),
    ),
    (
        "patch deploy web -p '{\"spec\":{\"minReadySeconds\":1}}'",
        Prints(&["patched"]),
    ),
    (
        "patch deploy web --type=merge -p '{\"spec\":{\"minReadySeconds\":0}}'",
        Prints(&["patched"]),
    ),
    (
        "patch deploy web --type=json -p '[{\"op\":\"test\",\"path\":\"/spec/minReadySeconds\",\"value\":7}]'",
        Fails(&["The request is invalid"]),
    ),
    (
        "patch deploy web --subresource=scale --type=merge -p '{\"spec\":{\"replicas\":3}}'",
        Prints(&["web patched"]),
    ),
    (
        "scale deploy web --replicas=5 --current-replicas=3",
        Prints(&["scaled"]),
    ),
    (
        "scale deploy web --replicas=5 --current-replicas=3",
        Fails(&["Expected replicas to be 3, was 5"]),
    ),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    (
        "set image deploy/web web=registry.example/web:2",
        Prints(&["image updated"]),
    ),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    ("rollout restart deploy/web", Prints(&["restarted"])),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    (
        "rollout history deploy/web",
        Prints(&["REVISION", "1 ", "2 ", "3 "]),
    ),
    (
        "rollout undo deploy/web --to-revision=1",
        Prints(&["rolled back"]),
    ),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    (
        "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}",
        Prints(&["registry.example/web:1"]),
    ),
    (
        "replace -f %/web.yaml",
        Prints(&["deployment.apps/web replaced"]),
    ),
    // `diff` shows concurrent changes of the status.
    (
        "wait deploy/web --for=jsonpath={.status.replicas}=3 --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "wait deploy/web --for=jsonpath={.status.availableReplicas}=3 --timeout=60s",
        Prints(&["condition met"]),
    ),
    ("diff -f %/web4.yaml", Fails(&[])),
    ("diff -f %/web.yaml", Prints(&[])),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    // Nodes.
    (
        "taint node berth-node-1 k=v:NoSchedule",
        Prints(&["tainted"]),
    ),
    (
        "taint node berth-node-1 k=v:NoSchedule",
        Fails(&["--overwrite is false"]),
    ),
    (
        "taint node berth-node-1 k:NoSchedule-",
        Prints(&["untainted"]),
    ),
    ("cordon berth-node-1", Prints(&["cordoned"])),
    (
        "get node berth-node-1",
        Prints(&["Ready,SchedulingDisabled"]),
    ),
    ("uncordon berth-node-1", Prints(&["uncordoned"])),
    (
        "drain berth-node-1 --force --timeout=60s",
        Prints(&["node/berth-node-1 drained"]),
    ),
    ("uncordon berth-node-1", Prints(&["uncordoned"])),
    (
        "rollout status deploy/web --timeout=60s",
        Prints(&["successfully rolled out"]),
    ),
    (
        "patch pdb web --type=merge -p '{\"spec\":{\"minAvailable\":3}}'",
        Prints(&["patched"]),
    ),
    (
        "wait pdb/web --for=jsonpath={.status.disruptionsAllowed}=0 --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "drain berth-node-1 berth-node-2 --force --pod-selector=app=web --timeout=10s",
        Fails(&["violate the pod's disruption budget"]),
    ),
    (
        "uncordon berth-node-1 berth-node-2",
        Prints(&["uncordoned"]),
    ),
    // Waiting.
    (
        "wait deploy/web --for=condition=Available --timeout=60s",
        Prints(&["condition met"]),
    ),
    ("wait pod/none --for=delete --timeout=5s", Prints(&[])),
    (
        "wait deploy/web --for=jsonpath={.spec.replicas}=99 --timeout=1s",
        Fails(&["timed out"]),
    ),
    // In-place resize, ephemeral containers.
    ("create -f %/sized.yaml", Prints(&["pod/sized created"])),
    (
        "wait pod/sized --for=condition=Ready --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "patch pod sized --subresource=resize -p '{\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":\"200m\"}}}]}}'",
        Prints(&["patched"]),
    ),
    (
        "wait pod/sized --for=jsonpath={.status.containerStatuses[0].resources.requests.cpu}=200m --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "debug sized --image=registry.example/debug:1 --container=dbg",
        Prints(&[]),
    ),
    (
        "wait pod/sized --for=jsonpath={.status.ephemeralContainerStatuses[0].name}=dbg --timeout=60s",
        Prints(&["condition met"]),
    ),
    // Quotas.
    (
        "create quota few --hard=pods=1,count/configmaps=100",
        Prints(&["resourcequota/few created"]),
    ),
    (
        "wait quota/few --for=jsonpath={.status.hard.pods}=1 --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "run over --image=registry.example/over:1",
        Fails(&["exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=1"]),
    ),
    ("get quota few", Prints(&["REQUEST", "LIMIT", "pods: 4/1"])),
    ("describe quota few", Prints(&["pods", "4", "1"])),
    ("delete quota few", Prints(&["deleted"])),
    // Other objects.
    (
        "run tmp --image=registry.example/tmp:1 --restart=Never -l app=tmp",
        Prints(&["pod/tmp created"]),
    ),
    (
        "expose deploy web --port=80 --name=web2",
        Prints(&["service/web2 exposed"]),
    ),
    (
        "create job j --image=registry.example/j:1",
        Prints(&["job.batch/j created"]),
    ),
    (
        "create cronjob cj --image=registry.example/j:1 --schedule='*/5 * * * *'",
        Prints(&["cronjob.batch/cj created"]),
    ),
    (
        "create job j2 --from=cronjob/cj",
        Prints(&["job.batch/j2 created"]),
    ),
    (
        "create secret generic s --from-literal=a=b",
        Prints(&["secret/s created"]),
    ),
    ("create sa robot", Prints(&["serviceaccount/robot created"])),
    (
        "create role r1 --verb=get --resource=pods",
        Prints(&["r1 created"]),
    ),
    (
        "create rolebinding rb1 --role=r1 --serviceaccount=default:robot",
        Prints(&["rb1 created"]),
    ),
    (
        "create ingress i --rule=a.example/x=svc:80",
        Prints(&["i created"]),
    ),
    (
        "get cj,job,hpa,ingress,secret,sa,role,rolebinding,limitrange",
        Prints(&[
            "cronjob.batch/cj",
            "*/5 * * * *",
            "role.rbac.authorization.k8s.io/r1",
        ]),
    ),
    // Questions.
    (
        "explain deploy.spec.strategy.type",
        Prints(&["GROUP:      apps", "FIELD: type <string>"]),
    ),
    ("explain nosuch", Fails(&["nosuch"])),
    (
        "api-resources --api-group=apps",
        Prints(&["deployments", "deploy", "apps/v1", "true"]),
    ),
    (
        "api-resources --namespaced=false -o name",
        Prints(&["nodes", "priorityclasses.scheduling.k8s.io"]),
    ),
    ("api-versions", Prints(&["apps/v1", "v1"])),
    ("cluster-info", Prints(&["control plane", "is running at"])),
    ("auth can-i create pods", Prints(&["yes"])),
    ("auth can-i --list", Prints(&["*.*"])),
    ("auth whoami", Prints(&["berth-admin", "system:masters"])),
    ("events --for=deploy/web", Prints(&["ScalingReplicaSet"])),
    // A command that needs containers or a metrics server is refused. kubectl asks only for running pods.
    (
        "wait pod/tmp --for=jsonpath={.status.phase}=Running --timeout=60s",
        Prints(&["condition met"]),
    ),
    (
        "logs deploy/web",
        Fails(&["pods/log is not served", "simulated"]),
    ),
    ("exec deploy/web -- ls", Fails(&["pods/exec is not served"])),
    ("attach tmp", Fails(&["pods/attach is not served"])),
    (
        "port-forward tmp 8080:80",
        Fails(&["pods/portforward is not served"]),
    ),
    ("top nodes", Fails(&["Metrics API not available"])),
    // Deletion.
    ("delete pods -l app=tmp", Prints(&["pod \"tmp\" deleted"])),
    (
        "delete deploy web --cascade=orphan",
        Prints(&["deployment.apps \"web\" deleted"]),
    ),
    ("get rs -o name", Prints(&["replicaset.apps/web-"])),
    (
        "delete rs,job,cj,hpa --all",
        Prints(&["replicaset.apps \"web-", "job.batch \"j\" deleted"]),
    ),
];

#[test]
fn every_everyday_command_works() {
    let cluster = Cluster::up("kubectl-everyday-table", &["--nodes", "2"]);
    let four = WEB.replace("replicas: 3", "replicas: 4");
    for (name, text) in [
        ("web", WEB),
        ("web4", &four),
        ("list", LIST),
        ("sized", SIZED),
    ] {
        cluster.scratch.file(&format!("{name}.yaml"), text);
    }
    let directory = cluster.scratch.path("");
    let directory = directory.display().to_string();
    let directory = directory.trim_end_matches('/');
    for (i, kubectl) in Kubectl::all(&cluster).iter().enumerate() {
        let namespace = format!("everyday-{i}");
        kubectl.ok(&["create", "namespace", &namespace]);
        eventually("the service account exists", || {
            let output = kubectl.run(&["get", "sa", "default", "-n", &namespace]);
            output.status.success().then_some(())
        });
        for (command, outcome) in COMMANDS {
            let command = command.replace('%', directory);
            let mut args = vec!["-n".to_owned(), namespace.clone()];
            args.extend(words(&command));
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let run = || {
                kubectl
                    .command(&args)
                    .env("KUBE_EDITOR", "sed -i -e 's/note:.x/note: changed/'")
                    .output()
                    .expect("kubectl runs")
            };
            let mut output = run();
            // `replace` reads the version and writes it; a controller may write a status in between.
            let conflict = b"the object has been modified";
            let mut bytes = output.stderr.windows(conflict.len());
            if bytes.any(|part| part == conflict) {
                output = run();
            }
            let printed = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let (succeeds, shown, texts) = match outcome {
                // `No resources found` is printed to standard error.
                Prints(texts) => (true, format!("{printed}{errors}"), texts),
                Fails(texts) => (false, errors.to_string(), texts),
            };
            let what = format!(
                "{}: kubectl {command}\n{printed}{errors}",
                kubectl.version()
            );
            assert_eq!(output.status.success(), succeeds, "{what}");
            for text in *texts {
                assert!(shown.contains(text), "no {text:?} in\n{what}");
            }
        }
        kubectl.ok(&["delete", "namespace", &namespace, "--timeout=120s"]);
    }
}

/// The words of a command; a quoted part belongs to its word.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in command.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("one word").push(c),
        }
    }
    words
}
