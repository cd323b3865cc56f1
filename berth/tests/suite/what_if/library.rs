//! `berth what-if` and the library give equal answers.

use super::{list, node, pod, shown, what_if};
use crate::e2e::Scratch;
use berth_core::{ClusterObjects, Configuration, Time, WhatIf, documents};
use serde_json::Value;

#[test]
fn the_library_answers_as_the_program_does() {
    let scratch = Scratch::new("what-if-library");
    let dump = list(&[
        node("n1"),
        node("n2"),
        node("n3"),
        pod("a", "3", "n1"),
        pod("b", "1", "n2"),
        pod("p", "3", ""),
        pod("q", "3", ""),
        pod("r", "9", ""),
    ]);
    let changes = list(&[node("n4"), pod("s", "2", "")]);
    let template = pod("t", "1", "").to_string();
    let cluster = ClusterObjects::from_yaml("dump", &dump).expect("a cluster");
    let (dump, file) = (
        shown(&scratch.file("dump.json", &dump)),
        shown(&scratch.file("changes.json", &changes)),
    );
    let fit = shown(&scratch.file("fit.json", &template));
    let mut consolidate = WhatIf::default();
    consolidate.consolidate = true;
    let mut fitting = WhatIf::default();
    fitting.fit = documents(&fit, &template).expect("a template").pop();
    let changed = WhatIf::changes(&file, &changes).expect("changes");
    for (args, question) in [
        (&[][..], WhatIf::default()),
        (
            &["--add-nodes", "cpu=4,memory=8Gi"],
            WhatIf::add_nodes("cpu=4,memory=8Gi"),
        ),
        (&["--add-nodes", "n1"], WhatIf::add_nodes("n1")),
        (&["-f", &file], changed),
        (&["--drain", "n1,n2"], WhatIf::drain(["n1", "n2"])),
        (&["--consolidate"], consolidate),
        (&["--fit", &fit], fitting),
    ] {
        let of_program = what_if(&[&["--from", dump.as_str()], args].concat());
        let configuration = Configuration::default();
        let report = berth_core::what_if(&cluster, &configuration, &question, Time::EPOCH);
        let report: Value = serde_json::to_value(report.expect("a report")).expect("JSON");
        assert_eq!(of_program.expect("a report"), report, "{args:?}");
    }
}
