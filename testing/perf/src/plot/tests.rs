use super::*;
use serde_json::json;

fn core(rows: &[(&str, usize, f64)]) -> (String, String) {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(row, nodes, speed)| {
            json!({"row": row, "nodes": nodes, "incremental": {"decisionsPerSecond": speed}})
        })
        .collect();
    ("core.json".to_owned(), json!({"rows": rows}).to_string())
}

#[test]
fn rows_of_several_sizes_become_lines_and_others_do_not() {
    let files = [
        core(&[("mixed", 1_000_000, 20_000.0), ("lone", 5_000, 9.0)]),
        core(&[("mixed", 1_000, 80_000.0), ("plain-only", 1_000, 1.0)]),
    ];
    let plots = plots(&files).expect("a plot");
    let [plot] = &plots[..] else {
        panic!("one plot: {plots:?}");
    };
    assert_eq!(plot.file, "throughput-over-nodes.svg");
    assert!(plot.svg.contains(">mixed</text>"), "{}", plot.svg);
    assert!(!plot.svg.contains("lone"), "{}", plot.svg);
    // From the left end of the area to its right end, and downwards.
    assert_eq!(plot.svg.matches("<polyline").count(), 1);
    assert!(
        plot.svg.contains("<polyline points=\"70.0,"),
        "{}",
        plot.svg
    );
    assert!(plot.svg.contains(" 590.0,"), "{}", plot.svg);
}

fn item(metric: &str, labels: &Value, bucket: &str, value: f64) -> Value {
    let mut all = json!({"Metric": metric, "Name": "X/Case/10Nodes/ns", "Run": "1"});
    for (key, value) in labels.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({"labels": all, "unit": "", "data": {bucket: value}})
}

#[test]
fn the_cpu_time_of_a_pod_is_split_into_parts() {
    let scheduler = json!({"process": "scheduler"});
    let thread = json!({"process": "scheduler", "thread": "berth-core"});
    let server = json!({"process": "apiserver"});
    let items = json!({"dataItems": [
        item("SchedulingDuration", &json!({}), "Duration", 3.0),
        item("CPUSeconds", &scheduler, "Sum", 2.0),
        item("ThreadCPUSeconds", &thread, "Sum", 0.5),
        item("CPUPerPod", &scheduler, "Average", 0.2),
        item("CPUPerPod", &server, "Average", 0.3),
    ]});
    let mut bars = Vec::new();
    let read: Items = serde_json::from_value(items.clone()).expect("items");
    add_bars(&read.data_items, &mut bars);
    let expected = vec![
        ("scheduler: core", 0.05),
        ("scheduler: edge", 0.2 - 0.05),
        ("API server", 0.3),
    ];
    assert_eq!(bars, [("Case 10Nodes".to_owned(), expected)]);
    let plots = plots(&[("r.json".to_owned(), items.to_string())]).expect("a plot");
    assert_eq!(plots[0].file, "cpu-per-pod.svg");
    assert!(plots[0].svg.contains(">0.50</text>"), "{}", plots[0].svg);
}

#[test]
fn what_cannot_be_plotted_is_an_error() {
    for (text, expect) in [
        ("[]", "r.json: not a result of"),
        ("{", "r.json: not a result of"),
        (r#"{"rows": []}"#, "nothing to plot"),
        (r#"{"dataItems": []}"#, "nothing to plot"),
    ] {
        let error = plots(&[("r.json".to_owned(), text.to_owned())]);
        let error = error.expect_err(text).to_string();
        assert!(error.starts_with(expect), "{text}: {error}");
    }
}
