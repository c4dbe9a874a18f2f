//! The caller's token: given by a flag, from the kubeconfig in any of its forms, or requested from the API server for a service account. A client
//! certificate alone does not suffice, as it is not forwarded to the operator.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, bail};
use http::{HeaderValue, Request, Response, header};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use super::{Connection, MAX_WAIT, flags};
use crate::api::names::object;

/// The service account for callers without a token, in the operator's namespace.
const VIEWER: &str = "unikai-viewer";
/// Lifetime of a requested token in seconds: the shortest that the API server grants.
const LASTS: i64 = 600;

/// The credentials.
pub struct Credentials {
    /// How to connect to the API server, if there is one.
    pub config: Option<kube::Config>,
    /// The operator's address, if the kubeconfig names it.
    pub address: Option<String>,
    /// The token for requests to the operator.
    pub token: String,
}

/// Finds the credentials.
pub async fn find(connection: &Connection) -> anyhow::Result<Credentials> {
    let named = connection.token.named()?;
    let is_complete = named.is_some() && connection.url.is_some() && connection.kubeconfig.kubeconfig.is_none();
    let (config, address) = match read(&connection.kubeconfig).await {
        // With an address and a token no kubeconfig is needed.
        Err(_) if is_complete => (None, None),
        read => read?,
    };
    let token = match (named, &config) {
        (Some(token), _) => token,
        (None, Some(config)) => token(connection, config).await?,
        (None, None) => bail!("there is no token; name one with --token-file or UNIKAI_TOKEN, or a kubeconfig"),
    };
    Ok(Credentials { config, address, token })
}

/// How to connect to the API server, and the operator's address in its kubeconfig.
pub async fn read(flags: &flags::Kubeconfig) -> anyhow::Result<(Option<kube::Config>, Option<String>)> {
    let file = match &flags.kubeconfig {
        Some(file) => Some(Kubeconfig::read_from(file).with_context(|| format!("--kubeconfig {}", file.display()))?),
        None => {
            let default = std::env::home_dir().map(|home| home.join(".kube").join("config"));
            usual(std::env::var_os("KUBECONFIG"), default)?
        }
    };
    of_context(file, flags.context.as_deref()).await
}

/// The kubeconfig of kubectl: the files that KUBECONFIG names, else the default file. `None`: there is none. As with kubectl, files that do not exist are left
/// out; but if none of those that are named exists, that is an error.
fn usual(named: Option<OsString>, default: Option<PathBuf>) -> anyhow::Result<Option<Kubeconfig>> {
    let mut named: Vec<PathBuf> = std::env::split_paths(&named.unwrap_or_default()).collect();
    named.retain(|path| !path.as_os_str().is_empty());
    let may_exist = |path: &PathBuf| !matches!(path.try_exists(), Ok(false));
    if named.iter().any(may_exist) {
        named.retain(may_exist);
    }
    let mut merged = None;
    for path in named {
        let about = || format!("KUBECONFIG {}", path.display());
        let file = Kubeconfig::read_from(&path).with_context(about)?;
        let before: Kubeconfig = merged.unwrap_or_default();
        merged = Some(before.merge(file).with_context(about)?);
    }
    match (merged, default.filter(|path| path.exists())) {
        (Some(merged), _) => Ok(Some(merged)),
        (None, Some(path)) => {
            let file = Kubeconfig::read_from(&path).with_context(|| path.display().to_string())?;
            Ok(Some(file))
        }
        (None, None) => Ok(None),
    }
}

/// How to connect to the API server by a context of a kubeconfig; without a kubeconfig, as the service account of the pod that this process runs in.
async fn of_context(
    file: Option<Kubeconfig>,
    context: Option<&str>,
) -> anyhow::Result<(Option<kube::Config>, Option<String>)> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    match (file, context) {
        (Some(file), context) => {
            let address = address(&file, context);
            let config = kube::Config::from_custom_kubeconfig(file, &options)
                .await
                .context("the kubeconfig")?;
            Ok((Some(bounded(config)), address))
        }
        (None, Some(context)) => bail!("--context {context}: there is no kubeconfig; name one with --kubeconfig"),
        (None, None) => Ok((kube::Config::incluster().ok().map(bounded), None)),
    }
}

/// The configuration with a timeout for each request. The library would retry for more than a minute, without reporting the API server's responses.
fn bounded(mut config: kube::Config) -> kube::Config {
    config.connect_timeout = Some(MAX_WAIT / 2);
    config.read_timeout = Some(MAX_WAIT);
    config.default_retry = false;
    config
}

/// The extension that `unikai dev` writes into its kubeconfig.
fn address(file: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(file.current_context.as_deref())?;
    let context = file.contexts.iter().find(|known| known.name == context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = file.clusters.iter().find(|known| known.name == *cluster)?;
    let extensions = cluster.cluster.as_ref()?.extensions.as_ref()?;
    let ours = extensions
        .iter()
        .find(|extension| extension.name == object::KUBECONFIG_EXTENSION)?;
    ours.extension["url"].as_str().map(str::to_owned)
}

async fn token(connection: &Connection, config: &kube::Config) -> anyhow::Result<String> {
    if connection.service_account.is_none()
        && let Some(token) = own(config).await?
    {
        return Ok(token);
    }
    let default = format!("{}/{VIEWER}", connection.operator_namespace);
    let account = connection.service_account.as_deref().unwrap_or(&default);
    let Some((namespace, name)) = account.split_once('/') else {
        bail!("--service-account {account}: not of the form NAMESPACE/NAME");
    };
    made(config, namespace, name).await.with_context(|| {
        format!(
            "the kubeconfig has no token, and the API server makes none of the service account {account} for you; \
             name one that you may make tokens of with --service-account NAMESPACE/NAME, or a token with --token-file"
        )
    })
}

/// The token of the kubeconfig: inline, from a file, or from a program.
async fn own(config: &kube::Config) -> anyhow::Result<Option<String>> {
    let Some(layer) = config.auth_layer().context("the kubeconfig's user")? else {
        return Ok(None);
    };
    let seen = service_fn(|request: Request<kube::client::Body>| async move {
        let sent = request.headers().get(header::AUTHORIZATION).cloned();
        Ok::<Response<Option<HeaderValue>>, BoxError>(Response::new(sent))
    });
    let request = Request::new(kube::client::Body::empty());
    let header = layer.layer(seen).oneshot(request).await;
    let header = header
        .map_err(|error| anyhow::anyhow!(error))
        .context("the kubeconfig's user")?;
    let text = header
        .body()
        .as_ref()
        .and_then(|header| header.to_str().ok())
        .unwrap_or_default();
    Ok(text.strip_prefix("Bearer ").map(str::to_owned))
}

/// Requests a token from the API server.
async fn made(config: &kube::Config, namespace: &str, name: &str) -> anyhow::Result<String> {
    let client = kube::Client::try_from(config.clone())?;
    let asked = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(LASTS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&asked)?)?;
    let made: TokenRequest = client.request(request).await?;
    Ok(made.status.context("no token in the answer")?.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_token_of_a_kubeconfig_is_found_in_all_its_forms() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "from-file").unwrap();
        let program = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "echo",
            "args": [r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-program"}}"#],
        });
        let users = [
            (serde_json::json!({"token": "plain"}), Some("plain")),
            (serde_json::json!({"tokenFile": file}), Some("from-file")),
            (serde_json::json!({"exec": program}), Some("from-program")),
            (serde_json::json!({"username": "u", "password": "p"}), None),
            (serde_json::json!({}), None),
        ];
        for (user, expected) in users {
            let text = serde_json::json!({
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1",
                    "extensions": [{"name": "unikai.dev/operator", "extension": {"url": "http://127.0.0.1:2"}}]}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            });
            let kubeconfig = Kubeconfig::from_yaml(&text.to_string()).unwrap();
            assert_eq!(address(&kubeconfig, None).as_deref(), Some("http://127.0.0.1:2"));
            assert_eq!(address(&kubeconfig, Some("y")), None);
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .unwrap();
            assert_eq!(own(&config).await.unwrap().as_deref(), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_read_is_an_error_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let [broken, missing] = ["broken", "missing"].map(|name| folder.path().join(name));
        std::fs::write(&broken, "clusters: 7").unwrap();
        let named = |path: &PathBuf| Some(path.clone().into_os_string());
        for (file, read) in [
            (&broken, usual(named(&broken), None)),
            (&missing, usual(named(&missing), Some(broken.clone()))),
        ] {
            let error = format!("{:#}", read.unwrap_err());
            assert!(
                error.starts_with(&format!("KUBECONFIG {}: ", file.display())),
                "{error}"
            );
        }
        let error = format!("{:#}", usual(Some(OsString::new()), Some(broken.clone())).unwrap_err());
        assert!(error.starts_with(&format!("{}: ", broken.display())), "{error}");

        // Only without a kubeconfig the service account of the pod counts, which has no contexts.
        let none = usual(None, Some(missing)).unwrap();
        assert!(none.is_none());
        assert_eq!(
            of_context(none, Some("prod")).await.unwrap_err().to_string(),
            "--context prod: there is no kubeconfig; name one with --kubeconfig"
        );
    }

    #[test]
    fn files_that_do_not_exist_are_left_out_of_a_list_with_another() {
        let folder = tempfile::tempdir().unwrap();
        let [valid, broken, missing] = ["valid", "broken", "missing"].map(|name| folder.path().join(name));
        std::fs::write(&valid, "current-context: x").unwrap();
        std::fs::write(&broken, "clusters: 7").unwrap();
        let context = |files: [&PathBuf; 2]| {
            let list = std::env::join_paths(files).unwrap();
            usual(Some(list), None).map(|read| read.unwrap().current_context)
        };
        for files in [[&valid, &missing], [&missing, &valid]] {
            assert_eq!(context(files).unwrap().as_deref(), Some("x"));
        }
        for (files, named) in [([&missing, &broken], &broken), ([&missing, &missing], &missing)] {
            let error = format!("{:#}", context(files).unwrap_err());
            assert!(
                error.starts_with(&format!("KUBECONFIG {}: ", named.display())),
                "{error}"
            );
        }
    }
}
