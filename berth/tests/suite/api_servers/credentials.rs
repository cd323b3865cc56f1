//! Credentials that expire and are replaced while the scheduler runs.

use super::faults::{Authority, Exchange, Proxy, Refusal};
use super::{create_pod, ready, scheduler};
use crate::e2e::server::{NAMESPACE, SECRETS, on_each};
use crate::e2e::{Api, eventually};
use berth_client::request;
use serde_json::{Value, json};
use std::path::Path;

const ALONE: &str = "--leader-elect=false";

/// A user whose token is in a file, and one whose exec plugin prints that file.
fn users(token: &Path) -> [(&'static str, Value); 2] {
    let program = r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$(cat "$0")""#;
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", program, token],
        "interactiveMode": "Never",
    });
    [
        ("file", json!({"tokenFile": token})),
        ("exec", json!({"exec": exec})),
    ]
}

/// The token becomes invalid. No pod is scheduled until it is replaced.
#[test]
fn an_expired_token_is_replaced() {
    on_each("token", |server| {
        server.create_nodes(1, 100);
        server.ensure_account(NAMESPACE, crate::e2e::server::ACCOUNT);
        server.deploy("base/rbac.yaml");
        let file = server.scratch.path("token");
        for (kind, user) in users(&file) {
            let secret = format!("token-{kind}");
            let expiring = server.account_token(Some(&secret));
            std::fs::write(&file, &expiring).expect("a file");
            let kubeconfig = server.kubeconfig_with(kind, |_, old| *old = user.clone());
            let scheduler = scheduler(&kubeconfig, &[ALONE]);
            ready(&scheduler);
            let names = ["before", "after"].map(|when| format!("{kind}-{when}"));
            create_pod(&server.api, &names[0], "1m", &json!({}));
            server.api.bound(&names[0]);
            let delete = request::delete(SECRETS, NAMESPACE, &secret, &json!({}));
            server.api.send(&delete);
            // kube-apiserver remembers for a while that a token was valid.
            let with_token = server.kubeconfig_with("expiring", |_, user| {
                *user = json!({"token": expiring});
            });
            let expired = Api::at(with_token);
            let list = request::list(request::PODS, "", 1, "");
            eventually("the token is rejected", || {
                let answer = expired.transport.execute(&list);
                let answer = expired.runtime.block_on(answer);
                answer.is_err_and(|e| e.code() == Some(401)).then_some(())
            });
            create_pod(&server.api, &names[1], "1m", &json!({}));
            eventually("the scheduler's requests are rejected", || {
                let rejected = scheduler.metric("rest_client_requests_total", "code=\"401\"");
                (rejected > 0.0).then_some(())
            });
            let pod = server.api.pod(&names[1]);
            assert!(pod["spec"]["nodeName"].is_null(), "{kind}: {pod}");
            std::fs::write(&file, server.account_token(None)).expect("a file");
            server.api.bound(&names[1]);
        }
    });
}

/// The client certificate, its key and the authority of the server are replaced on the disk, one after the other.
#[test]
fn certificates_are_replaced() {
    on_each("certificates", |server| {
        server.create_nodes(1, 100);
        let (first, second) = (Authority::new(), Authority::new());
        let proxy = Proxy::start(server, &first);
        let install = |authority: &Authority, common_name: &str| {
            let (certificate, key) = authority.client(common_name);
            server.scratch.file("client.crt", &certificate);
            server.scratch.file("client.key", &key);
        };
        install(&first, "first");
        let authority = server.scratch.file("ca.crt", &first.pem);
        let path = |name: &str| server.scratch.path(name);
        let kubeconfig = server.kubeconfig_with("certificates", |cluster, user| {
            *cluster = json!({"server": proxy.url, "certificate-authority": authority});
            *user =
                json!({"client-certificate": path("client.crt"), "client-key": path("client.key")});
        });
        let scheduler = scheduler(&kubeconfig, &[ALONE]);
        ready(&scheduler);
        let binds = |pod: &str, common_name: &str| {
            create_pod(&server.api, pod, "1m", &json!({}));
            server.api.bound(pod);
            let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
            let is_it = |e: &Exchange| e.path == path && e.code < 300;
            proxy.wait_for(1, is_it);
            let log = proxy.log();
            let bindings: Vec<_> = log.iter().filter(|e| is_it(e)).collect();
            assert_eq!(bindings.len(), 1, "{pod}");
            assert_eq!(bindings[0].certificate, common_name, "{pod}");
        };
        binds("before", "first");

        // The certificate of the client has expired.
        install(&first, "second");
        proxy.refuse(usize::MAX, Refusal::Status(401, None), |asked| {
            asked.certificate == "first"
        });
        binds("new-client", "second");

        // The server has a certificate of another authority, and accepts clients of that one.
        install(&second, "third");
        server.scratch.file("ca.crt", &second.pem);
        proxy.serve_with(&second);
        proxy.disconnect();
        binds("new-authority", "third");
        drop(scheduler);
    });
}
