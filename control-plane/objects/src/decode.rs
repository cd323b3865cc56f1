//! From the bytes of a request to an object of the right kind.

use crate::body::{Encoding, WriteBody};
use crate::catalog::ServedResource;
use crate::raw_json;
use crate::schema::GroupVersionKind;
use crate::schema::{self, Decoded, Empties, FieldFault, Schemas};
use crate::status::ApiError;
use crate::view::meta_mut;
use berth_protobuf::envelope::Envelope;
use serde_json::Value;

/// The bytes of a body that cannot be read which the error shows.
const EXCERPT_BYTES_MAX: usize = 64;
/// The number of faults of one body that are reported.
const FAULTS_MAX: usize = 100;

/// The handling of unknown and repeated fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// The request fails.
    Strict,
    /// The fields are dropped and the client is warned.
    #[default]
    Warn,
    /// The fields are dropped.
    Ignore,
}

impl FieldValidation {
    /// Reads the query parameter.
    ///
    /// # Errors
    /// 422 for another word than the three known ones.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "" | "Warn" => Ok(Self::Warn),
            "Strict" => Ok(Self::Strict),
            "Ignore" => Ok(Self::Ignore),
            other => Err(crate::status::bad_option(
                "CreateOptions",
                "fieldValidation",
                crate::field::ErrorType::NotSupported,
                Some(format!("{other:?}")),
                "supported values: \"Ignore\", \"Strict\", \"Warn\"",
            )),
        }
    }
}

impl WriteBody<'_> {
    /// The value in the body, and the fields that the body contains twice.
    pub fn parse(&self, kind: &str) -> Result<(Value, Vec<String>), ApiError> {
        let (format, parsed) = match self.encoding {
            Encoding::Json => ("json", schema::parse_json(self.bytes)),
            Encoding::Yaml => ("yaml", schema::parse_yaml(self.bytes)),
            Encoding::Protobuf => {
                let object = Envelope::open(self.bytes).and_then(|body| body.decode_any_order());
                let object = object.map_err(|e| {
                    ApiError::bad_request(format!(
                        "the object provided is unrecognized (must be of type {kind}): {e}"
                    ))
                })?;
                return Ok((object, Vec::new()));
            }
        };
        let parsed = parsed.map_err(|e| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {format} parse error: {e} ({})",
                self.excerpt()
            ))
        })?;
        Ok((parsed.value, parsed.duplicate_fields))
    }

    fn excerpt(&self) -> String {
        let cut = self.bytes.len() > EXCERPT_BYTES_MAX;
        let shown = self.bytes.get(..EXCERPT_BYTES_MAX).unwrap_or(self.bytes);
        let mut text = String::from_utf8_lossy(shown).into_owned();
        if cut {
            text.push_str(" ...");
        }
        text
    }
}

/// An object that a client has sent.
#[derive(Debug, Clone, Default)]
pub struct SentObject {
    /// The object in its normalized stored form.
    pub object: Value,
    /// The empty lists and maps that were sent.
    pub empties: Empties,
}

impl From<Value> for SentObject {
    fn from(object: Value) -> Self {
        let empties = Empties::default();
        Self { object, empties }
    }
}

/// Reads an object of `resource`. Returns it with the warnings to send.
pub fn object(
    resource: &ServedResource,
    body: WriteBody<'_>,
    validation: FieldValidation,
) -> Result<(SentObject, Vec<String>), ApiError> {
    let kind = resource.group_version_kind();
    let decode = |object: &mut Value| resource.decode(object);
    let in_order = resource.custom.is_none();
    let (mut sent, warnings) = read(kind, body, validation, decode, in_order)?;
    if resource.has_raw_json() {
        raw_json::keep_body(body, &mut sent.object);
    }
    Ok((resource.stored_as_sent(sent), warnings))
}

impl ServedResource {
    /// Brings an object into its normal form: fields that its type does not have are dropped.
    pub fn decode(&self, object: &mut Value) -> Decoded {
        match &self.custom {
            Some(custom) => custom.decode(object),
            None => Schemas::get().normalize_in(self.api, self.group_version_kind(), object),
        }
    }

    /// An object in its stored form.
    pub fn stored_as_sent(&self, sent: SentObject) -> SentObject {
        let object = self.stored(sent.object);
        if self.is_converted() {
            // Another version has other places.
            return object.into();
        }
        SentObject { object, ..sent }
    }
}

/// Reads an object of a group, version and kind.
pub fn of_kind(
    kind: GroupVersionKind<'_>,
    body: WriteBody<'_>,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let decode = |object: &mut Value| Schemas::get().normalize(kind, object);
    let (sent, warnings) = read(kind, body, validation, decode, true)?;
    Ok((sent.object, warnings))
}

fn read(
    kind: GroupVersionKind<'_>,
    body: WriteBody<'_>,
    validation: FieldValidation,
    decode: impl Fn(&mut Value) -> Decoded,
    in_order: bool,
) -> Result<(SentObject, Vec<String>), ApiError> {
    let GroupVersionKind {
        group,
        version,
        kind,
    } = kind;
    let (mut object, duplicates) = body.parse(kind)?;
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    expect_kind(&mut object, &api_version, kind)?;
    let decoded = decode(&mut object);
    let refuse = |what: &str| {
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {what}"
        ))
    };
    if let Some(first) = decoded.type_errors.first() {
        return Err(refuse(first));
    }
    let unknown = &decoded.unknown_fields;
    let mut faults = strict_faults(unknown, &duplicates);
    // kube-apiserver reports faults of JSON in the order of the document.
    if in_order && body.encoding == Encoding::Json && faults.len() > 1 {
        let ordered = schema::faults_in_order(body.bytes, unknown);
        let text = |fault: FieldFault| match fault {
            FieldFault::Unknown(field) => format!("unknown field {field:?}"),
            FieldFault::Duplicate(field) => format!("duplicate field {field:?}"),
        };
        faults = ordered.into_iter().map(text).take(FAULTS_MAX).collect();
    }
    if !faults.is_empty() && validation == FieldValidation::Strict {
        return Err(refuse(&format!(
            "strict decoding error: {}",
            faults.join(", ")
        )));
    }
    // Every stored object has metadata.
    meta_mut(&mut object);
    let warnings = if validation == FieldValidation::Warn {
        faults
    } else {
        Vec::new()
    };
    let empties = decoded.empties;
    Ok((SentObject { object, empties }, warnings))
}

/// `unknown field "x"`, `duplicate field "y"`.
pub fn strict_faults(unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let known = duplicates.iter().filter(|f| !unknown.contains(f));
    let duplicates = known.map(|f| format!("duplicate field {f:?}"));
    let unknown = unknown.iter().map(|f| format!("unknown field {f:?}"));
    duplicates.chain(unknown).take(FAULTS_MAX).collect()
}

/// Sets a missing kind and version; rejects unexpected ones.
fn expect_kind(object: &mut Value, api_version: &str, kind: &str) -> Result<(), ApiError> {
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): it is not an object"
        )));
    };
    let text = |field: &str| {
        map.get(field)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let (got_version, got_kind) = (text("apiVersion"), text("kind"));
    // A client may leave the type out, because the URL determines it.
    let got_version = if got_version.is_empty() {
        api_version.to_owned()
    } else {
        got_version
    };
    if !got_kind.is_empty() && got_kind != kind {
        let (short, package) = (short_version(&got_version), package(api_version));
        return Err(ApiError::bad_request(format!(
            "{got_kind} in version {short:?} cannot be handled as a {kind}: converting ({short}.{got_kind}) to ({package}.{kind}): unknown conversion"
        )));
    }
    if got_version != api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({got_version}) does not match the expected API version ({api_version})"
        )));
    }
    map.insert("apiVersion".to_owned(), api_version.into());
    map.insert("kind".to_owned(), kind.into());
    Ok(())
}

fn short_version(api_version: &str) -> &str {
    api_version
        .rsplit_once('/')
        .map_or(api_version, |(_, version)| version)
}

/// The name of the group of an API version in messages.
fn package(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None => "core",
        Some((group, _)) => group.split_once('.').map_or(group, |(first, _)| first),
    }
}
