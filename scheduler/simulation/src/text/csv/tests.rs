//! Traces as CSV, and mistakes in them.

use super::*;
use crate::trace::{GRACE_PERIOD_ANNOTATION, GateRemoval};
use berth_api::resources::CPU;

fn read(text: &str) -> Result<Trace, TextError> {
    read_csv(text, &mut |path| match path {
        "web.yaml" => {
            let mut pod = Pod::default();
            pod.metadata.labels = berth_api::Labels::from_pairs([("app", "web")]);
            Ok(pod)
        }
        other => Err(format!("there is no file {other}")),
    })
}

#[test]
fn pods_are_read_with_all_columns() {
    let text = "\
# the pods of a day
name,namespace,arrival,every,duration,cpu,memory,example.com/gpu,labels,priority,count,group,group_minimum,template,gates,recreated,grace_period
web,shop,10m,5s,lognormal(1h;1),500m,1Gi,,tier=front;a=b,7,3,,,web.yaml,,yes,0
ring,,0,,90,2,,1,,,4,ring,3,,\"x@10m;y@end:shop/web-0;z@quota\",
ring-b,,0,,90,2,,1,,,1,ring,,,,
";
    let text = text.replace("lognormal(1h;1)", "\"lognormal(1h, 1)\"");
    let trace = read(&text).unwrap_or_else(|e| panic!("{e}"));
    let web = &trace.pods[0];
    assert_eq!(
        (web.count, web.every.as_secs(), web.recreated),
        (3, 5, true)
    );
    assert_eq!(web.arrival, Duration::from_secs(600));
    assert_eq!(
        web.duration,
        Some(Distribution::Lognormal(Duration::from_secs(3600), 1.0))
    );
    assert_eq!(
        web.pod.metadata.annotations.get(GRACE_PERIOD_ANNOTATION),
        Some("0")
    );
    let labels = web.pod.labels();
    assert_eq!(
        (labels.get("app"), labels.get("tier"), labels.get("a")),
        (Some("web"), Some("front"), Some("b"))
    );
    assert_eq!(
        (web.pod.namespace().as_str(), web.pod.priority()),
        ("shop", 7)
    );
    let ring = &trace.pods[1];
    let requests = &ring.pod.spec.containers[0].resources.requests;
    assert_eq!(
        requests.get("example.com/gpu").map(|gpu| gpu.value()),
        Some(1)
    );
    let removals: Vec<&GateRemoval> = ring.gates.iter().map(|gate| &gate.removal).collect();
    let wanted = [
        &GateRemoval::After(Duration::from_secs(600)),
        &GateRemoval::Ended("shop/web-0".into()),
        &GateRemoval::Quota,
    ];
    assert_eq!(removals, wanted);
    assert_eq!((trace.groups.len(), trace.groups[0].minimum), (1, 3));
    // Pods alike are one.
    assert!(Arc::ptr_eq(&ring.pod, &trace.pods[2].pod));
}

#[test]
fn nodes_are_read_with_all_columns() {
    let text = "name,count,cpu,memory,pods,labels,taints,joins,leaves,fails,drains,price_per_hour\n\
                big,2,64,256Gi,50,zone=a,gpu=true:NoSchedule,1h,2d,3h for 10m;1d,,2.5\n";
    let trace = read(text).unwrap_or_else(|e| panic!("{e}"));
    let big = &trace.nodes[0];
    assert_eq!(
        (big.count, big.price_per_hour, big.joins.as_secs()),
        (2, 2.5, 3_600)
    );
    assert_eq!(big.leaves, Some(Duration::from_secs(172_800)));
    assert_eq!(
        (big.outages.len(), big.outages[0].length),
        (2, Some(Duration::from_secs(600)))
    );
    assert_eq!(big.node.spec.taints[0].to_string(), "gpu=true:NoSchedule");
    assert_eq!(
        big.node.status.allocatable.get(CPU).map(|cpu| cpu.value()),
        Some(64)
    );
}

#[test]
fn dates_are_offsets_from_the_first_one() {
    let text = "name,arrival\nb,2026-02-01T00:01:00Z\na,2026-02-01T00:00:00Z\n";
    let trace = read(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(trace.start, "2026-02-01T00:00:00Z".parse().ok());
    assert_eq!(trace.pods[0].arrival, Duration::from_secs(60));
}

#[test]
fn mistakes_have_a_place_and_a_way_out() {
    for (text, wanted) in [
        ("", "line 1: the file is empty"),
        (
            "name,arrival,cpus\n",
            "line 1, column 14, cpus: unknown column \"cpus\"; did you mean \"cpu\"?",
        ),
        (
            "name,arrival,size\n",
            "line 1, column 14, size: unknown column \"size\" of pods; the columns are name, namespace, arrival",
        ),
        (
            "name,arrival,count\na,0,many\n",
            "line 2, column 5, count: \"many\" is no whole number from 0 to 4294967295",
        ),
        (
            "name,arrival\na,0\nb,0\na,1\n",
            "line 4, column 1, name: the name \"a\" is given in line 2 already; give each a name of its own",
        ),
        (
            "name,arrival,count\na,0,0\n",
            "line 2, column 5, count: the count is 0; write at least 1, or remove the item",
        ),
        (
            "name,count\nn,0\n",
            "line 2, column 3, count: the count is 0; write at least 1, or remove the item",
        ),
        (
            "name,arrival,count\na,0,3\na-2,0,\n",
            "line 3, column 1, name: the name \"a-2\" is one of the 3 names of \"a\" in line 2; give each a name of its own",
        ),
        (
            "name,joins,leaves\nn,2h,1h\n",
            "line 2, column 6, leaves: the node leaves no later than it joins, 2h after the start; write a later time",
        ),
        (
            "name,size\n",
            "line 1, column 6, size: unknown column \"size\" of nodes (a file of pods has",
        ),
        (
            "name,arrival,cpu\na,0,1\n\nb,0,x\n",
            "line 4, column 5, cpu: \"x\" is no amount",
        ),
        (
            "name,arrival\na,soon\n",
            "line 2, column 3, arrival: \"soon\" is no duration",
        ),
        (
            "name,arrival,duration\n\"a\",5,1x\n",
            "line 2, column 7, duration: \"1x\" is no distribution",
        ),
        (
            "name,arrival\na,1,2\n",
            "line 2, column 5: the line has 3 fields",
        ),
        (
            "name,arrival,template\na,1,x.yaml\n",
            "line 2, column 5, template: there is no file x.yaml",
        ),
        (
            "name,arrival,gates\na,1,x@later\n",
            "\"later\" does not state when the gate is removed",
        ),
        (
            "name,arrival\n\"a,1\n",
            "line 2, column 1: the quotes are not closed",
        ),
        (
            "name,arrival,name\n",
            "line 1, column 14, name: the column \"name\" is given twice",
        ),
        (
            "name,arrival,cpu\na,0,-1\n",
            "line 2, column 5, cpu: \"-1\" is no amount; write a quantity such as 500m, 2 or 4Gi, at least 0",
        ),
        (
            "name,arrival,group,group-minimum\na,0,g,2\nb,0,g,3\n",
            "line 3, column 5, group: group default/g has a minimum of 2 before and of 3 here",
        ),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text:?}\n{error}");
    }
}
