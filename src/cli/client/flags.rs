//! Flags that several commands have: the kubeconfig, the token, the namespaces.

use std::path::PathBuf;

use anyhow::Context;

use super::Client;

/// Which cluster.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Kubeconfig {
    /// The kubeconfig file [default: that of kubectl (KUBECONFIG, else ~/.kube/config), else the service account of the pod that this process runs in]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// The token for requests to the operator.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Token {
    /// File with the token for requests to the operator [default: the kubeconfig's token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Token for requests to the operator
    #[arg(
        long,
        env = "UNIKAI_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        conflicts_with = "token_file"
    )]
    token: Option<String>,
}

impl Token {
    /// The token of the flags, if one is given.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn named(&self) -> anyhow::Result<Option<String>> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(file)) => {
                std::fs::read_to_string(file).with_context(|| format!("--token-file {}", file.display()))?
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(token.trim().to_owned()))
    }
}

/// What a command is about.
#[derive(Debug, clap::Args)]
pub struct Subject<K: clap::ValueEnum + Clone + Send + Sync + 'static> {
    /// The kind of the object
    #[arg(value_enum)]
    pub kind: K,

    /// The name of the object
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Which namespaces.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Where {
    /// The namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,

    /// All namespaces that you may see
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl Where {
    /// The namespace; `None` for all.
    #[must_use]
    pub fn namespace(&self, client: &Client) -> Option<String> {
        if self.all_namespaces {
            return None;
        }
        Some(self.one(client))
    }

    /// The namespace of a single object.
    #[must_use]
    pub fn one(&self, client: &Client) -> String {
        self.namespace.clone().unwrap_or_else(|| client.namespace().to_owned())
    }
}
