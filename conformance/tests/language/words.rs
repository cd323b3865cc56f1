//! The words of STYLE.md that the project does not use, each with its replacement.

/// Comments and documentation.
pub(crate) const PROSE: u8 = 1;
/// Strings that are sentences. A string without a space is data: a name, a label, a key.
pub(crate) const STRINGS: u8 = 2;
/// The words of an identifier.
pub(crate) const NAMES: u8 = 4;

/// A word or a phrase in all its forms.
pub(crate) struct AvoidedWord {
    pub(crate) forms: &'static [&'static str],
    pub(crate) replacement: &'static str,
    pub(crate) places: u8,
}

const fn avoided(
    forms: &'static [&'static str],
    replacement: &'static str,
    places: u8,
) -> AvoidedWord {
    AvoidedWord {
        forms,
        replacement,
        places,
    }
}

pub(crate) const AVOIDED: [AvoidedWord; 17] = [
    avoided(
        &["say", "says", "said", "saying"],
        "state, report, log, return",
        PROSE | STRINGS | NAMES,
    ),
    avoided(
        &["tell", "tells", "told", "telling"],
        "report, notify, return; distinguish",
        PROSE | STRINGS | NAMES,
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
        PROSE | STRINGS | NAMES,
    ),
    avoided(&["came", "went"], "was added, was removed; arrived", NAMES),
    avoided(
        &["hear", "hears", "heard"],
        "receive",
        PROSE | STRINGS | NAMES,
    ),
    avoided(
        &["die", "dies", "died"],
        "exit, end, fail",
        PROSE | STRINGS | NAMES,
    ),
    avoided(
        &["mend", "mends", "mended", "put right"],
        "fix, correct",
        PROSE | STRINGS | NAMES,
    ),
    avoided(
        &["promise", "promises", "promised"],
        "nomination, nominated node",
        PROSE | STRINGS | NAMES,
    ),
    avoided(
        &["turn down", "turns down", "turned down", "turned it down"],
        "reject",
        PROSE | STRINGS,
    ),
    avoided(
        &["kept out", "keeps out", "keep out", "let in", "lets in"],
        "reject, block, admit",
        PROSE | STRINGS,
    ),
    avoided(
        &["goes before", "go before", "went before"],
        "take precedence over, precede",
        PROSE | STRINGS,
    ),
    avoided(
        &["stands there", "stand there", "stands twice", "how-manieth"],
        "is listed, occurs; the number of",
        PROSE | STRINGS,
    ),
    avoided(
        &["come to nothing", "comes to nothing", "in vain"],
        "fail, without effect",
        PROSE | STRINGS,
    ),
    avoided(
        &["found out", "finds out", "find out", "what there is"],
        "determine, detect; results, the available …",
        PROSE | STRINGS,
    ),
    avoided(
        &["has gone", "have gone", "is gone", "are gone", "was gone"],
        "was deleted, does not exist, has ended",
        PROSE,
    ),
    avoided(
        &["comes about", "come about", "came about"],
        "occurs, is reached",
        PROSE,
    ),
    avoided(
        &["take back", "takes back", "taken back", "took back"],
        "revert",
        PROSE | STRINGS | NAMES,
    ),
];

/// The words with which a comment does not begin: it states the thing, in place of a question about it.
pub(crate) const OPENINGS: [&str; 9] = [
    "What ",
    "How many ",
    "How much ",
    "How long ",
    "How often ",
    "Who ",
    "Whom ",
    "Whatever ",
    "Whoever ",
];

/// Texts that are allowed, each with its reason.
pub(crate) const ALLOWED: [(&str, &str); 8] = [
    (
        "does not say why",
        "the message of a status that clients compare and recordings contain",
    ),
    ("a promise resolves to", "JavaScript's Promise"),
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
