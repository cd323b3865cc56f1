use super::*;
use serde_json::json;
use tempfile::TempDir;

fn file(directory: &TempDir, name: &str, content: &Value) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, content.to_string()).expect("a temporary file");
    path
}

/// A kubeconfig with one cluster and one user.
fn config_of(cluster: Value, user: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {},
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "users": [{"name": "u", "user": user}],
        "current-context": "x",
    })
}

fn read(content: &Value) -> Result<Config, KubeconfigError> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    Kubeconfig::read_from(&file(&directory, "config", content))?.config()
}

#[test]
fn what_cannot_be_used_is_named() {
    let server = json!({"server": "https://api.example:6443"});
    let with = |key: &str, value: Value| {
        let mut config = config_of(server.clone(), json!({}));
        config[key] = value;
        config
    };
    let of_cluster = |cluster: Value| config_of(cluster, json!({}));
    let of_user = |user: Value| config_of(server.clone(), user);
    for (content, expected) in [
        (
            with("current-context", Value::Null),
            "current-context is not set",
        ),
        (
            with("current-context", json!("y")),
            "context \"y\" is not in the file",
        ),
        (
            with("clusters", json!([])),
            "cluster \"c\" of the context is not in the file",
        ),
        (
            with("clusters", Value::Null),
            "cluster \"c\" of the context is not in the file",
        ),
        (
            of_cluster(json!({})),
            "clusters[\"c\"].cluster.server: Required value",
        ),
        (
            of_cluster(json!({"server": "api.example"})),
            "clusters[\"c\"].cluster.server: \"api.example\" is not a URL with http:// or https://",
        ),
        (
            of_cluster(json!({"server": "https://a", "certificate-authority": "absent.crt"})),
            "clusters[\"c\"].cluster.certificate-authority: failed to read ",
        ),
        (
            of_cluster(json!({"server": "https://a", "certificate-authority-data": "%"})),
            "clusters[\"c\"].cluster.certificate-authority-data: ",
        ),
        (
            of_cluster(json!({"server": "https://a", "certificate-authority-data": "YQ=="})),
            "clusters[\"c\"].cluster.certificate-authority: no certificate in PEM",
        ),
        (
            of_cluster(json!({"server": "https://a", "proxy-url": "a b"})),
            "clusters[\"c\"].cluster.proxy-url: \"a b\" is not a URL",
        ),
        (
            of_user(json!({"client-certificate-data": "YQ=="})),
            "users[\"u\"].user.client-key: Required value: there is a client-certificate",
        ),
        (
            of_user(json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}})),
            "users[\"u\"].user.exec.command: Required value",
        ),
        (
            of_user(
                json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "a"}}),
            ),
            "users[\"u\"].user.exec.apiVersion: \"client.authentication.k8s.io/v1alpha1\" is not supported",
        ),
        (
            of_user(json!({"auth-provider": {"name": "gcp"}})),
            "users[\"u\"].user.auth-provider: \"gcp\" is not supported; use an exec plugin",
        ),
    ] {
        let error = read(&content).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config");
    std::fs::write(&path, "clusters: [").expect("a temporary file");
    let error = Kubeconfig::read_from(&path).expect_err("no YAML");
    let error = error.to_string();
    assert!(error.starts_with("failed to parse "), "{error}");
}

#[test]
fn paths_are_relative_to_the_file_and_data_take_precedence() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in [("crt", "of the file"), ("key", "k")] {
        std::fs::write(directory.path().join(name), text).expect("a temporary file");
    }
    let user = json!({"client-certificate": "crt", "client-key": "key", "tokenFile": "token"});
    let cluster = json!({"server": "https://api.example/prefix"});
    let path = file(&directory, "config", &config_of(cluster.clone(), user));
    let config = Config::from_kubeconfig(&path, None).expect("a kubeconfig");
    let identity = config.user.identity.expect("a certificate");
    assert_eq!(identity, (b"of the file".to_vec(), Secret("k".to_owned())));
    let token_file = Some(directory.path().join("token"));
    assert_eq!(config.user.token_file, token_file);
    assert_eq!(config.cluster_url.path(), "/prefix");
    // "data", with a line break, which Go's decoder skips.
    let user = json!({
        "client-certificate": "crt", "client-certificate-data": "ZGF\n0YQ==",
        "client-key-data": "aw==",
    });
    let path = file(&directory, "config", &config_of(cluster, user));
    let config = Config::from_kubeconfig(&path, None).expect("a kubeconfig");
    let identity = config.user.identity.expect("a certificate");
    assert_eq!(identity, (b"data".to_vec(), Secret("k".to_owned())));
}

#[test]
fn the_first_of_several_files_takes_precedence() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let user = json!({"token": "1"});
    let mut first = config_of(json!({"server": "https://first"}), user.clone());
    first["current-context"] = json!("");
    let mut second = config_of(json!({"server": "https://second"}), user);
    second["contexts"][0]["name"] = json!("y");
    second["current-context"] = json!("y");
    let [first, second] = [("1", first), ("2", second)].map(|(name, content)| {
        Kubeconfig::read_from(&file(&directory, name, &content)).expect("a kubeconfig")
    });
    let mut merged = first;
    merged.merge(second);
    assert_eq!(merged.current_context.as_deref(), Some("y"));
    let config = merged.config().expect("a connection");
    assert_eq!(config.cluster_url.host(), Some("first"));
}

/// As in client-go: a context needs no user.
#[test]
fn a_context_without_a_user_is_anonymous() {
    let mut content = config_of(
        json!({"server": "https://api.example"}),
        json!({"token": "t"}),
    );
    for user in [Value::Null, json!(""), json!("absent")] {
        content["contexts"][0]["context"]["user"] = user;
        let config = read(&content).expect("a connection");
        assert_eq!(config.user, ClientUser::default());
    }
}
