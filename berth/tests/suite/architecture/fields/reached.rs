//! The names with which code and tables access fields.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The methods whose first argument is a name or a path of names.
const METHODS: [&str; 22] = [
    "at",
    "child",
    "contains_key",
    "entries",
    "entry",
    "field",
    "flag",
    "get",
    "get_mut",
    "insert",
    "int",
    "items",
    "labels",
    "map",
    "maybe_flag",
    "maybe_int",
    "maybe_text",
    "part",
    "pointer",
    "pointer_mut",
    "strings",
    "text",
];

/// The functions whose second argument is a name or a path of names.
const FUNCTIONS: [&str; 12] = [
    "at_path",
    "child",
    "child_mut",
    "copy_field",
    "existing",
    "items_mut",
    "meta",
    "remove",
    "set",
    "set_count",
    "set_if_absent",
    "set_if_zero",
];

/// A name, and the name of the enclosing field.
pub(super) type ReachedName = (Option<String>, String);

/// The tokens of a source or of a group of it.
struct Tokens(Vec<TokenTree>);

impl Tokens {
    fn of(stream: TokenStream) -> Self {
        Self(stream.into_iter().collect())
    }

    /// The token at a distance before another token.
    fn before(&self, at: usize, places: usize) -> Option<&TokenTree> {
        self.0.get(at.checked_sub(places)?)
    }

    /// The identifier, or the sign, at a distance before a token.
    fn word(&self, at: usize, places: usize) -> String {
        match self.before(at, places) {
            Some(TokenTree::Ident(name)) => name.to_string(),
            Some(TokenTree::Punct(sign)) => sign.as_char().to_string(),
            _ => String::new(),
        }
    }

    /// Adds the names that are reached. `json` is the place of the tokens, if they are within `json!`.
    fn visit(&self, json: Option<&JsonPlace>, found: &mut Vec<ReachedName>) {
        // The last name of a chain of calls, and the place of its last token.
        let mut last: Option<(usize, String)> = None;
        for (i, token) in self.0.iter().enumerate() {
            let is_key = json.is_some() && self.0.get(i + 1).is_some_and(|next| is_sign(next, ':'));
            match token {
                TokenTree::Group(group) => {
                    let chained = last
                        .take()
                        .filter(|(end, _)| self.chain_begin(i, group) == Some(end + 1));
                    let mut around = chained.map(|(_, name)| name);
                    for name in self
                        .argument(i, group)
                        .map_or(Vec::new(), |at| path(group, at))
                    {
                        found.push((around.replace(name.clone()), name));
                        last = around.clone().map(|name| (i, name));
                    }
                    Self::of(group.stream()).visit(self.json_place(i, json).as_ref(), found);
                }
                TokenTree::Literal(_) if is_key => {
                    let around = json.and_then(|place| place.0.clone());
                    let text = text(token).unwrap_or_default();
                    found.extend(names(&text).map(|name| (around.clone(), name.to_owned())));
                }
                _ => {}
            }
        }
    }

    /// The place of the first token of the call or index that ends with a group.
    fn chain_begin(&self, at: usize, group: &Group) -> Option<usize> {
        match group.delimiter() {
            Delimiter::Bracket => Some(at),
            _ if self.word(at, 2) == "." => at.checked_sub(2),
            _ => None,
        }
    }

    /// The place of a group within `json!`, if it is in one. The entries of a list are at the place of the list.
    fn json_place(&self, at: usize, json: Option<&JsonPlace>) -> Option<JsonPlace> {
        let sign = self.word(at, 1);
        if sign == "!" && self.word(at, 2) == "json" {
            return Some(JsonPlace(None));
        }
        match (self.before(at, 2), &*sign) {
            (Some(key), ":") => json.map(|_| JsonPlace(text(key))),
            _ if sign.is_empty() || sign == "," => json.cloned(),
            // The value of a variable or a call.
            _ => json.map(|_| JsonPlace(None)),
        }
    }

    /// The argument of the call or index that names a field.
    fn argument(&self, at: usize, group: &Group) -> Option<usize> {
        let (name, sign) = (self.word(at, 1), self.word(at, 2));
        let is_error_path = name == "new" && self.word(at, 4) == "ErrorPath";
        match group.delimiter() {
            Delimiter::Parenthesis if sign == "." || is_error_path => {
                // `field` with two arguments is a method of `Debug`.
                let is_debug = name == "field" && argument(group, 1).is_some();
                let is_method = METHODS.contains(&&*name) && !is_debug;
                (is_error_path || is_method).then_some(0)
            }
            Delimiter::Parenthesis => FUNCTIONS.contains(&&*name).then_some(1),
            // `x["a"]`, and not a list.
            Delimiter::Bracket => {
                let is_value = match self.before(at, 1)? {
                    TokenTree::Ident(_) => !["in", "return", "match", "else"].contains(&&*name),
                    TokenTree::Group(_) => true,
                    TokenTree::Punct(sign) => sign.as_char() == '?',
                    TokenTree::Literal(_) => false,
                };
                (is_value && argument(group, 1).is_none()).then_some(0)
            }
            _ => None,
        }
    }
}

/// A place within `json!`: the field around it, if it is known.
#[derive(Clone)]
struct JsonPlace(Option<String>);

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The text of a literal.
fn text(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else {
        return None;
    };
    let literal = literal.to_string();
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    Some(text.to_owned())
}

/// The tokens of an argument of a call.
fn argument(call: &Group, at: usize) -> Option<Vec<TokenTree>> {
    let tokens = Tokens::of(call.stream()).0;
    let argument = tokens.split(|token| is_sign(token, ',')).nth(at)?.to_vec();
    (!argument.is_empty()).then_some(argument)
}

/// The names in a literal argument or a list of literals, from outer to inner fields.
fn path(call: &Group, at: usize) -> Vec<String> {
    let argument = argument(call, at).unwrap_or_default();
    let texts: Vec<String> = match argument.iter().find(|token| !is_sign(token, '&')) {
        Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Bracket => {
            list.stream().into_iter().filter_map(|t| text(&t)).collect()
        }
        Some(token) => text(token).into_iter().collect(),
        None => Vec::new(),
    };
    texts
        .iter()
        .flat_map(|text| names(text).map(str::to_owned))
        .collect()
}

/// The names in a text: the segments of a path, or the text itself. Other texts are keys of maps.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "$/.[]".contains(c);
    let is_pointer = text.starts_with('/') || !text.contains('/');
    let path = if is_pointer && text.chars().all(is_path) {
        text
    } else {
        ""
    };
    let names = path.split(['/', '.', '[', ']']);
    names.filter(|name| !name.is_empty() && !name.bytes().all(|c| c.is_ascii_digit()))
}

/// The names, each within the previous one.
fn nested<'n>(names: impl Iterator<Item = &'n str>) -> Vec<ReachedName> {
    let mut around = None;
    names
        .map(|name| (around.replace(name.to_owned()), name.to_owned()))
        .collect()
}

/// The names that the code of a source reaches.
pub(super) fn reached(source: &str) -> Vec<ReachedName> {
    let code = source.split("#[cfg(test)]\nmod tests {").next();
    let stream: TokenStream = code.unwrap_or_default().parse().expect("tokens of Rust");
    let mut found = Vec::new();
    Tokens::of(stream).visit(None, &mut found);
    found
}

/// The names in the expressions of a line of rules: `self.spec.?nodeName.orValue('')`.
pub(super) fn reached_by_rule(line: &str) -> Vec<ReachedName> {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let expressions = ["must=\"", "must!=\"", "each=\"", "if=\""];
    let expressions = expressions.iter().flat_map(|word| line.split(word).skip(1));
    let expressions = expressions.filter_map(|rest| rest.split('"').next());
    // Texts are between quotes.
    let code = expressions.flat_map(|expression| expression.split('\'').step_by(2));
    let members = code.flat_map(|code| code.split('.').skip(1));
    let members = members.filter_map(|member| {
        let member = member.trim_start_matches('?');
        let end = member.find(|c| !is_part(c)).unwrap_or(member.len());
        let (name, rest) = member.split_at(end);
        (!rest.starts_with('(')).then_some(name)
    });
    let members = members.filter(|name| !name.is_empty());
    members.map(|name| (None, name.to_owned())).collect()
}

/// The names in a line about a resource: the selectable fields, or the path of a column.
pub(super) fn reached_by_resource(line: &str) -> Vec<ReachedName> {
    let paths: Vec<&str> = if let Some(fields) = line.strip_prefix("select ") {
        let fields = fields.split(' ').map(|field| match field.split_once('@') {
            Some((_, pointers)) => pointers,
            None => field.split('=').next().unwrap_or_default(),
        });
        fields.flat_map(|field| field.split('|')).collect()
    } else if line.starts_with("column ") || line.starts_with("wide ") {
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|value| value.split('|').next());
        value
            .filter(|value| value.starts_with('.'))
            .into_iter()
            .collect()
    } else {
        Vec::new()
    };
    paths
        .into_iter()
        .flat_map(|path| nested(names(path)))
        .collect()
}
