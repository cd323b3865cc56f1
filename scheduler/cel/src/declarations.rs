//! The functions of the environment: their overloads, types and implementations.
//!
//! An overload is declared with the identity that it has in the implementation of Kubernetes, because costs depend on
//! it. Types are written as text: `list(A), int -> A`. A single capital letter is a parameter.

use crate::call_cost::CallCost;
use crate::functions::{
    Declaration, Implementation, authorizer, convert, format, includes, lists, mutation,
    named_format, network, optional, quantity, regex, semver, sets, standard, strings, time, url,
};
use crate::types::Type;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// A function: all overloads of one name.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    /// The cost of a call whose overload is chosen when it is evaluated.
    pub(crate) cost: CallCost,
}

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether it is called on a target, which becomes the first argument.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// Whether a type is a parameter.
    pub(crate) is_generic: bool,
    /// Whether arguments of other types are passed at run time: the implementation checks them itself.
    pub(crate) unguarded: bool,
    pub(crate) implementation: Implementation,
    pub(crate) cost: CallCost,
}

/// All overloads of all modules of functions.
fn declarations() -> impl Iterator<Item = Declaration> {
    [
        standard::DECLARATIONS,
        standard::LESS,
        standard::LESS_EQUALS,
        standard::GREATER,
        standard::GREATER_EQUALS,
        convert::DECLARATIONS,
        time::DECLARATIONS,
        time::PARTS,
        optional::DECLARATIONS,
        strings::DECLARATIONS,
        mutation::DECLARATIONS,
        format::DECLARATIONS,
        lists::DECLARATIONS,
        lists::IS_SORTED,
        lists::MIN,
        lists::MAX,
        lists::SORT,
        sets::DECLARATIONS,
        includes::DECLARATIONS,
        authorizer::DECLARATIONS,
        regex::DECLARATIONS,
        url::DECLARATIONS,
        quantity::DECLARATIONS,
        semver::DECLARATIONS,
        network::DECLARATIONS,
        named_format::DECLARATIONS,
    ]
    .into_iter()
    .flat_map(|declarations| declarations.iter().copied())
}

static FUNCTIONS: LazyLock<FxHashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut found: FxHashMap<&'static str, Function> = FxHashMap::default();
    for (name, id, signature, implementation) in declarations() {
        let function = found.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
            cost: CallCost::of(name, ""),
        });
        function
            .overloads
            .push(overload((name, id, signature, implementation)));
    }
    found
});

/// The function of a name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

/// The type that an identifier names.
pub(crate) fn named_type(name: &str) -> Option<(&'static str, Type)> {
    let (of, a, b) = (
        |of: Type| Some((of.name(), of)),
        Type::Parameter("A"),
        Type::Parameter("B"),
    );
    match name {
        "bool" => of(Type::Bool),
        "bytes" => of(Type::Bytes),
        "double" => of(Type::Double),
        "google.protobuf.Duration" => of(Type::Duration),
        "google.protobuf.Timestamp" => of(Type::Timestamp),
        "duration" => Some(("duration", Type::Duration)),
        "timestamp" => Some(("timestamp", Type::Timestamp)),
        "int" => of(Type::Int),
        "uint" => of(Type::Uint),
        "string" => of(Type::String),
        "null_type" => of(Type::Null),
        "list" => of(Type::list(a)),
        "map" => of(Type::map(a, b)),
        "type" => of(Type::Type(None)),
        "optional_type" => of(Type::optional(Type::Dyn)),
        "net.IP" => of(Type::Opaque("net.IP")),
        "net.CIDR" => of(Type::Opaque("net.CIDR")),
        _ => None,
    }
}

fn overload((name, id, signature, implementation): Declaration) -> Overload {
    let (unguarded, signature) = match signature.strip_prefix('!') {
        Some(signature) => (true, signature),
        None => (false, signature),
    };
    let (member, signature) = match signature.strip_prefix('.') {
        Some(signature) => (true, signature),
        None => (false, signature),
    };
    let (args, result) = signature.split_once("->").unwrap_or((signature, "dyn"));
    let mut reader = Reader(args.trim());
    let mut types = Vec::new();
    while !reader.0.is_empty() {
        types.push(reader.read());
        reader.skip(',');
    }
    let result = Reader(result.trim()).read();
    Overload {
        id,
        member,
        is_generic: is_generic(&result) || types.iter().any(is_generic),
        args: types,
        result,
        unguarded,
        implementation,
        cost: CallCost::of(name, id),
    }
}

fn is_generic(of: &Type) -> bool {
    match of {
        Type::Parameter(_) => true,
        Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => is_generic(of),
        Type::Map(entry) => is_generic(&entry.0) || is_generic(&entry.1),
        _ => false,
    }
}

/// Reads types from their text.
struct Reader(&'static str);

impl Reader {
    fn skip(&mut self, character: char) {
        self.0 = self.0.trim_start();
        self.0 = self
            .0
            .strip_prefix(character)
            .unwrap_or(self.0)
            .trim_start();
    }

    fn read(&mut self) -> Type {
        let end = self.0.find([',', '(', ')']).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        let inner = |reader: &mut Self| {
            reader.skip('(');
            let inner = reader.read();
            reader.skip(')');
            inner
        };
        match name.trim() {
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "dyn" => Type::Dyn,
            "type" => Type::Type(Some(inner(self).into())),
            "list" => Type::list(inner(self)),
            "optional" => Type::optional(inner(self)),
            "map" => {
                self.skip('(');
                let key = self.read();
                self.skip(',');
                let value = self.read();
                self.skip(')');
                Type::map(key, value)
            }
            name @ ("net.IP" | "net.CIDR") => Type::Opaque(name),
            // A single letter is a type parameter.
            name if name.len() == 1 => Type::Parameter(name),
            name => Type::Object(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read() {
        for (signature, args, result, generic) in [
            ("-> Type", vec![], "Type", false),
            ("string -> int", vec!["string"], "int", false),
            (
                ".map(K, list(V)), K -> optional(V)",
                vec!["map(K, list(V))", "K"],
                "optional_type(V)",
                true,
            ),
            ("A -> type(A)", vec!["A"], "type(A)", true),
            (
                ".net.CIDR, kubernetes.URL -> net.IP",
                vec!["net.CIDR", "kubernetes.URL"],
                "net.IP",
                false,
            ),
        ] {
            let read = overload(("", "", signature, |_, _| Ok(crate::value::CelValue::Null)));
            let shown: Vec<String> = read.args.iter().map(ToString::to_string).collect();
            assert_eq!(shown, args, "{signature}");
            assert_eq!(read.result.to_string(), result, "{signature}");
            assert_eq!(read.is_generic, generic, "{signature}");
            assert_eq!(read.member, signature.starts_with('.'), "{signature}");
        }
    }
}
