//! Classes of Unicode characters by name, as Go knows them.

/// The regular expression for use inside of brackets of the class with a name, and whether it has to be negated.
pub(super) fn class(name: &str) -> Option<(String, bool)> {
    let name = canonical(name);
    let category = match &*name {
        "Any" => return Some(("\\p{Any}".to_owned(), false)),
        "Assigned" => return Some(("\\p{gc=Cn}".to_owned(), true)),
        "Ascii" => return Some(("\\x00-\\x7f".to_owned(), false)),
        // No character of a text is a surrogate.
        "Cs" | "Surrogate" => return Some(("\\p{Any}".to_owned(), true)),
        "Lc" => "LC",
        name if CATEGORIES.contains(&name) => name,
        name if SCRIPTS.contains(&name) => return Some((format!("\\p{{sc={name}}}"), false)),
        name => {
            let mut aliases = CATEGORY_ALIASES.iter();
            aliases.find(|(alias, _)| *alias == name)?.1
        }
    };
    Some((format!("\\p{{gc={category}}}"), false))
}

/// The name in the form of the tables: the first letter large, the others small, without spaces.
fn canonical(name: &str) -> String {
    let mut letters = String::with_capacity(name.len());
    for letter in name.chars().filter(|one| !matches!(one, '_' | '-' | ' ')) {
        letters.push(if letters.is_empty() {
            letter.to_ascii_uppercase()
        } else {
            letter.to_ascii_lowercase()
        });
    }
    letters
}

#[rustfmt::skip]
const CATEGORIES: &[&str] = &[
    "C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd",
    "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp",
    "Zs",
];

/// Go does not find scripts of more than one word.
#[rustfmt::skip]
const SCRIPTS: &[&str] = &[
    "Adlam", "Ahom", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "Batak", "Bengali", "Bhaiksuki",
    "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid", "Carian", "Chakma", "Cham", "Cherokee",
    "Chorasmian", "Common", "Coptic", "Cuneiform", "Cypriot", "Cyrillic", "Deseret", "Devanagari", "Dogra",
    "Duployan", "Elbasan", "Elymaic", "Ethiopic", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek",
    "Gujarati", "Gurmukhi", "Han", "Hangul", "Hanunoo", "Hatran", "Hebrew", "Hiragana", "Inherited",
    "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi", "Kharoshthi", "Khmer", "Khojki", "Khudawadi", "Lao",
    "Latin", "Lepcha", "Limbu", "Lisu", "Lycian", "Lydian", "Mahajani", "Makasar", "Malayalam", "Mandaic",
    "Manichaean", "Marchen", "Medefaidrin", "Miao", "Modi", "Mongolian", "Mro", "Multani", "Myanmar",
    "Nabataean", "Nandinagari", "Newa", "Nko", "Nushu", "Ogham", "Oriya", "Osage", "Osmanya", "Palmyrene",
    "Phoenician", "Rejang", "Runic", "Samaritan", "Saurashtra", "Sharada", "Shavian", "Siddham", "Sinhala",
    "Sogdian", "Soyombo", "Sundanese", "Syriac", "Tagalog", "Tagbanwa", "Takri", "Tamil", "Tangsa", "Tangut",
    "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Toto", "Ugaritic", "Vai", "Vithkuqi",
    "Wancho", "Yezidi", "Yi",
];

#[rustfmt::skip]
const CATEGORY_ALIASES: &[(&str, &str)] = &[
    ("Casedletter", "LC"), ("Closepunctuation", "Pe"), ("Cntrl", "Cc"), ("Combiningmark", "M"),
    ("Connectorpunctuation", "Pc"), ("Control", "Cc"), ("Currencysymbol", "Sc"), ("Dashpunctuation", "Pd"),
    ("Decimalnumber", "Nd"), ("Digit", "Nd"), ("Enclosingmark", "Me"), ("Finalpunctuation", "Pf"),
    ("Format", "Cf"), ("Initialpunctuation", "Pi"), ("Letter", "L"), ("Letternumber", "Nl"),
    ("Lineseparator", "Zl"), ("Lowercaseletter", "Ll"), ("Mark", "M"), ("Mathsymbol", "Sm"),
    ("Modifierletter", "Lm"), ("Modifiersymbol", "Sk"), ("Nonspacingmark", "Mn"), ("Number", "N"),
    ("Openpunctuation", "Ps"), ("Other", "C"), ("Otherletter", "Lo"), ("Othernumber", "No"),
    ("Otherpunctuation", "Po"), ("Othersymbol", "So"), ("Paragraphseparator", "Zp"), ("Privateuse", "Co"),
    ("Punct", "P"), ("Punctuation", "P"), ("Separator", "Z"), ("Spaceseparator", "Zs"), ("Spacingmark", "Mc"),
    ("Surrogate", "Cs"), ("Symbol", "S"), ("Titlecaseletter", "Lt"), ("Unassigned", "Cn"),
    ("Uppercaseletter", "Lu"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_to_the_engine() {
        let aliases = CATEGORY_ALIASES.iter().map(|(alias, _)| alias);
        let names = CATEGORIES.iter().chain(SCRIPTS).chain(aliases);
        for name in names.chain(&["Any", "Assigned", "ASCII", "LC"]) {
            let (pattern, _) = class(name).unwrap_or_else(|| panic!("{name}"));
            assert!(
                regex::Regex::new(&format!("[{pattern}]")).is_ok(),
                "{name}: {pattern}"
            );
        }
    }

    #[test]
    fn names_are_read_loosely() {
        assert_eq!(class("upper-case_ LETTER"), class("Lu"));
        assert_eq!(class("gREEK"), Some(("\\p{sc=Greek}".to_owned(), false)));
        for name in ["", "Old_Italic", "L&", "Grek", "Zzzz", "x"] {
            assert_eq!(class(name), None, "{name}");
        }
    }
}
