//! The avoided words of STYLE.md, each with its replacement.

/// A word or a phrase in all its forms.
pub(crate) struct AvoidedWord {
    pub(crate) forms: &'static [&'static str],
    pub(crate) replacement: &'static str,
}

const fn avoided(forms: &'static [&'static str], replacement: &'static str) -> AvoidedWord {
    AvoidedWord { forms, replacement }
}

pub(crate) const AVOIDED: [AvoidedWord; 14] = [
    avoided(
        &["say", "says", "said", "saying"],
        "state, report, log, return",
    ),
    avoided(
        &["tell", "tells", "told", "telling"],
        "report, notify, return; distinguish",
    ),
    avoided(
        &[
            "nobody",
            "somebody",
            "everybody",
            "anybody",
            "someone",
            "anyone",
            "whoever",
        ],
        "the component by its name",
    ),
    avoided(&["hear", "hears", "heard"], "receive"),
    avoided(&["die", "dies", "died"], "exit, end, fail"),
    avoided(&["mend", "mends", "mended", "put right"], "fix, correct"),
    avoided(
        &["promise", "promises", "promised"],
        "nomination, nominated node",
    ),
    avoided(
        &["turn down", "turns down", "turned down", "turned it down"],
        "reject",
    ),
    avoided(
        &["kept out", "keeps out", "keep out", "let in", "lets in"],
        "reject, block, admit",
    ),
    avoided(
        &["goes before", "go before", "went before"],
        "take precedence over, precede",
    ),
    avoided(
        &["stands there", "stand there", "stands twice", "how-manieth"],
        "is listed, occurs; the number of",
    ),
    avoided(
        &["come to nothing", "comes to nothing", "in vain"],
        "fail, without effect",
    ),
    avoided(
        &["found out", "finds out", "find out", "what there is"],
        "determine, detect; results, the available …",
    ),
    avoided(
        &["take back", "takes back", "taken back", "took back"],
        "revert",
    ),
];

/// Texts that are allowed, each with its reason.
pub(crate) const ALLOWED: [(&str, &str); 9] = [
    (
        "does not say why",
        "the message of a status that clients compare and recordings contain",
    ),
    ("a promise resolves to", "JavaScript's Promise"),
    ("new Promise(", "the same, in a script"),
    (
        "fails & says so",
        "the name of a test case in the report of another program",
    ),
    ("fails &amp; says so", "the same, as XML"),
    ("X-Remote-User: somebody", "the name of a user"),
    ("=nobody", "the name of a profile that does not exist"),
    ("label `says`", "the name of a label"),
    (
        "says so\" classname",
        "a test case in the report of another program",
    ),
];
