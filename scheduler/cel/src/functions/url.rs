//! URLs, read as Go reads them: as the API server does.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, Map, MapKey, Url, UrlError};
use std::sync::Arc;

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "url", "string_to_url", "string -> kubernetes.URL" => url;
    "isURL", "is_url_string", "string -> bool" => is_url;
    "getScheme", "url_get_scheme", ".kubernetes.URL -> string" => |_, args| part(args, |url| url.scheme.clone());
    "getHost", "url_get_host", ".kubernetes.URL -> string" => |_, args| part(args, |url| url.host.clone());
    "getHostname", "url_get_hostname", ".kubernetes.URL -> string" => |_, args| part(args, |url| url.host_and_port().0.to_owned());
    "getPort", "url_get_port", ".kubernetes.URL -> string" => |_, args| part(args, |url| url.host_and_port().1.to_owned());
    "getEscapedPath", "url_get_escaped_path", ".kubernetes.URL -> string" => |_, args| part(args, Url::escaped_path);
    "getQuery", "url_get_query", ".kubernetes.URL -> map(string, list(string))" => query;
};

fn text(args: &[CelValue]) -> Result<&str, EvaluationError> {
    match args {
        [CelValue::String(text)] => Ok(text),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn url(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let text = text(args)?;
    let failed = |problem: UrlError| {
        EvaluationError::failed(format!(
            "URL parse error during conversion from string: parse {text:?}: {problem}"
        ))
    };
    let url = Url::read(text).map_err(failed)?;
    Ok(CelValue::Url(Arc::new(url)))
}

fn is_url(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    Ok(CelValue::Bool(Url::in_request(text(args)?).is_ok()))
}

fn part(args: &[CelValue], part: fn(&Url) -> String) -> EvalResult {
    match args {
        [CelValue::Url(url)] => Ok(CelValue::text(&part(url))),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn query(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::Url(url)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let mut map = Map::default();
    for (key, values) in url.parameters() {
        map.insert(MapKey::String(key.into()), CelValue::texts(values));
    }
    Ok(CelValue::Map(Arc::new(map)))
}
