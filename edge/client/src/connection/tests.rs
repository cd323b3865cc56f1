use super::*;
use crate::request::{self, PODS};
use crate::testing::{Scripted, status};
use crate::{ConnectOptions, Transport, connect};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// A directory that is removed with the test.
struct Directory(TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("a temporary file");
        path
    }

    /// Writes a kubeconfig with this user.
    fn kubeconfig(&self, server: &str, user: &Value) -> PathBuf {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
            "current-context": "c",
        });
        self.file("kubeconfig", &config.to_string())
    }
}

async fn client(kubeconfig: PathBuf) -> Transport {
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig),
        ..ConnectOptions::default()
    };
    connect(&options).await.expect("a client")
}

/// The tokens of a number of requests.
async fn tokens(server: &mut Scripted, requests: usize) -> Vec<String> {
    let mut tokens = Vec::new();
    for _ in 0..requests {
        let asked = server.asked.recv().await.expect("a request");
        tokens.push(asked.header("authorization").to_owned());
    }
    tokens
}

/// `kubeadm certs renew` and others write the whole kubeconfig again.
#[tokio::test]
async fn a_rejected_request_is_sent_again_with_what_the_kubeconfig_states_now() {
    let answers = vec![status(401, "expired"), (200, json!({}))];
    let mut server = Scripted::start(answers).await;
    let directory = Directory::new();
    let url = server.url().to_owned();
    let client = client(directory.kubeconfig(&url, &json!({"token": "old"}))).await;
    directory.kubeconfig(&url, &json!({"token": "new"}));
    let answer = client.execute(&request::get(PODS, "default", "p")).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(tokens(&mut server, 2).await, ["Bearer old", "Bearer new"]);
}

/// Without other credentials the request is not repeated, and a broken kubeconfig has no effect.
#[tokio::test]
async fn the_previous_credentials_stay_while_there_are_no_usable_ones() {
    let answers = vec![
        status(401, "expired"),
        status(401, "expired"),
        (200, json!({})),
    ];
    let mut server = Scripted::start(answers).await;
    let directory = Directory::new();
    let url = server.url().to_owned();
    let client = client(directory.kubeconfig(&url, &json!({"token": "old"}))).await;
    let get = request::get(PODS, "default", "p");
    let error = client.execute(&get).await.expect_err("it is rejected");
    assert_eq!(error.code(), Some(401));
    directory.file("kubeconfig", "apiVersion: v1\nclusters: 7\n");
    let error = client.execute(&get).await.expect_err("it is rejected");
    assert_eq!(error.code(), Some(401));
    assert!(client.execute(&get).await.is_ok());
    assert_eq!(tokens(&mut server, 3).await, ["Bearer old"; 3]);
}

/// The credentials of an exec plugin need not state when they expire.
#[cfg(unix)]
#[tokio::test]
async fn an_exec_plugin_is_called_again_when_its_credentials_are_rejected() {
    let answers = vec![status(401, "expired"), (200, json!({}))];
    let mut server = Scripted::start(answers).await;
    let directory = Directory::new();
    let credential = |token: &str| {
        let version = "client.authentication.k8s.io/v1";
        json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
            .to_string()
    };
    let printed = directory.file("credential", &credential("old"));
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [printed],
        "interactiveMode": "Never",
    }});
    let client = client(directory.kubeconfig(server.url(), &user)).await;
    directory.file("credential", &credential("new"));
    let answer = client.execute(&request::get(PODS, "default", "p")).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(tokens(&mut server, 2).await, ["Bearer old", "Bearer new"]);
}

#[test]
fn failures_read_the_configuration_again_but_not_each_of_them() {
    let service = tower::service_fn(|_| async { Err("no server".into()) });
    let connection = Connection::fixed(tower::util::BoxCloneSyncService::new(service));
    let mut state = connection.lock();
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "cat"});
    state.in_use.user.exec = Some(serde_json::from_value(exec).expect("a plugin"));
    let begin = Instant::now();
    // (milliseconds, reason, reads again, calls the plugin again)
    for (millis, reason, reads, executes) in [
        (0, ReloadReason::Failed, true, false),
        (900, ReloadReason::Failed, false, false),
        (1_000, ReloadReason::Failed, true, false),
        (1_100, ReloadReason::Rejected, true, true),
        (1_200, ReloadReason::Rejected, false, false),
        (2_200, ReloadReason::Rejected, true, false),
        (6_100, ReloadReason::Rejected, true, true),
    ] {
        let due = state.is_due(reason, begin + Duration::from_millis(millis));
        assert_eq!(due, (reads, executes), "after {millis} ms");
    }
}

fn authority() -> String {
    let made = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]);
    made.expect("a certificate").cert.pem()
}

/// Each file that one side shows to the other counts.
#[test]
fn a_new_certificate_key_or_authority_differs() {
    let directory = Directory::new();
    let cluster = json!({"server": "https://api.example", "certificate-authority": "ca"});
    let user =
        |token: &str| json!({"client-certificate": "crt", "client-key": "key", "token": token});
    let write = |user: Value| {
        let config = json!({
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
            "current-context": "c",
        });
        directory.file("kubeconfig", &config.to_string())
    };
    for (file, text) in [("crt", "1"), ("key", "1"), ("ca", &authority())] {
        directory.file(file, text);
    }
    let path = write(user("1"));
    let read = || Material::of(&Config::from_kubeconfig(&path, None).expect("a kubeconfig"));
    let mut previous = read();
    assert!(previous == read());
    for change in ["crt", "key", "ca", "token"] {
        match change {
            "ca" => drop(directory.file("ca", &authority())),
            "token" => drop(write(user("2"))),
            file => drop(directory.file(file, "2")),
        }
        let next = read();
        assert!(previous != next, "{change}");
        previous = next;
    }
}
