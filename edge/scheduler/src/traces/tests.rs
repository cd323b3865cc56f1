use super::*;
use berth_api::Time;
use berth_client::testing::{Scripted, status};
use berth_framework::call::PodRef;
use serde_json::{Value, json};

fn trace(name: &str) -> AttemptTrace {
    AttemptTrace {
        pod: PodRef {
            namespace: "ns".into(),
            name: name.into(),
            uid: name.into(),
        },
        profile: "default-scheduler".into(),
        attempt: 1,
        result: "scheduled",
        node: Some("n1".into()),
        message: String::new(),
        began: Time::from_nanos(1),
        ended: Time::from_nanos(2),
        points: Vec::new(),
    }
}

async fn exporting(url: &str, more: &[(&str, &str)]) -> (TraceSender, Exporting) {
    let options = TraceOptions::read(|name| {
        let more = more.iter().find(|(known, _)| *known == name);
        match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.to_owned()),
            _ => more.map(|(_, value)| (*value).to_owned()),
        }
    });
    let options = options.expect("valid").expect("on");
    let collector = Collector::new(&options.collector)
        .await
        .expect("a collector");
    TraceExport { collector, options }.start()
}

/// The names of the pods in a request.
fn pods(body: &Value) -> Vec<String> {
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let spans = spans.as_array().expect("spans").iter();
    let name = |span: &Value| {
        let attributes = span["attributes"].as_array()?.iter();
        let mut names = attributes.filter(|a| a["key"] == "k8s.pod.name");
        Some(names.next()?["value"]["stringValue"].as_str()?.to_owned())
    };
    spans.filter_map(name).collect()
}

#[tokio::test]
async fn traces_are_sent_in_batches_and_the_rest_at_the_end() {
    let mut server = Scripted::start(vec![(200, json!({})), (200, json!({}))]).await;
    let more = [("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")];
    let (sender, exporting) = exporting(server.url(), &more).await;
    for name in ["a", "b", "c"] {
        sender.send(trace(name));
    }
    drop(sender);
    exporting.finish(Duration::from_secs(60)).await;
    for expected in [&["a", "b"][..], &["c"]] {
        let asked = server.asked.recv().await.expect("a request");
        assert_eq!(asked.line(), "POST /v1/traces");
        assert_eq!(pods(&asked.json()), expected);
    }
}

#[tokio::test]
async fn a_refused_batch_is_given_up_and_the_next_one_is_sent() {
    let answers = vec![status(400, "no"), (200, json!({}))];
    let mut server = Scripted::start(answers).await;
    let more = [("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")];
    let (sender, exporting) = exporting(server.url(), &more).await;
    sender.send(trace("a"));
    sender.send(trace("b"));
    drop(sender);
    exporting.finish(Duration::from_secs(60)).await;
    for expected in ["a", "b"] {
        let asked = server.asked.recv().await.expect("a request");
        assert_eq!(pods(&asked.json()), [expected]);
    }
}

/// The core does not wait for a collector that does not answer.
#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
    let more = [("OTEL_BSP_MAX_QUEUE_SIZE", "3")];
    let (sender, _exporting) = exporting("http://127.0.0.1:1", &more).await;
    // The task has not run yet.
    for _ in 0..10 {
        sender.send(trace("a"));
    }
    assert_eq!(sender.dropped.load(Ordering::Relaxed), 7);
}

#[tokio::test]
async fn the_sampler_excludes_pods() {
    let more = [("OTEL_TRACES_SAMPLER", "always_off")];
    let (sender, exporting) = exporting("http://127.0.0.1:1", &more).await;
    sender.send(trace("a"));
    assert_eq!(sender.dropped.load(Ordering::Relaxed), 0);
    drop(sender);
    // No request is in flight, so this returns at once.
    exporting.finish(Duration::from_secs(60)).await;
}

#[test]
fn a_compressed_body_is_gzip() {
    let body = b"[1,1,1,1,1,1,1,1,1,1]";
    let mut read = Vec::new();
    let written = compressed(body);
    let mut decoder = flate2::read::GzDecoder::new(&*written);
    std::io::Read::read_to_end(&mut decoder, &mut read).expect("gzip");
    assert_eq!(read, body);
}
