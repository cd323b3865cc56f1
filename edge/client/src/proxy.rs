//! The proxy of a connection: from the kubeconfig, else from the environment, by Go's rules.

use crate::setting::{SettingError, redacted};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use std::net::IpAddr;

/// The proxy for a server.
///
/// # Errors
/// It is not a URL; the error begins with the name of the field or variable.
pub(crate) fn of(configured: Option<&str>, server: &Uri) -> Result<Option<Uri>, SettingError> {
    if let Some(url) = configured.filter(|url| !url.is_empty()) {
        return parse("proxy-url", url).map(Some);
    }
    let variable = |names: [&str; 2]| {
        let values = names
            .into_iter()
            .filter_map(|name| std::env::var(name).ok());
        values.into_iter().find(|value| !value.is_empty())
    };
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let Some(proxy) = variable(names) else {
        return Ok(None);
    };
    let except = variable(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    of_environment(names[0], &proxy, &except, server)
}

fn of_environment(
    name: &'static str,
    proxy: &str,
    except: &str,
    server: &Uri,
) -> Result<Option<Uri>, SettingError> {
    let url = if proxy.contains("://") {
        proxy.to_owned()
    } else {
        format!("http://{proxy}")
    };
    let host = server.host().unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    // A proxy of the environment is never asked for this machine.
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return Ok(None);
    }
    let matcher = Matcher::builder().all(url.clone()).no(except).build();
    match matcher.intercept(server) {
        Some(_) => parse(name, &url).map(Some),
        None => parse(name, &url).map(|_| None),
    }
}

fn parse(field: &'static str, url: &str) -> Result<Uri, SettingError> {
    url.parse().map_err(|error| SettingError::Url {
        field,
        url: redacted(url),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_lists_servers_that_are_asked_directly() {
        let proxy = Some("http://proxy.example:3128/");
        for (except, server, expected) in [
            ("", "https://api.example:6443", proxy),
            ("other.example", "https://api.example:6443", proxy),
            ("api.example", "https://api.example:6443", None),
            (".example", "https://api.example:6443", None),
            ("*", "https://api.example:6443", None),
            ("10.0.0.0/8", "https://10.96.0.1", None),
            ("10.0.0.0/8", "https://192.0.2.1", proxy),
            ("", "https://127.0.0.1:6443", None),
            ("", "https://[::1]:6443", None),
            ("", "https://localhost:6443", None),
        ] {
            let server = server.parse().expect("a URL");
            let found = of_environment("HTTPS_PROXY", "proxy.example:3128", except, &server);
            let found = found.expect("a proxy").map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{except} {server}");
        }
        let server = "https://api.example".parse().expect("a URL");
        let error = of_environment("HTTPS_PROXY", "http://a b", "", &server);
        let error = error.expect_err("no URL").to_string();
        assert!(error.starts_with("HTTPS_PROXY: \"http://a b\""), "{error}");
    }
}
