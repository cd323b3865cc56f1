//! The kubeconfig of the user: the entries of a named cluster are added and removed; all other entries stay.

use berth_apiserver::{RunningServer, replace_private_file};
use berth_edge::exit::CommandFailure;
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The wait for another program that holds the lock of the file.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The contents of a kubeconfig for a cluster.
#[derive(Debug, Clone)]
pub(crate) struct KubeconfigEntry {
    /// The name of the cluster, the user and the context.
    pub(crate) name: String,
    cluster: Value,
    user: Value,
}

impl KubeconfigEntry {
    /// The administrator of a server. `scheduler` is the URL of its scheduler, for `berth explain`.
    pub(crate) fn of(server: &RunningServer, name: String, scheduler: Option<&str>) -> Self {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(server.ca_pem());
        let mut cluster = json!({
            "server": server.url(),
            "certificate-authority-data": authority,
        });
        if let Some(url) = scheduler {
            let name = berth_embedded::control_plane::SCHEDULER_EXTENSION;
            cluster["extensions"] = json!([{"name": name, "extension": {"url": url}}]);
        }
        Self {
            name,
            cluster,
            user: json!({"token": server.admin_token()}),
        }
    }
}

/// The file to which a cluster is added: the first file of KUBECONFIG, or ~/.kube/config.
///
/// # Errors
/// There is no home directory.
pub(crate) fn default_path() -> Result<PathBuf, CommandFailure> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut listed = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty());
    if let Some(first) = listed.next() {
        return Ok(first);
    }
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    home.map(|home| home.join(".kube").join("config"))
        .ok_or_else(|| {
            CommandFailure::usage("there is no home directory; name a file with --kubeconfig PATH")
        })
}

/// Adds the entries of a cluster, replaces earlier entries of that name, and makes its context the current one.
///
/// # Errors
/// When the file cannot be read or written.
pub(crate) fn add(path: &Path, entry: &KubeconfigEntry) -> Result<(), CommandFailure> {
    change(path, |config| put(config, entry))
}

/// Removes the entries of a cluster; missing entries are not an error.
///
/// # Errors
/// When the file cannot be read or written.
pub(crate) fn remove(path: &Path, name: &str) -> Result<(), CommandFailure> {
    if !path.exists() {
        return Ok(());
    }
    change(path, |config| take_out(config, name))
}

fn put(config: &mut Map<String, Value>, entry: &KubeconfigEntry) {
    config.entry("apiVersion").or_insert_with(|| "v1".into());
    config.entry("kind").or_insert_with(|| "Config".into());
    let name = &entry.name;
    for (list, field, value) in [
        ("clusters", "cluster", entry.cluster.clone()),
        ("users", "user", entry.user.clone()),
        (
            "contexts",
            "context",
            json!({"cluster": name, "user": name}),
        ),
    ] {
        let list = config.entry(list).or_insert_with(|| json!([]));
        if !list.is_array() {
            *list = json!([]);
        }
        let new = json!({"name": name, field: value});
        let items = list.as_array_mut().into_iter();
        for items in items {
            match items.iter_mut().find(|item| item["name"] == **name) {
                Some(item) => *item = new.clone(),
                None => items.push(new.clone()),
            }
        }
    }
    config.insert("current-context".to_owned(), name.clone().into());
}

fn take_out(config: &mut Map<String, Value>, name: &str) {
    for list in ["clusters", "users", "contexts"] {
        if let Some(items) = config.get_mut(list).and_then(Value::as_array_mut) {
            items.retain(|item| item["name"] != name);
        }
    }
    if config
        .get("current-context")
        .is_some_and(|current| current == name)
    {
        config.insert("current-context".to_owned(), "".into());
    }
}

/// Changes the file under the lock that kubectl uses, in one step.
fn change(path: &Path, change: impl FnOnce(&mut Map<String, Value>)) -> Result<(), CommandFailure> {
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        CommandFailure::Environment(format!(
            "failed to {what} the kubeconfig {}: {e}; name another file with --kubeconfig PATH",
            path.display()
        ))
    };
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(|e| failed("write", &e))?;
    }
    // A link stays a link: its target is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let _lock = Lock::take(&path).map_err(|e| failed("lock", &e))?;
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|e| failed("read", &e))?,
    };
    let mut config = match text.trim() {
        "" => Map::new(),
        text => match serde_saphyr::from_str(text) {
            Ok(Value::Object(config)) => config,
            Ok(_) => return Err(failed("read", &"it is no object")),
            Err(e) => return Err(failed("read", &e)),
        },
    };
    change(&mut config);
    let text = serde_saphyr::to_string(&config).map_err(|e| failed("write", &e))?;
    replace_private_file(&path, &text).map_err(|e| failed("write", &e))
}

/// The lock of a kubeconfig: a file in the same folder, as kubectl creates it.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let lock = path.with_file_name(name);
        let begun = Instant::now();
        loop {
            let mut options = std::fs::OpenOptions::new();
            match options.write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                Err(_) if begun.elapsed() > LOCK_PATIENCE => {
                    return Err(io::Error::other(format!(
                        "{} exists: another program changes the file, or has ended before it was done; remove the lock \
                         then",
                        lock.display()
                    )));
                }
                Err(_) => std::thread::sleep(LOCK_PAUSE),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, server: &str) -> KubeconfigEntry {
        KubeconfigEntry {
            name: name.to_owned(),
            cluster: json!({"server": server}),
            user: json!({"token": "secret"}),
        }
    }

    fn read(path: &Path) -> Value {
        let text = std::fs::read_to_string(path).expect("a file");
        serde_saphyr::from_str(&text).expect("YAML")
    }

    const THEIRS: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: prod, cluster: {server: 'https://prod.example'}}]
users: [{name: me, user: {exec: {command: login}}}]
contexts: [{name: prod, context: {cluster: prod, user: me, namespace: shop}}]
current-context: prod
preferences: {}
";

    #[test]
    fn entries_are_added_replaced_and_removed_and_others_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        std::fs::write(&path, THEIRS).expect("a file");
        add(&path, &entry("berth-a", "https://127.0.0.1:1")).expect("added");
        add(&path, &entry("berth-b", "https://127.0.0.1:2")).expect("added");
        add(&path, &entry("berth-a", "https://127.0.0.1:3")).expect("replaced");
        let config = read(&path);
        let servers = config["clusters"].as_array().into_iter().flatten();
        let servers: Vec<_> = servers
            .map(|c| (&c["name"], &c["cluster"]["server"]))
            .collect();
        assert_eq!(
            servers,
            [
                (&json!("prod"), &json!("https://prod.example")),
                (&json!("berth-a"), &json!("https://127.0.0.1:3")),
                (&json!("berth-b"), &json!("https://127.0.0.1:2")),
            ]
        );
        assert_eq!(config["current-context"], "berth-a");
        assert_eq!(config["users"][0]["user"]["exec"]["command"], "login");
        remove(&path, "berth-a").expect("removed");
        remove(&path, "berth-b").expect("removed");
        let left = read(&path);
        let theirs: Value = serde_saphyr::from_str(THEIRS).expect("YAML");
        for list in ["clusters", "users", "contexts"] {
            assert_eq!(left[list], theirs[list], "{list}");
        }
        assert_eq!(left["current-context"], "");
    }

    #[test]
    fn a_missing_file_is_made_readable_by_its_user_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new/config");
        remove(&path, "berth").expect("nothing to remove");
        add(&path, &entry("berth", "https://127.0.0.1:1")).expect("added");
        assert_eq!(read(&path)["kind"], "Config");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = path.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_no_kubeconfig_stays_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        for text in ["[1, 2]", "clusters: [", "just text"] {
            std::fs::write(&path, text).expect("a file");
            let result = add(&path, &entry("berth", "https://127.0.0.1:1"));
            assert!(
                matches!(result, Err(CommandFailure::Environment(_))),
                "{text}"
            );
            let left = std::fs::read_to_string(&path).expect("a file");
            assert_eq!(left, text);
        }
    }
}
