use super::*;
use crate::kubeconfig::ClusterEntry;
use serde_json::{Value, json};
use std::io::IsTerminal;

const V1: &str = "client.authentication.k8s.io/v1";

fn entry(script: &str) -> Value {
    json!({
        "apiVersion": V1,
        "command": "sh",
        "args": ["-c", script],
        "env": [{"name": "BERTH_TEST", "value": "of the plugin"}],
        "interactiveMode": "Never",
    })
}

fn exec(script: &str) -> Exec {
    serde_json::from_value(entry(script)).expect("a plugin")
}

fn printing(status: &Value) -> Exec {
    let credential = json!({"apiVersion": V1, "kind": "ExecCredential", "status": status});
    exec(&format!("echo '{credential}'"))
}

fn with(exec: Exec) -> Config {
    let mut config = Config::new("https://api.example".parse().expect("a URL"));
    config.user.exec = Some(exec);
    config
}

#[cfg(unix)]
#[test]
fn a_plugin_that_fails_is_named_with_the_reason() {
    let other = json!({"apiVersion": "v1", "kind": "Pod"});
    for (plugin, expected) in [
        (exec("exit 3"), "failed with exit status: 3"),
        (
            exec("echo no JSON"),
            "failed to parse its output as ExecCredential",
        ),
        (
            exec(&format!("echo '{other}'")),
            "its output is Pod v1, not ExecCredential",
        ),
        (printing(&Value::Null), "its output has no status"),
        (
            printing(&json!({})),
            "neither a token nor a client certificate",
        ),
        (
            printing(&json!({"clientCertificateData": "c"})),
            "only one of clientCertificateData and clientKeyData",
        ),
        (
            serde_json::from_value(json!({
                "apiVersion": V1, "command": "/nowhere/plugin", "installHint": "install it with …",
            }))
            .expect("a plugin"),
            "install it with …",
        ),
        (
            serde_json::from_value(json!({
                "apiVersion": V1, "command": "sh", "interactiveMode": "Always",
            }))
            .expect("a plugin"),
            "interactiveMode is Always",
        ),
    ] {
        // In a terminal, the last case would prompt the person who runs the tests.
        if expected.starts_with("interactive") && std::io::stdin().is_terminal() {
            continue;
        }
        let error = Credentials::of(&with(plugin)).err().expect(expected);
        let error = error.to_string();
        assert!(error.starts_with("exec plugin "), "{error}");
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_plugin_receives_its_environment_and_the_cluster() {
    let script = format!(
        "info=$(printf %s \"$KUBERNETES_EXEC_INFO\" | tr -d '\"{{}}[] ' | tr ',:/' '___'); echo \
         '{{\"apiVersion\":\"{V1}\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"'\"$BERTH_TEST $info\"'\"}}}}'"
    );
    let mut plugin = entry(&script);
    plugin["provideClusterInfo"] = true.into();
    let plugin: Exec = serde_json::from_value(plugin).expect("a plugin");
    let cluster = ClusterEntry {
        server: "https://api.example".to_owned(),
        ..ClusterEntry::default()
    };
    let plugin = plugin
        .of_cluster(|| cluster.exec_cluster())
        .expect("a plugin");
    let credentials = Credentials::of(&with(plugin)).expect("a token");
    let mut headers = HeaderMap::new();
    let added = credentials.headers.add_to(&mut headers).await;
    added.expect("a header");
    let token = headers[AUTHORIZATION].to_str().expect("a text");
    for part in [
        "Bearer of the plugin",
        "kind_ExecCredential",
        "interactive_false",
        "server_https___api.example",
    ] {
        assert!(token.contains(part), "{token}: {part}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_token_is_renewed_before_its_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("credential");
    let print = |token: &str, end: &str| {
        let status = json!({"token": token, "expirationTimestamp": end});
        let credential = json!({"apiVersion": V1, "kind": "ExecCredential", "status": status});
        std::fs::write(&path, credential.to_string()).expect("a temporary file");
    };
    print("first", "2001-01-01T00:00:00Z");
    let plugin = exec(&format!("cat {}", path.display()));
    let credentials = Credentials::of(&with(plugin)).expect("a token");
    let header = async || {
        let mut headers = HeaderMap::new();
        let added = credentials.headers.add_to(&mut headers).await;
        added.expect("a header");
        headers[AUTHORIZATION].clone()
    };
    print("second", "9000-01-01T00:00:00Z");
    assert_eq!(header().await, "Bearer second");
    print("third", "9000-01-01T00:00:00Z");
    assert_eq!(header().await, "Bearer second");
}

#[tokio::test]
async fn passwords_and_impersonation_are_headers() {
    let mut config = Config::new("https://api.example".parse().expect("a URL"));
    config.user.basic = Some(("jane".to_owned(), Secret("secret".to_owned())));
    let extra = [("example.com/Scope".to_owned(), vec!["a".to_owned()])];
    config.user.impersonation = Impersonation {
        user: Some("joe".to_owned()),
        uid: Some("7".to_owned()),
        groups: vec!["one".to_owned(), "two".to_owned()],
        extra: extra.into(),
    };
    let credentials = Credentials::of(&config).expect("headers");
    let mut headers = HeaderMap::new();
    let added = credentials.headers.add_to(&mut headers).await;
    added.expect("headers");
    assert_eq!(headers[AUTHORIZATION], "Basic amFuZTpzZWNyZXQ=");
    assert_eq!(headers["impersonate-user"], "joe");
    assert_eq!(headers["impersonate-uid"], "7");
    let groups: Vec<_> = headers.get_all("impersonate-group").iter().collect();
    assert_eq!(groups, ["one", "two"]);
    assert_eq!(headers["impersonate-extra-example.com%2fscope"], "a");
}
